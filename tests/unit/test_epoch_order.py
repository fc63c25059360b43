"""Who waits for a session is served in the order of coming, whatever threads come. No server."""

import threading
from collections.abc import Callable, Iterator

import pytest

from zkcoord.config import SessionConfig
from zkcoord.core.lease import Belief
from zkcoord.zk.clock import now
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link


@pytest.fixture
def link() -> Iterator[Link]:
    """Not started: the test takes the turns of its loop."""
    link = Link("127.0.0.1:1", SessionConfig())
    yield link
    link.close()


def living(link: Link, seconds: float = 100.0) -> Epoch:
    return Epoch(7, Belief(now(), seconds + 0.1, 0.1), link.dispatcher, ephemeral_bytes_max=100)


def noting(order: list[str], name: str) -> Callable[[Epoch], None]:
    return lambda _: order.append(name)


def fail() -> None:
    raise AssertionError("it is not closed")


def test_who_comes_while_others_are_served_comes_behind_them(link: Link) -> None:
    order: list[str] = []
    came = threading.Event()

    def come() -> None:
        link.with_epoch(noting(order, "late"), fail)
        came.set()

    late = threading.Thread(target=come)

    def first(_: Epoch) -> None:
        order.append("first")
        late.start()
        assert came.wait(10)

    link.with_epoch(first, fail)
    link.with_epoch(noting(order, "second"), fail)
    link.loop.turn()
    link.loop.post(link._established, living(link))
    link.loop.turn()
    late.join(10)
    assert order == ["first", "second", "late"]
    link.with_epoch(noting(order, "at once"), fail)
    assert order[-1] == "at once"


def test_two_calls_of_one_thread_stay_in_order_when_a_session_begins_between(link: Link) -> None:
    order: list[str] = []
    link.with_epoch(noting(order, "one"), fail)
    epoch = living(link)
    link.epoch = epoch
    link.with_epoch(noting(order, "two"), fail)
    link.loop.turn()
    link._established(epoch)
    assert order == ["one", "two"]


def test_who_is_not_served_before_the_session_ends_waits_for_the_next(link: Link) -> None:
    order: list[str] = []
    short = living(link)

    def first(epoch: Epoch) -> None:
        order.append("first")
        epoch.belief.end()

    link.with_epoch(first, fail)
    link.with_epoch(noting(order, "second"), fail)
    link._established(short)
    assert order == ["first"]
    link.with_epoch(noting(order, "third"), fail)
    link._established(living(link))
    assert order == ["first", "second", "third"]


def test_an_error_in_one_spares_the_others(link: Link) -> None:
    order: list[str] = []

    def bad(_: Epoch) -> None:
        raise RuntimeError("bad")

    link.with_epoch(bad, fail)
    link.with_epoch(noting(order, "good"), fail)
    link._established(living(link))
    assert order == ["good"]


def test_who_gives_up_is_forgotten_and_who_comes_after_the_close_is_told(link: Link) -> None:
    order: list[str] = []
    gone, stays = noting(order, "gone"), noting(order, "stays")
    link.with_epoch(gone, fail)
    link.with_epoch(stays, lambda: order.append("closed"))
    link.forget_epoch(gone)
    link.close()
    link._ended()
    link.with_epoch(noting(order, "late"), lambda: order.append("late closed"))
    link.loop.turn()
    assert order == ["closed", "late closed"]
