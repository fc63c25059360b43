"""Holding the next one back after an unclean end, on a real server."""

import pytest

from tests.waiting import until
from zkcoord.errors import AcquireTimeout, ConfigError, LeaseLost, NodeMissing
from zkcoord.recipes import Lock, RLock, break_lock, contenders
from zkcoord.zk import Session
from zkcoord.zk.clock import now


def nodes(session: Session) -> list[str]:
    try:
        return session.nodes.children("/locks/gpu")
    except NodeMissing:
        return []


def requests(session: Session) -> list[str]:
    sent: list[str] = []
    submit = session.link._connection.submit

    def spy(call: object) -> None:
        sent.append(call.what.split()[0])  # type: ignore[attr-defined]
        submit(call)

    session.link._connection.submit = spy
    return sent


def test_a_clean_end_holds_nobody_back_and_leaves_nothing(session: Session) -> None:
    lock = Lock(session, "gpu", lock_delay=60)
    lock.acquire(timeout=5).release(timeout=5)
    sent = requests(session)
    with lock.hold(timeout=5):
        assert "held" in nodes(session)
        assert len(contenders(session, "gpu")) == 1
    lock.acquire(timeout=5).release(timeout=5)
    lock.acquire(timeout=0).release(timeout=5)
    mine = [verb for verb in sent if verb in {"create", "mark", "delete"}]
    assert mine == ["create", "mark", "delete"] * 3
    assert nodes(session) == []
    assert session.ephemeral_bytes == 0


def test_the_next_is_held_back_after_a_session_ended(session: Session, other: Session) -> None:
    lease = Lock(session, "gpu", lock_delay=0.7).acquire(timeout=5)
    future = Lock(other, "gpu", lock_delay=60).acquire_future(timeout=20)
    until(lambda: len(nodes(other)) == 3)
    ended = now()
    session.close()
    second = future.wait()
    assert now() - ended >= 0.7  # what the lost holder asked for, and not what the next one does
    assert second.token > lease.token
    third = Lock(other, "gpu", lock_delay=60).acquire_future(timeout=20)
    assert second.release(timeout=5)
    third.wait().release(timeout=5)  # at once: a clean end
    assert nodes(other) == []


def test_a_broken_lock_ended_uncleanly(session: Session, other: Session) -> None:
    lease = RLock(session, "gpu", lock_delay=0.6).acquire(timeout=5)
    future = RLock(other, "gpu", lock_delay=0.6).acquire_future(timeout=20)
    until(lambda: len(nodes(other)) == 3)
    broken = now()
    break_lock(other, "gpu", lease.token, "stuck")
    second = future.wait()
    assert now() - broken >= 0.6
    lease.release(timeout=5)
    second.check()
    assert "held" in nodes(other)  # the old holder took nothing along
    assert second.release(timeout=5)


def test_waiting_ends_by_its_deadline_and_leaves_the_mark(session: Session, other: Session) -> None:
    Lock(session, "gpu", lock_delay=60).acquire(timeout=5)
    session.close()
    begun = now()
    with pytest.raises(AcquireTimeout, match="held back"):
        Lock(other, "gpu", lock_delay=60).acquire(timeout=0.3)
    assert now() - begun < 10
    until(lambda: nodes(other) == ["held"])
    cancelled = Lock(other, "gpu", lock_delay=60).acquire_future()
    until(lambda: len(nodes(other)) == 2)
    assert cancelled.cancel()
    until(lambda: nodes(other) == ["held"])
    assert other.ephemeral_bytes == 0


def test_a_try_writes_nothing_while_held_back_and_wins_later(
    session: Session, other: Session
) -> None:
    Lock(session, "gpu", lock_delay=0.6).acquire(timeout=5)
    session.close()
    lock = Lock(other, "gpu", lock_delay=0.6)
    begun = now()
    sent = requests(other)
    with pytest.raises(AcquireTimeout, match="held back"):
        lock.acquire(timeout=0)
    assert "create" not in sent
    granted = []

    def wins() -> bool:
        try:
            granted.append(lock.acquire(timeout=0))
        except AcquireTimeout:
            return False
        return True

    until(wins)
    assert now() - begun >= 0.5
    granted[0].release(timeout=5)
    assert nodes(other) == []


def test_a_mark_removed_by_hand_harms_nobody(session: Session, other: Session) -> None:
    lock = Lock(session, "gpu", lock_delay=60)
    lease = lock.acquire(timeout=5)
    other.nodes.delete("/locks/gpu/held")
    assert lease.release(timeout=5)
    assert nodes(other) == []
    assert session.ephemeral_bytes == 0
    lock.acquire(timeout=5)
    other.nodes.set("/locks/gpu/held", b"nonsense")
    session.close()
    with pytest.raises(AcquireTimeout, match="held back"):
        Lock(other, "gpu", lock_delay=60).acquire(timeout=0.2)
    other.nodes.delete("/locks/gpu/held")
    Lock(other, "gpu", lock_delay=60).acquire(timeout=5).release()


def test_a_waiter_removed_while_held_back_is_not_granted(session: Session, other: Session) -> None:
    Lock(session, "gpu", lock_delay=0.5).acquire(timeout=5)
    future = Lock(other, "gpu", lock_delay=0.5).acquire_future(timeout=20)
    until(lambda: len(nodes(other)) == 3)
    session.close()
    until(lambda: len(nodes(other)) == 2)
    mine = next(node for node in nodes(other) if node != "held")
    other.nodes.delete(f"/locks/gpu/{mine}")
    with pytest.raises(LeaseLost, match="removed"):
        future.wait()


def test_delays_are_checked(session: Session) -> None:
    for delay in (-1, 61, float("nan"), "10"):
        with pytest.raises(ConfigError):
            Lock(session, "gpu", lock_delay=delay)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="other libraries"):
        Lock(session, "gpu", lock_delay=1, layout="kazoo")
