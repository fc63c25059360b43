"""The fair lock in asyncio: the same objects, awaited."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from zkcoord.errors import AcquireTimeout
from zkcoord.recipes import Election, Lease, Lock, Membership, contenders
from zkcoord.zk import Session


async def test_asyncio_hold_await_and_cancel(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        lock = Lock(session, "gpu")
        async with lock.hold(timeout=5) as lease:
            lease.check()

            async def want() -> Lease:
                return await lock.acquire_future(timeout=30)

            task = asyncio.create_task(want())
            while len(await session.nodes.children_future("/locks/gpu")) != 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(AcquireTimeout):
                await lock.acquire_future(timeout=0.1)
        async with await lock.acquire_future(timeout=5) as lease:
            lease.check()
        assert await lease.release_future()
        await session.nodes.sync_future()
        assert nothing_left_now(session)


def nothing_left_now(session: Session) -> bool:
    return len(session.link.watches) == 0 and session.ephemeral_bytes == 0


async def test_a_grant_that_comes_with_the_cancellation_is_given_back(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        lock = Lock(session, "gpu")
        for pause in range(30):
            task = asyncio.create_task(lock.acquire_future(timeout=30)._await())
            await asyncio.sleep(pause * 0.0001)
            task.cancel()
            try:
                (await task).release()
            except asyncio.CancelledError:
                continue
        await (await lock.acquire_future(timeout=5)).release_future()
        assert nothing_left_now(session)


async def test_asyncio_waiters_share_one_thread(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        lock, order = Lock(session, "gpu"), []
        threads = threading.active_count()

        async def work(number: int) -> None:
            async with lock.hold(timeout=60):
                order.append(number)

        await asyncio.gather(*(work(number) for number in range(200)))
        assert order == list(range(200))
        assert threading.active_count() == threads


async def test_blocking_forms_refuse_to_freeze_an_event_loop(zookeeper: str) -> None:
    with pytest.raises(RuntimeError, match=r"use: async with Session"), Session(zookeeper):
        pass
    async with Session(zookeeper, timeout=10) as session:
        lock, election = Lock(session, "gpu"), Election(session, "boss")
        group, nodes = Membership(session, "/group"), session.nodes
        member = await group.join_future("a")
        lease = await lock.acquire_future(timeout=5)
        refused: list[tuple[Callable[[], object], str]] = [
            (session.start, "async with Session"),
            (lock.acquire, r"async with lock\.hold\(\)"),
            (lambda: lock.acquire(timeout=0), r"await lock\.acquire_future"),
            (lock.hold().__enter__, r"async with \.\.\.hold\(\)"),
            (election.campaign, r"async with election\.lead\(\)"),
            (election.lead().__enter__, r"async with"),
            (election.leader, "leader_future"),
            (lambda: group.join("b"), "join_future"),
            (group.members, "members_future"),
            (lambda: member.update(b"1"), "update_future"),
            (lambda: lease.release(timeout=1), "release_future"),
            (lambda: contenders(session, "gpu"), "contenders_future"),
            (lambda: nodes.create("/x"), r"await nodes\.create_future"),
            (lambda: nodes.get("/x"), "get_future"),
            (lambda: nodes.set("/x", b""), "set_future"),
            (lambda: nodes.delete("/x"), "delete_future"),
            (lambda: nodes.exists("/x"), "exists_future"),
            (lambda: nodes.children("/x"), "children_future"),
            (nodes.sync, "sync_future"),
            (nodes.transaction().create("/x").commit, "commit_future"),
        ]
        for call, instead in refused:
            with pytest.raises(RuntimeError, match=f"would block the event loop; use: .*{instead}"):
                call()
        lease.check()  # a refused release has released nothing
        assert lease.release() in (True, False)  # without waiting it is welcome
        async with lock.hold(timeout=5):
            pass
        assert await nodes.exists_future("/x") is None
