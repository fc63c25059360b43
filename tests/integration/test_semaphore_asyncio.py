"""The semaphore in asyncio: the same objects, awaited."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from zkcoord.errors import AcquireTimeout
from zkcoord.recipes import PermitLease, Semaphore
from zkcoord.zk import Session


async def test_hold_await_cancel_and_try(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        semaphore = Semaphore(session, "jobs", 2)
        async with semaphore.hold(weight=2, timeout=5) as lease:
            assert lease.weight == 2

            async def want() -> PermitLease:
                return await semaphore.acquire_future(timeout=30)

            task = asyncio.create_task(want())
            while (await semaphore.standing_future()).waiting != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for timeout in (0, 0.1):
                with pytest.raises(AcquireTimeout):
                    await semaphore.acquire_future(timeout=timeout)
        assert await lease.release_future()
        assert (await semaphore.resize_future(3)).permits == 3
        await semaphore.forget_future()
        await session.nodes.sync_future()
        assert nothing_left_now(session)


def nothing_left_now(session: Session) -> bool:
    return len(session.link.watches) == 0 and session.ephemeral_bytes == 0


async def test_a_grant_that_comes_with_the_cancellation_is_given_back(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        semaphore = Semaphore(session, "jobs", 1)
        for pause in range(30):
            task = asyncio.create_task(semaphore.acquire_future(timeout=30)._await())
            await asyncio.sleep(pause * 0.0001)
            task.cancel()
            try:
                (await task).release()
            except asyncio.CancelledError:
                continue
        await (await semaphore.acquire_future(timeout=5)).release_future()
        await session.nodes.sync_future()
        assert nothing_left_now(session)


async def test_waiters_share_one_thread_and_keep_their_order(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        semaphore, order, inside = Semaphore(session, "jobs", 3), [], [0, 0]
        threads = threading.active_count()

        async def work(number: int) -> None:
            async with semaphore.hold(timeout=60):
                order.append(number)
                inside[0] += 1
                inside[1] = max(inside)
                await asyncio.sleep(0)
                inside[0] -= 1

        await asyncio.gather(*(work(number) for number in range(200)))
        assert order == list(range(200))
        assert inside[1] <= 3
        assert threading.active_count() == threads


async def test_blocking_forms_refuse_to_freeze_an_event_loop(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        semaphore = Semaphore(session, "jobs", 1)
        refused: list[tuple[Callable[[], object], str]] = [
            (semaphore.acquire, r"async with semaphore\.hold\(\)"),
            (semaphore.hold().__enter__, r"async with \.\.\.hold\(\)"),
            (lambda: semaphore.resize(2), "resize_future"),
            (semaphore.standing, "standing_future"),
            (semaphore.forget, "forget_future"),
        ]
        for call, instead in refused:
            with pytest.raises(RuntimeError, match=f"would block the event loop; use: .*{instead}"):
                call()
