"""Grants without a listing: nobody is let in where somebody else stands in front."""

from __future__ import annotations

import pytest

from tests.waiting import until
from zkcoord import AcquireTimeout, Lock, ReadWriteLock, Session


def again_and_again(lock: Lock, times: int = 2) -> None:
    """From now on its session expects to be the first."""
    for _ in range(times):
        lock.acquire(timeout=10).release(timeout=10)


def test_a_folder_made_anew_while_we_were_away_lets_nobody_in(
    session: Session, other: Session
) -> None:
    """Our next node gets the number that it would have had in the folder that we left."""
    lock, theirs = Lock(session, "anew"), Lock(other, "anew")
    again_and_again(lock)  # 0 and 1
    other.nodes.delete("/locks/anew")
    again_and_again(theirs, 1)  # 0 of the new one
    held = theirs.acquire(timeout=10)  # 1, and 2 is next
    with pytest.raises(AcquireTimeout):
        lock.acquire(timeout=0.5)
    held.release(timeout=10)


def test_whatever_enters_a_folder_takes_what_is_known_of_it(session: Session) -> None:
    """The transactions of our own that count for nothing must not be creates in that folder."""
    lock = ReadWriteLock(session, "both")
    epoch, folder = session.link.epoch, session.link.absolute("/locks/both")
    assert epoch is not None
    lock.write.acquire(timeout=10).release(timeout=10)
    known = epoch.vacancies.take(folder)
    assert known is not None
    assert known.removed is not None
    lock.write.acquire(timeout=10).release(timeout=10)
    lock.read.acquire(timeout=10).release(timeout=10)
    assert epoch.vacancies.take(folder) is None


def test_a_node_that_was_removed_by_hand_proves_nothing(session: Session, other: Session) -> None:
    lock, theirs = Lock(session, "broken"), Lock(other, "broken")
    again_and_again(lock)
    lease = lock.acquire(timeout=10)
    waiting = theirs.acquire_future(20)
    until(lambda: len(other.nodes.children("/locks/broken")) == 2)
    other.nodes.delete(f"/locks/broken/{lease.path.rpartition('/')[2]}")
    held = waiting.result(10)
    lease.release(timeout=10)
    with pytest.raises(AcquireTimeout):
        lock.acquire(timeout=0.5)
    held.release(timeout=10)


def test_two_sessions_by_turns_exclude_each_other(session: Session, other: Session) -> None:
    locks = [Lock(session, "turns"), Lock(other, "turns")]
    tokens = []
    for number in range(30):
        mine, theirs = locks[number % 2], locks[(number + 1) % 2]
        if number % 5 == 0:
            again_and_again(mine)
        lease = mine.acquire(timeout=10)
        tokens.append(lease.token)
        with pytest.raises(AcquireTimeout):
            theirs.acquire(timeout=0.05)
        lease.release(timeout=10 if number % 3 else 0.0)
    assert tokens == sorted(tokens)
    until(lambda: not session.nodes.children("/locks/turns"))
