"""Counters, on a real server."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from zkcoord.core import counting
from zkcoord.errors import ConfigError, NameRefused, NodeForeign, SessionClosed, VersionConflict
from zkcoord.recipes import Count, Counter, FastCounter, adding
from zkcoord.recipes import counter as counter_module
from zkcoord.recipes import fast_counter as fast_counter_module
from zkcoord.zk import Session
from zkcoord.zk.call import Call


def test_it_counts_from_zero_and_tells_the_count(session: Session, other: Session) -> None:
    counter = Counter(session, "/counters/orders")
    assert counter.get() == 0
    assert counter.read() == Count(0, -1)
    assert [counter.add(), counter.add(5), counter.add(-2)] == [1, 6, 4]
    assert Counter(other, "/counters/orders").get(sync=True) == 4
    assert counter.add(0) == 4


def test_every_addition_of_many_writers_counts_once_and_gets_its_own_number(
    zookeeper: str, session: Session, other: Session
) -> None:
    def work(where: Session) -> list[int]:
        counter = Counter(where, "/c")
        return [counter.add(timeout=30) for _ in range(50)]

    with ThreadPoolExecutor(6) as threads:
        futures = [threads.submit(work, where) for where in (session, other) * 3]
    got = sorted(number for future in futures for number in future.result())
    assert got == list(range(1, 301))


def test_additions_of_one_object_go_together(session: Session) -> None:
    counter = Counter(session, "/c")
    futures = [counter.add_future(1, timeout=30) for _ in range(500)]
    assert [future.wait() for future in futures] == list(range(1, 501))
    assert counter.read().version < 100


def test_compare_and_set_by_number_and_by_version(session: Session, other: Session) -> None:
    counter, theirs = Counter(session, "/c"), Counter(other, "/c")
    first = counter.compare_and_set(0, 7)
    assert first == Count(7, 0)
    with pytest.raises(VersionConflict, match="is 7"):
        theirs.compare_and_set(6, 1)
    theirs.add(1)
    theirs.add(-1)
    assert counter.compare_and_set(7, 8).number == 8  # the number is what it was
    with pytest.raises(VersionConflict):
        counter.compare_and_set(first, 9)  # the version is not
    assert theirs.get(sync=True) == 8


def test_one_of_many_wins_a_compare_and_set(session: Session, other: Session) -> None:
    start = threading.Barrier(8)

    def race(where: Session) -> bool:
        counter = Counter(where, "/c")
        start.wait(10)
        try:
            counter.compare_and_set(0, 1)
        except VersionConflict:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(race, (session, other) * 4)) == 1


def test_a_number_set_by_hand_counts_and_other_things_are_refused(session: Session) -> None:
    session.nodes.create("/c", b"41")
    assert Counter(session, "/c").add() == 42
    session.nodes.create("/f", b"hello")
    for call in (Counter(session, "/f").get, Counter(session, "/f").add):
        with pytest.raises(NodeForeign, match="hello"):
            call()
    assert session.nodes.get("/f")[0] == b"hello"


def test_bad_arguments(session: Session) -> None:
    with pytest.raises(NameRefused):
        Counter(session, "c")
    counter = Counter(session, "/c")
    for amount in (1.5, "1", True, 2**63):
        with pytest.raises(ConfigError):
            counter.add(amount)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        counter.add(1, timeout=-1)
    with pytest.raises(ConfigError):
        counter.add(1, timeout=float("inf"))
    with pytest.raises(ConfigError):
        FastCounter(session, "/f", stripes=0)
    assert session.nodes.exists("/c") is None
    session.close()
    with pytest.raises(SessionClosed):
        counter.add()


def test_who_would_leave_the_range_is_refused_and_the_others_are_not(session: Session) -> None:
    counter = Counter(session, "/c")
    counter.compare_and_set(0, 2**63 - 3)
    futures = [counter.add_future(amount) for amount in (1, 5, 1)]
    assert futures[0].wait() == 2**63 - 2
    with pytest.raises(ConfigError, match="leaves"):
        futures[1].wait()
    assert futures[2].wait() == 2**63 - 1


def test_the_node_is_replaced_before_its_version_wraps(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "VERSION_MAX", 5)

    counter = Counter(session, "/c")
    for expected in range(1, 40):
        assert counter.add() == expected
        assert Counter(other, "/c").read(sync=True).version == (expected - 1) % 6


def test_a_counter_that_is_deleted_starts_again(session: Session, other: Session) -> None:
    counter = Counter(session, "/c")
    counter.add(3)
    other.nodes.delete("/c")
    assert counter.add() == 1


def test_what_was_known_a_while_ago_is_read_again(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node may be another one by then, and its version the same."""
    monkeypatch.setattr(counter_module, "FRESH_S", 0.0)
    counter = Counter(session, "/c")
    counter.add(3)
    other.nodes.delete("/c")
    other.nodes.create("/c", b"40")
    assert counter.add(1) == 41


