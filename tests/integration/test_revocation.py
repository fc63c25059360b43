"""Asking holders to let go, and breaking locks, on a real server."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from tests.waiting import until
from zkcoord.errors import (
    AcquireTimeout,
    LeaseLost,
    NameRefused,
    NodeMissing,
    NotRevocable,
    VersionConflict,
)
from zkcoord.recipes import (
    Lock,
    ReadWriteLock,
    Revocation,
    RLock,
    break_lock,
    break_lock_future,
    breaking,
    broken_locks,
    contenders,
    revoke,
    revoke_future,
)
from zkcoord.zk import Session


def waiting(session: Session) -> int:
    try:
        return len(session.nodes.children("/locks/gpu"))
    except NodeMissing:
        return 0


def test_a_holder_who_listens_is_asked_and_lets_go(session: Session, other: Session) -> None:
    heard: list[Revocation] = []
    threads: set[str] = set()

    def let_go(revocation: Revocation) -> None:
        heard.append(revocation)
        threads.add(threading.current_thread().name)
        lease.release()

    lease = Lock(session, "gpu").acquire(timeout=5, on_revoke=let_go)
    waiter = Lock(other, "gpu").acquire_future(timeout=20)
    until(lambda: waiting(session) == 2)
    (asked,) = revoke(other, "gpu", "a bigger job")
    assert asked.token == lease.token
    waiter.wait().release()
    assert [one.reason for one in heard] == ["a bigger job"]
    assert heard[0].by.startswith("two (pid ")
    assert heard[0].at > 0
    assert threads == {"zkcoord-calls-one"}
    assert not lease.lost.is_set()
    until(lambda: len(session.link.watches) == 0 and session.ephemeral_bytes == 0)


def test_each_revocation_is_heard_once(session: Session, other: Session) -> None:
    heard: list[str] = []
    lease = Lock(session, "gpu").acquire(timeout=5, on_revoke=lambda r: heard.append(r.reason))
    revoke(other, "gpu", "first", by="somebody")
    until(lambda: heard == ["first"])
    assert contenders(session, "gpu")[0].identity.revoked.by == "somebody"  # type: ignore[union-attr]
    revoke(other, "gpu", "second")
    until(lambda: heard == ["first", "second"])
    lease.check()
    lease.release(timeout=5)


def test_a_holder_who_does_not_listen_is_not_asked(session: Session, other: Session) -> None:
    with pytest.raises(NodeMissing, match="nobody holds"):
        revoke(other, "gpu", "please")
    lease = Lock(session, "gpu").acquire(timeout=5)
    before = session.nodes.get(lease.path)[1].version
    with pytest.raises(NotRevocable, match="one"):
        revoke(other, "gpu", "please")
    assert session.nodes.get(lease.path)[1].version == before
    for reason in ("", "  ", "x" * 1001):
        with pytest.raises(NameRefused):
            revoke(other, "gpu", reason)


def test_listening_costs_one_read_after_the_grant(session: Session) -> None:
    lock = Lock(session, "gpu")
    lock.acquire(timeout=5).release(timeout=5)
    sent: list[str] = []
    submit = session.link._connection.submit

    def spy(call: object) -> None:
        sent.append(call.what.split()[0])  # type: ignore[attr-defined]
        submit(call)

    session.link._connection.submit = spy
    lease = lock.acquire(timeout=5, on_revoke=lambda _: None)
    lease.release(timeout=5)
    assert sent == ["create", "watch", "delete"]


def test_all_readers_are_asked_and_no_waiter(session: Session, other: Session) -> None:
    heard: list[str] = []

    def listen(name: str) -> Callable[[Revocation], object]:
        return lambda _: heard.append(name)

    first = ReadWriteLock(session, "gpu")
    with first.write.hold(timeout=5, on_revoke=listen("downgraded")):
        kept = first.read.acquire()
    second = ReadWriteLock(other, "gpu").read.acquire(timeout=5, on_revoke=listen("second"))
    silent = ReadWriteLock(session, "gpu").read.acquire(timeout=5)
    waiter = ReadWriteLock(other, "gpu").write.acquire_future(on_revoke=listen("waiter"))
    until(lambda: waiting(session) == 4)
    asked = revoke(session, "gpu", "the writer waits")
    assert [one.token for one in asked] == [kept.token, second.token]
    until(lambda: sorted(heard) == ["downgraded", "second"])
    for lease in (kept, second, silent):
        lease.release()
    writer = waiter.wait()
    reader = ReadWriteLock(session, "gpu").read.acquire_future(on_revoke=listen("reader"))
    until(lambda: waiting(session) == 2)
    assert [one.token for one in revoke(session, "gpu", "nor a reader who waits")] == [writer.token]
    writer.release()
    reader.wait().release()


def test_breaking_removes_the_holder_and_writes_it_down(session: Session, other: Session) -> None:
    lease = RLock(session, "gpu").acquire(timeout=5, on_revoke=lambda _: None)
    waiter = Lock(other, "gpu").acquire_future(timeout=20)
    until(lambda: waiting(session) == 2)
    record = break_lock(other, "gpu", lease.token, "its host is gone", by="operator")
    assert lease.lost.wait(5)
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert caught.value.reason == "removed"
    with pytest.raises(LeaseLost):
        lease.release()
    assert waiter.wait().token > lease.token
    assert broken_locks(session) == [record]
    assert (record.name, record.root, record.token) == ("gpu", "/locks", lease.token)
    assert (record.by, record.reason) == ("operator", "its host is gone")
    assert record.holder is not None
    assert record.holder.name == "one"
    assert record.session == session.id
    until(lambda: session.ephemeral_bytes == 0 and len(session.link.watches) == 0)


def test_the_next_holder_is_never_hit(session: Session, other: Session) -> None:
    with pytest.raises(NodeMissing, match="nobody holds"):
        break_lock(other, "gpu", 1, "why not")
    old = Lock(session, "gpu").acquire(timeout=5)
    old.release(timeout=5)
    lease = Lock(session, "gpu").acquire(timeout=5)
    waiter = Lock(session, "gpu").acquire_future(timeout=5)
    until(lambda: waiting(session) == 2)
    with pytest.raises(VersionConflict, match="does not hold it"):
        break_lock(other, "gpu", old.token, "too late")
    token_of_waiter = contenders(other, "gpu")[1].token
    with pytest.raises(VersionConflict):  # who waits does not hold
        break_lock(other, "gpu", token_of_waiter, "not yet")
    lease.check()
    assert broken_locks(session) == []
    lease.release()
    waiter.wait().release()


def test_a_holder_that_lets_go_in_between_is_not_recorded(session: Session, other: Session) -> None:
    lease = Lock(session, "gpu").acquire(timeout=5)
    submit = other.link._connection.submit

    def spy(call: object) -> None:
        if type(call.request).__name__ == "Multi":  # type: ignore[attr-defined]
            lease.release(timeout=5)
        submit(call)

    other.link._connection.submit = spy
    with pytest.raises(VersionConflict, match="has let go"):
        break_lock(other, "gpu", lease.token, "too slow")
    assert broken_locks(session) == []


def test_a_downgraded_writer_loses_what_it_has_left(session: Session, other: Session) -> None:
    lock = ReadWriteLock(session, "gpu")
    with lock.write.hold(timeout=5, on_revoke=lambda _: None):
        reader = lock.read.acquire()
    break_lock(other, "gpu", reader.token, "gone")
    assert reader.lost.wait(5)
    with pytest.raises(LeaseLost, match="removed"):
        reader.check()
    with pytest.raises(LeaseLost):
        reader.release()
    lock.write.acquire(timeout=5).release()


def test_only_the_latest_records_are_kept(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaking, "AUDIT_RECORDS_MAX", 3)
    session.nodes.create("/audit")
    session.nodes.create("/audit/broken")
    session.nodes.create("/audit/broken/a note of ours", b"stays")
    for number in range(5):
        lease = Lock(session, "gpu").acquire(timeout=5)
        break_lock(session, "gpu", lease.token, f"number {number}")
    assert [one.reason for one in broken_locks(session)] == ["number 4", "number 3", "number 2"]
    assert len(session.nodes.children("/audit/broken")) == 4
    assert [one.reason for one in broken_locks(session, limit=1)] == ["number 4"]


def test_both_can_be_awaited(zookeeper: str) -> None:
    async def story() -> None:
        async with Session(zookeeper, timeout=10) as session:
            heard = asyncio.Event()
            loop = asyncio.get_running_loop()
            lease = await Lock(session, "gpu").acquire_future(
                timeout=5, on_revoke=lambda _: loop.call_soon_threadsafe(heard.set)
            )
            await revoke_future(session, "gpu", "please")
            await asyncio.wait_for(heard.wait(), 10)
            await break_lock_future(session, "gpu", lease.token, "now")
            with pytest.raises(RuntimeError, match="event loop"):
                revoke(session, "gpu", "blocking")
            async with Lock(session, "gpu").hold(timeout=5):
                with pytest.raises(AcquireTimeout):
                    await Lock(session, "gpu").acquire_future(timeout=0)

    asyncio.run(story())
