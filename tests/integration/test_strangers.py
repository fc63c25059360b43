"""Recipes of different kinds on one folder: the later one is refused, and leaves nothing behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.waiting import until
from zkcoord.errors import AcquireTimeout, NodeForeign
from zkcoord.recipes import (
    Barrier,
    DoubleBarrier,
    Election,
    Lock,
    MultiLock,
    Pool,
    ReadWriteLock,
    RLock,
    Semaphore,
)
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise

ROOT = "/shared"
Ask = Callable[[Session, float | None], Promise[Any]]


def lock(one: Session, timeout: float | None) -> Promise[Any]:
    return Lock(one, "it", root=ROOT).acquire_future(timeout)


def rlock(one: Session, timeout: float | None) -> Promise[Any]:
    return RLock(one, "it", root=ROOT).acquire_future(timeout)


def reader(one: Session, timeout: float | None) -> Promise[Any]:
    return ReadWriteLock(one, "it", root=ROOT).read.acquire_future(timeout)


def writer(one: Session, timeout: float | None) -> Promise[Any]:
    return ReadWriteLock(one, "it", root=ROOT).write.acquire_future(timeout)


def several(one: Session, timeout: float | None) -> Promise[Any]:
    return MultiLock(one, ["it", "other"], root=ROOT).acquire_future(timeout)


def candidate(one: Session, timeout: float | None) -> Promise[Any]:
    return Election(one, "it", root=ROOT).campaign_future(timeout)


def permit(one: Session, timeout: float | None) -> Promise[Any]:
    return Semaphore(one, "it", 2, root=ROOT).acquire_future(1, timeout)


def slot(one: Session, timeout: float | None) -> Promise[Any]:
    return Pool(one, "it", slots=["a", "b"], root=ROOT).acquire_future(timeout)


def alone(one: Session, timeout: float | None) -> Promise[Any]:
    return DoubleBarrier(one, "it", size=1, root=ROOT).enter_future(timeout)


LOCKS: dict[str, Ask] = {
    "lock": lock, "rlock": rlock, "reader": reader, "writer": writer, "several": several,
    "election": candidate,
}  # fmt: skip
OTHERS: dict[str, Ask] = {"semaphore": permit, "double barrier": alone}
PAIRS = [
    *((first, second) for first in LOCKS for second in OTHERS),
    *((first, second) for first in OTHERS for second in LOCKS),
    *(("pool", second) for second in LOCKS),
    *(("pool", second) for second in OTHERS),
    ("semaphore", "pool"), ("semaphore", "double barrier"), ("double barrier", "semaphore"),
]  # fmt: skip
ASKS = {**LOCKS, **OTHERS, "pool": slot}


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_later_of_two_kinds_is_refused(
    session: Session, other: Session, first: str, second: str
) -> None:
    held = ASKS[first](session, 10).wait()
    before = Counter(session.nodes.children(f"{ROOT}/it"))
    with pytest.raises(NodeForeign, match=r"it|place") as told:
        ASKS[second](other, 10).wait()
    if "holds" not in str(told.value) and "value" not in str(told.value):
        assert "folder that a" in str(told.value)
    assert told.value.hint
    until(lambda: other.ephemeral_bytes == 0)
    until(lambda: not other.link.watches)
    assert Counter(session.nodes.children(f"{ROOT}/it")) == before
    held.check()
    held.release(timeout=10)


@pytest.mark.parametrize(
    ("first", "second"), [("semaphore", "lock"), ("lock", "semaphore"), ("pool", "lock")]
)
def test_a_try_is_refused_as_well(
    session: Session, other: Session, first: str, second: str
) -> None:
    held = ASKS[first](session, 10).wait()
    with pytest.raises(NodeForeign):
        ASKS[second](other, 0).wait()
    held.release(timeout=10)


@pytest.mark.parametrize("first", LOCKS)
@pytest.mark.parametrize("second", LOCKS)
def test_locks_of_all_sorts_take_turns(
    session: Session, other: Session, first: str, second: str
) -> None:
    held = ASKS[first](session, 10).wait()
    if first == second == "reader":
        ASKS[second](other, 10).wait().release(timeout=10)
    else:
        with pytest.raises(AcquireTimeout):
            ASKS[second](other, 0).wait()
    held.release(timeout=10)
    ASKS[second](other, 10).wait().release(timeout=10)


@pytest.mark.parametrize("first", ASKS)
def test_a_barrier_is_no_folder(session: Session, other: Session, first: str) -> None:
    held = ASKS[first](session, 10).wait()
    barrier = Barrier(other, "it", root=ROOT)
    for call in (
        barrier.create, partial(barrier.wait, 10), barrier.is_up, barrier.lift,
    ):  # fmt: skip
        with pytest.raises(NodeForeign, match="another recipe"):
            call()
    held.release(timeout=10)