def test_a_server_that_is_behind_catches_up_where_that_is_asked_for(session: Session) -> None:
    Counter(session, "/c").add()
    FastCounter(session, "/f").add()
    submit = session.link._connection.submit
    sent: list[str] = []

    def spy(call: Call) -> None:
        sent.append(type(call.request).__name__)
        submit(call)

    session.link._connection.submit = spy  # type: ignore[method-assign]
    Counter(session, "/c").get()
    assert sent == ["GetData"]
    for ask in (
        lambda: Counter(session, "/c").get(sync=True),
        lambda: Counter(session, "/c").compare_and_set(1, 1),  # an older number is no reason
        lambda: FastCounter(session, "/f").get(sync=True),
    ):
        sent.clear()
        ask()
        assert sent[0] == "Sync"


def test_the_fast_counter_is_the_sum_of_its_stripes(session: Session, other: Session) -> None:
    def work(where: Session) -> None:
        counter = FastCounter(where, "/f", stripes=4)
        for _ in range(40):
            counter.add(timeout=30)

    assert FastCounter(session, "/f").get() == 0
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, (session, other) * 3))
    assert FastCounter(session, "/f").get(sync=True) == 240
    assert 1 < len(session.nodes.children("/f")) <= 4
    FastCounter(other, "/f").add(-40)
    assert FastCounter(other, "/f").get() == 200


def test_who_meets_another_on_a_stripe_goes_to_another(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_counter_module, "FRESH_S", 60.0)
    ours, theirs = (FastCounter(where, "/f", stripes=256) for where in (session, other))
    ours._stripe = theirs._stripe = 0
    ours._rng = random.Random(1)
    ours.add()
    theirs.add()
    assert session.nodes.children("/f") == ["s0"]
    ours.add()  # it does not know of theirs
    assert len(session.nodes.children("/f")) == 2
    assert ours.get(sync=True) == 3


def test_additions_that_wait_are_bounded(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "WAITING_MAX", 5)
    counter, go = Counter(session, "/c"), threading.Event()
    session.link.loop.post(go.wait, 10)
    futures = [counter.add_future(timeout=30) for _ in range(9)]
    go.set()
    ends = [future.exception() for future in futures]
    assert ends[:6] == [None] * 6  # one on its way, five behind it
    assert all("5 additions wait already" in str(end) for end in ends[6:])
    assert counter.get() == 6


def test_the_two_kinds_of_counters_refuse_each_others_nodes(session: Session) -> None:
    Counter(session, "/c").add()
    FastCounter(session, "/f").add()
    with pytest.raises(NodeForeign):
        FastCounter(session, "/c").add()
    with pytest.raises(NodeForeign):
        FastCounter(session, "/c").get()
    with pytest.raises(NodeForeign):
        Counter(session, "/f").add()
    assert session.nodes.children("/c") == []


async def test_asyncio(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        counter, fast = Counter(session, "/c"), FastCounter(session, "/f")
        got = await asyncio.gather(*(counter.add_future() for _ in range(100)))
        assert sorted(got) == list(range(1, 101))
        await asyncio.gather(*(fast.add_future(2) for _ in range(100)))
        assert await fast.get_future() == 200
        assert (await counter.compare_and_set_future(100, 0)).number == 0
        with pytest.raises(RuntimeError, match="event loop"):
            counter.add()
