"""Thousands of one session at one semaphore, or at several locks at once: what each one costs.

Counted are requests and bytes on the wire, and the names and weights that are looked at: a cost
that grows with the crowd shows in one of them. Time is not measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests import waiting
from tests.faults.frame_relay import FrameRelay
from zkcoord.core import ordering, permits
from zkcoord.errors import LimitExceeded, LimitMismatch
from zkcoord.recipes import Lock, MultiLock, Semaphore
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise

CROWD = 1000
NAMES = ["account-1", "account-2", "account-3"]

Ask = Callable[[int], Promise[Any]]

until = partial(waiting.until, seconds=60.0)


class Looks:
    """How many names and weights are looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names = 0
        self.weights = 0
        in_order, weight_of = ordering.in_order, permits.weight_of

        def counted(nodes: Any) -> Any:
            names = list(nodes)
            self.names += len(names)
            return in_order(names)

        def weighed(contender: Any) -> int:
            self.weights += 1
            return weight_of(contender)

        monkeypatch.setattr(ordering, "in_order", counted)
        monkeypatch.setattr(permits, "weight_of", weighed)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


@pytest.fixture
def relay(zookeeper: str) -> Iterator[FrameRelay]:
    with FrameRelay(zookeeper.partition("/")[0]) as relay:
        yield relay


@pytest.fixture
def behind(relay: FrameRelay, zookeeper: str) -> Iterator[Session]:
    with Session(f"{relay.address}/{zookeeper.partition('/')[2]}", timeout=20) as session:
        yield session


def one_by_one(session: Session) -> tuple[Ask, int]:
    return lambda _: Semaphore(session, "crowd", 1).acquire_future(1), 1


def of_mixed_weight(session: Session) -> tuple[Ask, int]:
    return lambda number: Semaphore(session, "crowd", 9).acquire_future(1 + number * 5 % 9), 9


def many_at_a_time(session: Session) -> tuple[Ask, int]:
    return lambda _: Semaphore(session, "crowd", 50).acquire_future(1), 50


def several(session: Session) -> tuple[Ask, int]:
    return lambda _: MultiLock(session, NAMES).acquire_future(), 0


KINDS = {
    "one permit": one_by_one,
    "mixed weights": of_mixed_weight,
    "fifty permits": many_at_a_time,
    "three locks": several,
}


def hold_all(session: Session, weight: int) -> Any:
    if weight:
        return Semaphore(session, "crowd", weight).acquire(weight, timeout=10)
    return MultiLock(session, NAMES).acquire(timeout=10)


def drain(futures: list[Promise[Any]]) -> list[int]:
    """Release each as soon as it is granted; the tokens in the order of grants."""
    order: list[int] = []

    def release(future: Promise[Any]) -> None:
        order.append(future.result().token)
        future.result().release()

    for future in futures:
        future.on_done(partial(release, future))
    until(lambda: len(order) == len(futures))
    return order


@pytest.mark.parametrize("kind", KINDS)
def test_a_crowd_costs_each_of_it_the_same_however_large_it_is(
    behind: Session, relay: FrameRelay, looks: Looks, kind: str
) -> None:
    ask, weight = KINDS[kind](behind)
    lines = 1 if weight else len(NAMES)
    holder = hold_all(behind, weight)
    relay.sent.clear()
    relay.received.clear()
    futures = [ask(number) for number in range(CROWD)]
    until(lambda: len(behind.link.watches) >= CROWD * lines)
    holder.release()
    tokens = drain(futures)
    assert tokens == sorted(tokens)
    until(lambda: behind.ephemeral_bytes == 0)

    asked = Counter(frame.opcode for frame in relay.requests())
    carried = sum(4 + len(frame.body) for frame in (*relay.sent, *relay.received))
    assert asked.total() <= CROWD * (6 if weight else 9), asked
    assert carried <= CROWD * (1500 if weight else 3000)
    assert looks.names <= CROWD * 12
    assert looks.weights <= CROWD * (60 if weight > 10 else 20)
    epoch = behind.link.epoch
    assert epoch is not None
    assert not epoch.successors
    assert not epoch.queues
    assert not epoch.leaving


def test_two_sessions_of_many_take_turns_in_the_order_of_request(
    session: Session, other: Session
) -> None:
    asks = [of_mixed_weight(session)[0], of_mixed_weight(other)[0]]
    holder = hold_all(session, 9)
    futures = [asks[number % 2](number) for number in range(200)]
    until(lambda: len(session.link.watches) + len(other.link.watches) >= 200)
    holder.release()
    tokens = drain(futures)
    assert tokens == sorted(tokens)


def test_locks_and_several_locks_of_one_session_take_turns(session: Session) -> None:
    holder = MultiLock(session, NAMES).acquire(timeout=10)
    asks: list[Ask] = [
        lambda _: MultiLock(session, NAMES).acquire_future(),
        lambda number: Lock(session, NAMES[number % 3]).acquire_future(),
        lambda _: MultiLock(session, NAMES[:2]).acquire_future(),
    ]
    futures = [asks[number % 3](number) for number in range(150)]
    until(lambda: len(session.link.watches) >= 300)
    holder.release()
    order = drain(futures)
    assert len(set(order)) == 150
    until(lambda: session.ephemeral_bytes == 0)
    assert not session.link.watches


def test_who_leaves_the_middle_of_a_crowd_lets_nobody_in_early(session: Session) -> None:
    semaphore = Semaphore(session, "crowd", 2)
    holder = semaphore.acquire(2, timeout=10)
    futures = [semaphore.acquire_future(1 + number % 2) for number in range(60)]
    until(lambda: len(session.link.watches) >= 60)
    for future in futures[::3]:
        future.cancel()
    until(lambda: len(session.nodes.children("/semaphores/crowd")) == 41)
    late = semaphore.acquire_future(2)
    left = [future for index, future in enumerate(futures) if index % 3]
    assert not any(future.done() for future in [*left, late])
    holder.release()
    tokens = drain([*left, late])
    assert tokens == sorted(tokens)
    until(lambda: session.ephemeral_bytes == 0)
    assert not session.link.watches


def test_another_limit_or_too_much_weight_is_told_at_once_in_a_crowd(session: Session) -> None:
    semaphore = Semaphore(session, "crowd", 2)
    holder = semaphore.acquire(2, timeout=10)
    waiting_one = semaphore.acquire_future(1)
    until(lambda: len(session.link.watches) >= 2)
    semaphore.resize(4, timeout=10)
    assert waiting_one.wait().weight == 1  # three of four are held
    second = semaphore.acquire_future(2)
    until(lambda: len(session.link.watches) >= 3)
    heavy = semaphore.acquire_future(4)  # above the limit that this session saw first
    with pytest.raises(LimitMismatch):
        Semaphore(session, "crowd", 3).acquire(timeout=10)
    with pytest.raises(LimitExceeded):
        semaphore.acquire(5, timeout=10)
    assert not heavy.done()
    holder.release()
    second.wait().release()
    waiting_one.wait().release()
    heavy.wait().release()
