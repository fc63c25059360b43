"""What the recipes cost, counted on the wire: requests, flights, writes, events, bytes.

A relay between client and a real server counts frames. A *flight* is what is sent without waiting
for an answer: the relay holds the answers back until it is seen.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from frame_relay import Frame, FrameRelay

from tests import waiting
from zkcoord.errors import AcquireTimeout
from zkcoord.recipes import Lease, Lock, MultiLock, ReadWriteLock, RLock, Semaphore
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise

DELETE, EXISTS, GET, SET, CHILDREN, MULTI, CREATE, UNWATCH = 2, 3, 4, 5, 8, 14, 15, 18
READS = {EXISTS, GET, CHILDREN}
EVENT_XID = -1

Ask = Callable[[Session, str], Callable[[float | None], Promise[Any]]]


until = partial(waiting.until, seconds=20.0)


class Meter:
    """A session behind a relay that counts, and can hold the answers back."""

    def __init__(self, relay: FrameRelay, session: Session, chroot: str) -> None:
        self.relay = relay
        self.session = session
        self.root = chroot
        self._open = threading.Event()
        self._open.set()
        relay.down = self._down

    def _down(self, frame: Frame) -> bytes | None:
        self._open.wait(20)
        return frame.body

    def reset(self) -> None:
        """Count from here. Nothing is on its way when a later answer has come."""
        self.session.nodes.exists("/")
        self.relay.sent.clear()
        self.relay.received.clear()

    def asked(self) -> list[int]:
        """Opcodes of the requests so far."""
        return [frame.opcode for frame in self.relay.requests()]

    def events(self) -> int:
        return sum(frame.xid == EVENT_XID for frame in list(self.relay.received))

    def carried(self) -> int:
        """Bytes in both directions, with the length in front of each frame."""
        frames = [*self.relay.sent, *self.relay.received]
        return sum(4 + len(frame.body) for frame in frames if frame.number)

    @contextmanager
    def one_flight(self, *opcodes: int) -> Iterator[None]:
        """Inside, exactly these requests are sent before any answer comes."""
        before = len(self.asked())
        self._open.clear()
        try:
            yield
            until(lambda: len(self.asked()) - before >= len(opcodes))
            assert Counter(self.asked()[before:]) == Counter(opcodes)
        finally:
            self._open.set()


@pytest.fixture
def meter(zookeeper: str) -> Iterator[Meter]:
    chroot = "/" + zookeeper.split("/")[1]
    with (
        FrameRelay(zookeeper) as relay,
        Session(relay.address, timeout=20, name="metered") as session,
    ):
        yield Meter(relay, session, chroot)


@pytest.fixture
def other(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper.split("/", maxsplit=1)[0], timeout=20, name="other") as session:
        yield session


def lock(session: Session, root: str) -> Callable[[float | None], Promise[Any]]:
    return Lock(session, "gpu", root=root + "/locks").acquire_future


def rlock(session: Session, root: str) -> Callable[[float | None], Promise[Any]]:
    return RLock(session, "gpu", root=root + "/locks").acquire_future


def reader(session: Session, root: str) -> Callable[[float | None], Promise[Any]]:
    return ReadWriteLock(session, "gpu", root=root + "/locks").read.acquire_future


def writer(session: Session, root: str) -> Callable[[float | None], Promise[Any]]:
    return ReadWriteLock(session, "gpu", root=root + "/locks").write.acquire_future


def permit(session: Session, root: str) -> Callable[[float | None], Promise[Any]]:
    semaphore = Semaphore(session, "gpu", permits=1, root=root + "/semaphores")
    return lambda timeout: semaphore.acquire_future(1, timeout)


def pair(session: Session, root: str) -> Callable[[float | None], Promise[Any]]:
    return MultiLock(session, ["gpu", "cpu"], root=root + "/locks").acquire_future


ENTERING = {
    "lock": (lock, [CREATE], [DELETE]),
    "rlock": (rlock, [CREATE], [DELETE]),
    "reader": (reader, [CREATE, CHILDREN], [DELETE]),
    "writer": (writer, [CREATE], [DELETE]),
    "permit": (permit, [CREATE, CHILDREN, GET], [DELETE]),
    "multilock": (pair, [MULTI, CHILDREN, CHILDREN], [MULTI]),
}


@pytest.mark.parametrize("kind", ENTERING)
def test_acquire_and_release_are_two_flights(meter: Meter, kind: str) -> None:
    ask, entering, leaving = ENTERING[kind]
    acquire = ask(meter.session, meter.root)
    acquire(10).wait().release(timeout=10)  # the folder is there from now on
    meter.reset()
    with meter.one_flight(*entering):
        promise = acquire(10)
    lease: Lease = promise.wait()
    lease.check()
    extra = Counter(meter.asked()) - Counter(entering)
    assert set(extra) <= ({EXISTS} if kind == "multilock" else set())  # its nodes are watched
    meter.reset()
    lease.release(timeout=10)
    meter.session.nodes.exists("/")
    assert [code for code in meter.asked() if code not in {EXISTS, UNWATCH}] == leaving


def test_who_held_last_lists_only_when_others_came_meanwhile(meter: Meter, other: Session) -> None:
    acquire, theirs = lock(meter.session, meter.root), lock(other, meter.root)

    def asked() -> list[int]:
        meter.reset()
        acquire(10).wait().release(timeout=10)
        return meter.asked()

    assert asked()[-2:] == [CREATE, DELETE]  # the first number tells it all
    assert asked() == [CREATE, DELETE]
    theirs(10).wait().release(timeout=10)
    assert asked() == [CREATE, CHILDREN, DELETE]  # in two flights, this once
    assert asked() == [CREATE, CHILDREN, DELETE]  # in one
    assert asked() == [CREATE, DELETE]


def test_another_hold_of_the_same_owner_costs_nothing(meter: Meter) -> None:
    again = RLock(meter.session, "gpu", root=meter.root + "/locks")
    first = again.acquire(timeout=10)
    meter.reset()
    second = again.acquire(timeout=10)
    second.release()
    assert meter.asked() == []
    first.release(timeout=10)


@pytest.mark.parametrize("kind", ENTERING)
def test_a_failed_try_writes_nothing(meter: Meter, other: Session, kind: str) -> None:
    ask = ENTERING[kind][0]
    block = writer if kind == "reader" else ask
    held = block(other, meter.root)(10).wait()
    meter.reset()
    with pytest.raises(AcquireTimeout):
        ask(meter.session, meter.root)(0).wait()
    meter.session.nodes.exists("/")
    asked = meter.asked()[:-1]
    assert set(asked) <= READS
    assert len(asked) <= 3
    held.release(timeout=10)


@pytest.mark.parametrize("kind", ENTERING)
def test_a_hand_off_is_one_event_and_at_most_one_read(
    meter: Meter, other: Session, kind: str
) -> None:
    ask = ENTERING[kind][0]
    block = writer if kind == "reader" else ask
    held = block(other, meter.root)(10).wait()
    waiting = ask(meter.session, meter.root)(20)
    watched = 2 if kind in {"multilock", "permit"} else 1  # both queues; the limit
    until(lambda: len(meter.session.link.watches) == watched)
    meter.reset()
    held.release(timeout=10)
    lease = waiting.wait()
    meter.session.nodes.exists("/")  # all that was sent before is seen
    asked = [code for code in meter.asked()[:-1] if code != UNWATCH]
    if kind == "permit":  # it tells the next one that now that one is the first to wait
        assert asked.pop() == SET
    assert set(asked) <= READS
    assert len(asked) <= (2 if kind == "multilock" else 1)
    assert meter.events() == (2 if kind == "multilock" else 1)
    lease.release(timeout=10)


def test_who_waits_behind_a_waiter_that_gives_up_lists_once(meter: Meter, other: Session) -> None:
    held = lock(other, meter.root)(10).wait()
    middle = lock(other, meter.root)(None)
    until(lambda: len(other.nodes.children(f"{meter.root}/locks/gpu")) == 2)
    last = lock(meter.session, meter.root)(20)
    until(lambda: len(meter.session.link.watches) == 1)
    meter.reset()
    assert middle.cancel()
    until(lambda: len(meter.asked()) >= 2)
    meter.session.nodes.exists("/")
    assert meter.asked()[:-1] == [CHILDREN, EXISTS]
    held.release(timeout=10)
    last.wait().release(timeout=10)


def blip(meter: Meter, waiters: int) -> tuple[int, int]:
    """So many waiters and one dropped link, then they drain: bytes of blip and of the rest."""
    acquire = lock(meter.session, meter.root)
    held = acquire(10).wait()
    futures = [acquire(120) for _ in range(waiters)]
    until(lambda: len(meter.session.link.watches) == waiters, seconds=60)
    meter.reset()
    session = meter.session.id
    meter.relay.cut()
    until(
        lambda: len(meter.asked()) >= waiters and len(meter.session.link.watches) == waiters,
        seconds=60,
    )
    assert meter.asked() == [EXISTS] * waiters
    assert meter.session.id == session
    of_blip = meter.carried()
    meter.reset()
    tokens = []
    for future in [held, *(future for future in futures)]:
        lease = future if future is held else future.wait()
        tokens.append(lease.token)
        lease.release()
    until(lambda: meter.session.ephemeral_bytes == 0)
    meter.session.nodes.exists("/")
    assert tokens == sorted(tokens)
    asked = Counter(meter.asked())
    assert meter.events() == waiters
    assert asked.pop(DELETE) == waiters + 1
    assert asked.pop(EXISTS) == 1  # the one above
    assert not asked
    return of_blip, meter.carried()


def test_a_blip_and_a_drain_cost_each_waiter_the_same_however_many_wait(meter: Meter) -> None:
    few, many = 50, 500
    small = blip(meter, few)
    large = blip(meter, many)
    for before, after in zip(small, large, strict=True):
        assert after / many < 1.3 * before / few
    assert large[0] / many < 400
    assert large[1] / many < 400
