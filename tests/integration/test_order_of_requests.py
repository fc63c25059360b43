"""Requests of one session are granted in the order in which they were made, from the first on.

The folder does not exist at first, so the first creates are refused and sent again, while others
are being asked for in another thread.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from zkcoord.recipes import Lock, MultiLock, ReadWriteLock, Semaphore
from zkcoord.zk import Promise, Session

ASKED = 600
WAIT_S = 60.0

Ask = Callable[[], Promise[Any]]


@pytest.fixture
def session(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper) as session:
        yield session


def recipes(session: Session, number: int) -> dict[str, Ask]:
    lock = Lock(session, f"lock-{number}")
    both = MultiLock(session, [f"one-{number}", f"two-{number}"])
    permit = Semaphore(session, f"permit-{number}", permits=1)
    return {
        "lock": lambda: lock.acquire_future(WAIT_S),
        "multilock": lambda: both.acquire_future(WAIT_S),
        "semaphore": lambda: permit.acquire_future(timeout=WAIT_S),
    }


@pytest.mark.parametrize("kind", ["lock", "multilock", "semaphore"])
def test_a_crowd_of_one_thread_is_served_in_order(session: Session, kind: str) -> None:
    asked = ASKED if kind == "lock" else ASKED // 4
    for number in range(3):
        ask = recipes(session, number)[kind]
        granted: list[int] = []
        done = threading.Event()

        def note(promise: Promise[Any], index: int, granted: list[int] = granted) -> None:
            granted.append(index)
            promise.result().release()
            if len(granted) == asked:
                done.set()  # noqa: B023 - of this round: it is waited for below

        for index in range(asked):
            promise = ask()
            promise.on_done(partial(note, promise, index))
        assert done.wait(WAIT_S), f"{len(granted)} of {asked} were granted"
        assert granted == list(range(asked))


async def test_a_crowd_of_tasks_is_served_in_order(session: Session) -> None:
    for number in range(3):
        write = ReadWriteLock(session, f"write-{number}").write
        granted: list[int] = []

        async def one(index: int, granted: list[int] = granted) -> None:
            async with write.hold(timeout=WAIT_S):  # noqa: B023 - of this round
                granted.append(index)

        await asyncio.gather(*[one(index) for index in range(ASKED)])
        assert granted == list(range(ASKED))
