"""What errors of recipes say: no time where none was given, a hint once, the holder's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zkcoord.errors import AcquireTimeout, ZkcoordError
from zkcoord.recipes import Lock, MultiLock, Pool, ReadWriteLock, RLock, Semaphore
from zkcoord.zk import Session

Acquire = Callable[[Session, float], Any]

WAYS: dict[str, Acquire] = {
    "lock": lambda session, timeout: Lock(session, "a").acquire(timeout),
    "rlock": lambda session, timeout: RLock(session, "a").acquire(timeout),
    "read": lambda session, timeout: ReadWriteLock(session, "a").read.acquire(timeout),
    "write": lambda session, timeout: ReadWriteLock(session, "a").write.acquire(timeout),
    "handoffs": lambda session, timeout: Lock(session, "a", local_handoffs=5).acquire(timeout),
    "several": lambda session, timeout: MultiLock(session, ["a", "b"]).acquire(timeout),
    "semaphore": lambda session, timeout: Semaphore(session, "a", 1).acquire(timeout=timeout),
    "pool": lambda session, timeout: Pool(session, "a", ["x"]).acquire(timeout),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_try_says_who_holds_it_and_names_no_time(
    session: Session, other: Session, way: str
) -> None:
    lease = WAYS["write" if way == "read" else way](other, 10.0)
    for timeout in (0.0, 0.15):
        with pytest.raises(AcquireTimeout) as caught:
            WAYS[way](session, timeout)
        said = str(caught.value)
        assert "two" in said or "share its place" in said  # the holder's name, when it is known
        assert "0.00 s" not in said
        assert ("within 0." in said) == (timeout > 0)
    lease.release(5)


def test_a_try_among_local_waiters_names_no_time(session: Session) -> None:
    lock = Lock(session, "a", local_handoffs=5)
    with lock.hold(timeout=10), pytest.raises(AcquireTimeout) as caught:
        lock.acquire(timeout=0)
    assert str(caught.value) == "lock a: not to be had now; others of this process hold it or wait"


def test_a_hint_is_said_once(session: Session, other: Session) -> None:
    held = Semaphore(other, "a", 2).acquire(2, timeout=10)
    wrong: list[Callable[[], Any]] = [
        lambda: Semaphore(session, "a", 5).acquire(timeout=1),
        lambda: Semaphore(session, "a").acquire(9, timeout=1),
        lambda: Semaphore(session, "a").resize(1),
        lambda: Semaphore(session, "b").acquire(timeout=1),
        lambda: Pool(session, "b").acquire(1),
        lambda: Lock(session, "a/b").acquire(1),
        lambda: session.nodes.get("/missing"),
        lambda: Session("a:1//b"),
    ]
    for call in wrong:
        with pytest.raises(ZkcoordError) as caught:
            call()
        error = caught.value
        assert not error.hint or str(error).count(error.hint) == 1
        assert error.hint not in error.args[0] or not error.hint
    held.release(5)
