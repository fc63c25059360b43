"""A crowd of one session lists its queue a few times, not once each; order and safety stay."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

from tests.faults.frame_relay import FrameRelay
from zkcoord import AcquireTimeout, Lease, LeaseLost, Lock, Session
from zkcoord.zk.promise import Promise

CREATE, EXISTS, CHILDREN = 15, 3, 8


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def count(relay: FrameRelay, opcode: int) -> int:
    return sum(frame.opcode == opcode for frame in relay.requests())


def drain(futures: list[Promise[Lease]]) -> list[int]:
    """Release each once it is granted; the tokens in the order of grants."""
    order: list[int] = []

    def granted(future: Promise[Lease]) -> Callable[[], None]:
        def release() -> None:
            order.append(future.result().token)
            future.result().release()

        return release

    for future in futures:
        future.on_done(granted(future))
    until(lambda: len(order) == len(futures), "all get in")
    return order


@pytest.mark.parametrize("folder", ["is there", "is missing"])
def test_a_crowd_needs_a_listing_or_two(zookeeper: str, folder: str) -> None:
    address, _, chroot = zookeeper.partition("/")
    with FrameRelay(address) as relay, Session(f"{relay.address}/{chroot}") as session:
        lock = Lock(session, "crowd")
        if folder == "is there":
            lock.acquire(timeout=10).release(timeout=10)
        relay.sent.clear()
        futures = [lock.acquire_future(30) for _ in range(300)]
        until(lambda: len(session.link.watches) >= 299, "all but the holder wait")
        assert count(relay, CHILDREN) <= 5
        tokens = drain(futures)
        assert tokens == sorted(tokens)
        assert len(tokens) == 300
        assert count(relay, CHILDREN) <= 6
        assert count(relay, EXISTS) == 299
        assert not session.link.epoch.queues  # type: ignore[union-attr]


def test_two_crowds_take_turns_in_the_order_of_request(zookeeper: str) -> None:
    with Session(zookeeper) as one, Session(zookeeper) as two:
        locks = itertools.cycle((Lock(one, "both"), Lock(two, "both")))
        holder = next(locks).acquire(timeout=10)
        futures = [next(locks).acquire_future(30) for _ in range(60)]
        until(lambda: len(one.link.watches) + len(two.link.watches) == 60, "all wait")
        holder.release()
        tokens = drain(futures)
        assert tokens == sorted(tokens)


def test_waiters_that_leave_in_the_middle_let_nobody_in_early(zookeeper: str) -> None:
    with Session(zookeeper) as session:
        lock = Lock(session, "leavers")
        holder = lock.acquire(timeout=10)
        futures = [lock.acquire_future(30) for _ in range(30)]
        until(lambda: len(session.link.watches) == 30, "all wait")
        for future in futures[::2]:
            future.cancel()
        until(lambda: len(session.nodes.children("/locks/leavers")) == 16, "they are gone")
        late = lock.acquire_future(30)
        with pytest.raises(AcquireTimeout):
            lock.acquire(timeout=0.3)
        assert not any(future.done() for future in [*futures[1::2], late])
        holder.release()
        tokens = drain([*futures[1::2], late])
        assert tokens == sorted(tokens)
        until(lambda: not session.nodes.children("/locks/leavers"), "nothing is left")
        assert not session.link.watches
        assert not session.link.epoch.queues  # type: ignore[union-attr]


def test_a_folder_that_was_made_anew_lets_nobody_in_early(zookeeper: str) -> None:
    """The new folder counts from 0, and our next node may get the number that would have been."""
    with Session(zookeeper) as session, Session(zookeeper) as other:
        lock = Lock(session, "anew")
        theirs = Lock(other, "anew")
        holder = theirs.acquire(timeout=10)  # 0
        between = theirs.acquire_future(30)  # 1
        until(lambda: len(other.link.watches) == 1, "it waits")
        waiter = lock.acquire_future(30)  # 2, and 3 would be next
        until(lambda: len(session.link.watches) == 1, "it waits")
        wipe = other.nodes.transaction()
        for node in other.nodes.children("/locks/anew"):
            wipe.delete(f"/locks/anew/{node}")
        wipe.delete("/locks/anew")
        wipe.create("/locks/anew", b"")
        for number in range(3):
            wipe.create(f"/locks/anew/xAAAAAAAAAAA.0.000000000{number}", b"")
        wipe.commit()
        with pytest.raises(LeaseLost):
            waiter.result(10)
        with pytest.raises(AcquireTimeout):
            lock.acquire(timeout=1)
        assert holder
        assert between
