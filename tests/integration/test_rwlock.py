"""The read-write lock, on a real server."""

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.waiting import until
from zkcoord.errors import AcquireTimeout, LeaseLost, NodeMissing, NotOwner, ReentryRefused
from zkcoord.recipes import Lock, ReadWriteLock, contenders
from zkcoord.zk import Promise, Session


def waiting(session: Session) -> int:
    try:
        return len(session.nodes.children("/locks/book"))
    except NodeMissing:
        return 0


def nothing_left(session: Session) -> bool:
    epoch: Any = session.link.epoch
    return (
        waiting(session) == 0
        and len(session.link.watches) == 0
        and session.ephemeral_bytes == 0
        and not epoch._members
        and not epoch.successors
    )


class Cast:
    """Owners: each asks through a lock object of its own, so that nobody is reentrant."""

    def __init__(self, *sessions: Session) -> None:
        self.sessions = sessions
        self.count = 0

    def ask(self, face: str, session: int = 0, timeout: float | None = 30) -> Promise[Any]:
        """Ask, and wait until it stands in the queue."""
        before = waiting(self.sessions[0])
        lock = ReadWriteLock(self.sessions[session], "book")
        future: Promise[Any] = getattr(lock, face).acquire_future(timeout)
        until(lambda: future.done() or waiting(self.sessions[0]) > before)
        return future


@pytest.fixture
def cast(session: Session, other: Session) -> Cast:
    return Cast(session, other)


def settled(session: Session, *futures: Promise[Any]) -> list[bool]:
    """Who is granted, after everything that is under way has been done."""
    for _ in range(3):
        session.nodes.sync()
    return [future.done() for future in futures]


def test_readers_share_and_a_writer_is_alone(cast: Cast, session: Session) -> None:
    first, second = cast.ask("read").wait(), cast.ask("read", 1).wait()
    writer = cast.ask("write")
    assert settled(session, writer) == [False]
    first.release()
    assert settled(session, writer) == [False]  # the other reader lives on
    second.release()
    lease = writer.wait()
    reader, rival = cast.ask("read", 1), cast.ask("write")
    assert settled(session, reader, rival) == [False, False]
    lease.release()
    token = reader.wait().token
    assert token > lease.token
    assert settled(session, rival) == [False]
    reader.result().release()
    rival.wait().release()
    until(lambda: nothing_left(session))


@pytest.mark.parametrize("leaving", [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]])
def test_a_writer_waits_for_all_readers_ahead_whoever_leaves_first(
    cast: Cast, session: Session, leaving: list[int]
) -> None:
    readers = [cast.ask("read", number % 2).wait() for number in range(3)]
    writer = cast.ask("write", 1)
    for number in leaving:
        assert settled(session, writer) == [False]
        readers[number].release(timeout=5)
    writer.wait().release()


def test_a_reader_behind_a_waiting_writer_waits_for_it(cast: Cast, session: Session) -> None:
    reader = cast.ask("read").wait()
    writer = cast.ask("write", 1)
    late = [cast.ask("read"), cast.ask("read", 1)]
    assert settled(session, writer, *late) == [False] * 3
    with pytest.raises(AcquireTimeout):
        ReadWriteLock(session, "book").read.acquire(timeout=0)  # nor can a try overtake
    reader.release()
    lease = writer.wait()
    assert settled(session, *late) == [False, False]
    lease.release()
    for future in late:
        future.wait().release()


def test_readers_get_in_when_the_writer_before_them_gives_up(cast: Cast, session: Session) -> None:
    reader = cast.ask("read").wait()
    writers = [cast.ask("write", 1), cast.ask("write")]
    late = cast.ask("read", 1)
    assert writers[1].cancel()
    until(lambda: waiting(session) == 3)
    assert settled(session, late) == [False]  # there is one more writer in front
    assert writers[0].cancel()
    late.wait().release()
    reader.release(timeout=5)
    until(lambda: nothing_left(session))


def test_a_plain_lock_of_the_name_is_a_writer(cast: Cast, session: Session) -> None:
    reader = cast.ask("read").wait()
    future = Lock(session, "book").acquire_future(timeout=20)
    until(lambda: waiting(session) == 2)
    late = cast.ask("read", 1)
    assert settled(session, future, late) == [False, False]
    reader.release()
    future.wait().release()
    late.wait().release()


def test_the_owner_comes_in_again_even_past_a_waiting_writer(cast: Cast, session: Session) -> None:
    lock = ReadWriteLock(session, "book")
    with lock.read.hold(timeout=5) as outer:
        writer = cast.ask("write", 1)
        with lock.read.hold(timeout=0) as inner:
            assert inner is outer
            assert lock.read.depth == 2
        assert settled(session, writer) == [False]
    writer.wait().release()
    with lock.write.hold(timeout=5) as outer, lock.write.hold(timeout=0) as inner:
        assert inner is outer
        assert (lock.write.depth, lock.read.depth) == (2, 0)
    assert (lock.write.depth, lock.read.depth) == (0, 0)
    until(lambda: nothing_left(session))


def test_a_writer_may_read_and_stays_alone(cast: Cast, session: Session) -> None:
    lock = ReadWriteLock(session, "book")
    with lock.write.hold(timeout=5) as writer:
        with lock.read.hold(timeout=0) as reader:
            assert reader.token == writer.token
            assert waiting(session) == 1
        late = cast.ask("read", 1)
        assert settled(session, late) == [False]
        writer.check()
        with pytest.raises(LeaseLost):
            reader.check()
    late.wait().release()


