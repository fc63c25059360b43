"""The reentrant lock, on a real server."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from zkcoord.errors import (
    AcquireTimeout,
    ConfigError,
    LeaseLost,
    NodeMissing,
    NotOwner,
    ReentryRefused,
)
from zkcoord.recipes import Lock, RLock
from zkcoord.zk import Session


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Any]]:
    """Runs a function on a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda call, *args: pool.submit(call, *args).result(30)


def waiting(session: Session) -> int:
    try:
        return len(session.nodes.children("/locks/gpu"))
    except NodeMissing:
        return 0


def test_the_owner_gets_the_same_lease_again_and_the_last_release_counts(session: Session) -> None:
    lock = RLock(session, "gpu")
    assert lock.depth == 0
    with lock.hold(timeout=5) as outer:
        with lock.hold(timeout=0) as inner:
            assert inner is outer
            assert lock.depth == 2
            assert waiting(session) == 1
        assert lock.depth == 1
        outer.check()
        assert lock.acquire().token == outer.token
        assert not outer.release(timeout=5)  # the inner one: still held
        outer.check()
    assert lock.depth == 0
    with pytest.raises(LeaseLost, match="released"):
        outer.check()
    assert outer.release(timeout=5)
    assert waiting(session) == 0


def test_another_thread_waits_and_gets_a_higher_token(
    session: Session, elsewhere: Callable[..., Any]
) -> None:
    lock = RLock(session, "gpu")
    first = lock.acquire(timeout=5)
    lock.acquire()
    with pytest.raises(AcquireTimeout):
        elsewhere(lock.acquire, 0.3)
    first.release()
    with pytest.raises(AcquireTimeout):  # still held once
        elsewhere(lock.acquire, 0)
    first.release()
    second = elsewhere(lock.acquire, 5)
    assert second.token > first.token
    elsewhere(second.release)


def test_only_the_owner_may_release(session: Session, elsewhere: Callable[..., Any]) -> None:
    lock = RLock(session, "gpu")
    lease = lock.acquire(timeout=5)
    with pytest.raises(NotOwner, match="another thread"):
        elsewhere(lease.release)
    lease.check()
    assert lock.depth == 1
    assert lease.release(timeout=5)
    assert elsewhere(lease.release)  # again: no effect


def test_a_new_thread_does_not_inherit_from_a_dead_one(session: Session) -> None:
    """Thread numbers are used again by the system; ownership must not be."""
    lock = RLock(session, "gpu")
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join(10)
    for _ in range(3):
        failures: list[BaseException] = []

        def ask(failures: list[BaseException] = failures) -> None:
            try:
                lock.acquire(timeout=0)
            except AcquireTimeout as error:
                failures.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(10)
        assert len(failures) == 1


def test_the_depth_has_a_bound(session: Session) -> None:
    lock = RLock(session, "gpu", depth_max=3)
    for _ in range(3):
        lease = lock.acquire(timeout=5)
    with pytest.raises(ReentryRefused, match="held 3 times"):
        lock.acquire()
    assert lock.depth == 3
    lease.release()
    lock.acquire()
    for bad in (0, -1, 1.5, 10**7):
        with pytest.raises(ConfigError):
            RLock(session, "gpu", depth_max=bad)  # type: ignore[arg-type]


def test_one_owner_cannot_wait_twice(session: Session) -> None:
    held = Lock(session, "gpu").acquire(timeout=5)
    lock = RLock(session, "gpu")
    first = lock.acquire_future(timeout=30)
    with pytest.raises(ReentryRefused, match="waits for it already"):
        lock.acquire_future()
    assert first.cancel()
    second = lock.acquire_future(timeout=30)
    held.release()
    second.wait().release(timeout=5)


def test_a_failed_or_refused_request_leaves_no_hold(session: Session) -> None:
    held = Lock(session, "gpu").acquire(timeout=5)
    lock = RLock(session, "gpu")
    with pytest.raises(AcquireTimeout):
        lock.acquire(timeout=0.1)
    with pytest.raises(ConfigError):
        lock.acquire(timeout=-1)
    held.release()
    lock.acquire(timeout=5).release(timeout=5)
    assert not lock._tenures._by_owner


def test_a_lost_hold_must_be_left_before_it_is_asked_for_again(session: Session) -> None:
    lock = RLock(session, "gpu")
    lease = lock.acquire(timeout=5)
    lock.acquire()
    session.close()
    assert lease.lost.wait(5)
    with pytest.raises(LeaseLost, match="session"):
        lock.acquire()
    for _ in range(2):
        with pytest.raises(LeaseLost):
            lease.release()
    assert lock.depth == 0
    assert not lock._tenures._by_owner


def test_the_owner_is_the_task_in_asyncio(zookeeper: str) -> None:
    async def story() -> list[int]:
        order: list[int] = []
        async with Session(zookeeper, timeout=10) as session:
            lock = RLock(session, "gpu")

            async def work(number: int) -> None:
                async with lock.hold(timeout=20) as outer, lock.hold(timeout=20) as inner:
                    assert inner is outer
                    order.append(number)
                    await asyncio.sleep(0)
                    assert lock.depth == 2
                    order.append(number)

            await asyncio.gather(*(work(number) for number in range(5)))
            async with lock.hold(timeout=5) as lease:
                with pytest.raises(NotOwner):
                    await asyncio.create_task(release(lease))
                # Who asked counts, not who awaits.
                assert await asyncio.wait_for(lock.acquire_future(timeout=0), 5) is lease
                lease.release()
                with pytest.raises(AcquireTimeout):
                    await asyncio.create_task(other(lock))
        return order

    async def release(lease: Any) -> None:
        lease.release()

    async def other(lock: RLock) -> None:
        await lock.acquire_future(timeout=0)

    order = asyncio.run(story())
    assert order == [number for number in sorted(set(order)) for _ in range(2)]


def test_a_cancelled_wait_for_a_hold_gives_that_hold_back(zookeeper: str) -> None:
    async def story() -> None:
        async with Session(zookeeper, timeout=10) as session:
            lock = RLock(session, "gpu")

            async def enter() -> None:
                lease = await lock.acquire_future(timeout=5)
                again = lock.acquire_future()
                asyncio.current_task().cancel()  # type: ignore[union-attr]
                try:
                    await again
                except asyncio.CancelledError:
                    assert lock.depth == 1
                    await lease.release_future()

            await asyncio.create_task(enter())
            assert not lock._tenures._by_owner
            lease = await lock.acquire_future(timeout=5)
            lease.release()

    asyncio.run(story())


def test_a_second_release_undoes_the_outer_hold_and_one_beyond_the_last_nothing(
    session: Session, other: Session
) -> None:
    lock = RLock(session, "gpu")
    lease = lock.acquire(timeout=5)
    assert lock.acquire() is lease
    assert not lease.release(timeout=5)
    assert lock.depth == 1
    assert lease.release(timeout=5)
    assert lock.depth == 0
    next_lease = lock.acquire(timeout=5)
    assert lease.release(timeout=5)  # of the hold that is over: nothing happens to the new one
    next_lease.check()
    assert lock.depth == 1
    with pytest.raises(AcquireTimeout):
        Lock(other, "gpu").acquire(timeout=0)
    next_lease.release(timeout=5)