def test_upgrading_is_refused_at_once(session: Session) -> None:
    lock = ReadWriteLock(session, "book")
    with lock.read.hold(timeout=5) as lease:
        with pytest.raises(ReentryRefused, match="cannot become the writer"):
            lock.write.acquire()
        with pytest.raises(ReentryRefused):
            lock.write.acquire(timeout=0)
        lease.check()
    lock.write.acquire(timeout=5).release()


def test_a_downgrade_lets_readers_in_and_no_writer(cast: Cast, session: Session) -> None:
    """CURATOR-621: a writer was granted beside the downgraded reader."""
    lock = ReadWriteLock(session, "book")
    writer = lock.write.acquire(timeout=5)
    sharing, rival, late = cast.ask("read", 1), cast.ask("write", 1), cast.ask("read")
    reader = lock.read.acquire(timeout=0)
    assert settled(session, sharing, rival, late) == [False] * 3
    assert writer.release(timeout=5)
    with pytest.raises(LeaseLost, match="released"):
        writer.check()
    with pytest.raises(LeaseLost):  # its node is still there, but it is nobody's to write with
        writer.guard(session.nodes.transaction())
    reader.check()
    sharing.wait().check()
    assert [s.kind for s in contenders(session, "book")] == ["r", "r", "x", "r"]
    newcomer = cast.ask("read", 1)
    assert settled(session, rival, late, newcomer) == [False] * 3
    with pytest.raises(ReentryRefused):  # a reader now, as any other
        lock.write.acquire()
    sharing.result().release(timeout=5)
    assert settled(session, rival) == [False]  # the downgraded reader lives on
    reader.release()
    rival.wait().release()
    late.wait().release()
    newcomer.wait().release()
    until(lambda: nothing_left(session))


def test_a_reader_comes_in_beside_a_downgraded_one(cast: Cast, session: Session) -> None:
    lock = ReadWriteLock(session, "book")
    with lock.write.hold(timeout=5):
        lock.read.acquire()
    with pytest.raises(AcquireTimeout):
        Lock(session, "book").acquire(timeout=0)
    until(lambda: [s.kind for s in contenders(session, "book")] == ["r"])
    cast.ask("read", 1, timeout=0).wait().release()
    cast.ask("read", 1).wait().release()


def test_a_downgrade_and_an_immediate_release_leave_nothing(cast: Cast, session: Session) -> None:
    lock = ReadWriteLock(session, "book")
    for _ in range(10):
        with lock.write.hold(timeout=5) as writer:
            reader = lock.read.acquire()
        reader.release()
        assert writer.release_future().result(5)
    until(lambda: nothing_left(session))


def test_only_the_owner_releases(session: Session) -> None:
    lease = ReadWriteLock(session, "book").read.acquire(timeout=5)
    with ThreadPoolExecutor(1) as pool, pytest.raises(NotOwner):
        pool.submit(lease.release).result(10)
    lease.release()


def test_a_lost_session_ends_both_leases(session: Session) -> None:
    lock = ReadWriteLock(session, "book")
    writer, reader = lock.write.acquire(timeout=5), lock.read.acquire()
    session.close()
    for lease in (writer, reader):
        assert lease.lost.wait(5)
        with pytest.raises(LeaseLost):
            lease.release()
    assert not lock._tenures._by_owner


def test_a_hand_off_costs_a_reader_one_read(session: Session, other: Session) -> None:
    lock = ReadWriteLock(session, "book")
    writer = Lock(other, "book").acquire(timeout=5)
    sent: list[str] = []
    submit = session.link._connection.submit

    def spy(call: object) -> None:
        sent.append(call.what.split()[0])  # type: ignore[attr-defined]
        submit(call)

    session.link._connection.submit = spy
    future = lock.read.acquire_future(timeout=10)
    until(lambda: len(session.link.watches) == 1)
    writer.release()
    future.wait().release(timeout=5)
    assert sent == ["create", "children", "watch", "delete"]


def test_the_owner_is_the_task_in_asyncio(zookeeper: str) -> None:
    inside = {"read": 0, "write": 0}

    async def work(lock: ReadWriteLock, number: int) -> None:
        face = "read" if number % 3 else "write"
        async with getattr(lock, face).hold(timeout=30), lock.read.hold(timeout=30):
            inside[face] += 1
            assert inside["write"] == 0 or (inside["write"], inside["read"]) == (1, 0)
            await asyncio.sleep(0.001)
            inside[face] -= 1

    async def story() -> None:
        async with Session(zookeeper, timeout=10) as session:
            lock = ReadWriteLock(session, "book")
            await asyncio.gather(*(work(lock, number) for number in range(30)))

    asyncio.run(story())


def test_at_no_time_a_writer_beside_anybody(session: Session, other: Session) -> None:
    """Threads of two sessions read, write and downgrade at random."""
    mutex = threading.Lock()
    readers: set[int] = set()
    writers: set[int] = set()
    wrong: list[str] = []

    def note(change: Callable[[], object]) -> None:
        with mutex:
            change()
            if writers and (len(writers) > 1 or readers - writers):
                wrong.append(f"{writers} beside {readers}")

    def work(number: int) -> None:
        rng = random.Random(number)
        lock = ReadWriteLock((session, other)[number % 2], "book")
        for _ in range(12):
            if rng.random() < 0.5:
                with lock.read.hold(timeout=60):
                    note(lambda: readers.add(number))
                    note(lambda: readers.discard(number))
                continue
            with lock.write.hold(timeout=60):
                note(lambda: writers.add(number))
                downgraded = lock.read.acquire() if rng.random() < 0.5 else None
                if downgraded is not None:
                    note(lambda: readers.add(number))
                note(lambda: writers.discard(number))
            if downgraded is not None:
                note(lambda: readers.discard(number))
                downgraded.release()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive()
    assert wrong == []
    until(lambda: nothing_left(session) and nothing_left(other))
