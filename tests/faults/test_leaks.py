"""Thousands of acquisitions that succeed, time out or are given up leave nothing behind.

``ZKCOORD_LEAK_LOOPS=100000 pytest tests/faults/test_leaks.py`` soaks for longer.
"""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from zkcoord.errors import AcquireTimeout, NodeMissing
from zkcoord.recipes import Lock, MultiLock, ReadWriteLock, Semaphore
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise

LOOPS = int(os.environ.get("ZKCOORD_LEAK_LOOPS", "3000"))
BATCH = 50
GROWTH_MAX = 8 << 20
TIMERS_MAX = 1200  # those that are cancelled are thrown out a thousand at a time

Acquire = Callable[[float | None], Promise[Any]]


until = partial(waiting.until, seconds=20.0)


def four_letters(zookeeper: str, word: bytes) -> str:
    host, port = zookeeper.split("/", maxsplit=1)[0].rsplit(":", 1)
    answer = b""
    with socket.create_connection((host, int(port)), 5) as link:
        link.sendall(word)
        while piece := link.recv(65536):
            answer += piece
    return answer.decode()


def watches(zookeeper: str) -> list[str]:
    """Paths of the test that somebody watches, as the server tells."""
    chroot = "/" + zookeeper.split("/")[1]
    return [line for line in four_letters(zookeeper, b"wchp").splitlines() if chroot in line]


def objects() -> Counter[str]:
    """How many objects of zkcoord's own types there are."""
    gc.collect()
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in map(type, gc.get_objects())
        if str(kind.__module__).startswith("zkcoord")  # of some it is a descriptor
    )


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def session(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, timeout=20, name="one") as session:
        yield session


@pytest.fixture
def other(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, timeout=20, name="two") as session:
        yield session


def lock(session: Session) -> Acquire:
    return Lock(session, "gpu").acquire_future


def writer(session: Session) -> Acquire:
    """A lock object each: one that is reentrant takes its owner's requests for one."""
    return lambda timeout: ReadWriteLock(session, "gpu").write.acquire_future(timeout)  # noqa: PLW0108


def reader(session: Session) -> Acquire:
    return lambda timeout: ReadWriteLock(session, "gpu").read.acquire_future(timeout)  # noqa: PLW0108


def permit(session: Session) -> Acquire:
    semaphore = Semaphore(session, "gpu", permits=1)
    return lambda timeout: semaphore.acquire_future(1, timeout)


def pair(session: Session) -> Acquire:
    return MultiLock(session, ["gpu", "cpu"]).acquire_future


KINDS = {
    "lock": (lock, lock, "/locks/gpu", LOOPS),
    "writer": (writer, writer, "/locks/gpu", LOOPS // 4),
    "reader": (reader, writer, "/locks/gpu", LOOPS // 4),
    "permit": (permit, permit, "/semaphores/gpu", LOOPS // 4),
    "multilock": (pair, lock, "/locks/gpu", LOOPS // 4),
}


def granted(acquire: Acquire) -> None:
    """A line of requests that pass it on to each other."""
    for future in [acquire(60) for _ in range(BATCH)]:
        future.wait().release()


def too_late(acquire: Acquire) -> None:
    """Requests whose deadline comes first: some in the line, some before they are in it."""
    for future in [acquire(0.001 * (number % 5)) for number in range(BATCH)]:
        with pytest.raises(AcquireTimeout):
            future.wait()


def given_up(acquire: Acquire) -> None:
    """Requests that are cancelled: some at once, some in the line."""
    futures = [acquire(None) for _ in range(BATCH)]
    for future in futures[::2]:
        assert future.cancel()
    for future in futures[1::2]:
        assert future.cancel()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_grows(zookeeper: str, session: Session, other: Session, kind: str) -> None:
    wish, block, folder, loops = KINDS[kind]
    link = session.link

    def queue() -> int:
        try:
            return len(other.nodes.children(folder))
        except NodeMissing:
            return 0

    def work(times: int) -> None:
        """One holder elsewhere and many that cannot get in; then many that can."""
        for _ in range(times):
            acquire = wish(session)
            held = block(other)(20).wait()
            too_late(acquire)
            given_up(acquire)
            held.release(timeout=20)
            granted(acquire)
        until(lambda: session.ephemeral_bytes == 0 and len(link.watches) == 0 and queue() == 0)
        session.nodes.sync()
        other.nodes.sync()

    work(3)
    threads, known, size = threading.active_count(), objects(), resident()
    work(max(1, loops // (3 * BATCH)))
    assert watches(zookeeper) == []
    assert threading.active_count() == threads
    epoch = link.epoch
    assert epoch is not None
    assert not epoch._members
    assert not epoch.successors
    assert not epoch.leaving
    assert not epoch._paths
    assert not link.folders._gates
    more = objects() - known
    assert more.pop("zkcoord.zk.loop.Timer", 0) < TIMERS_MAX
    assert sum(more.values()) < 20, more
    grown = resident() - size
    print(f"{kind}: {loops} requests, {grown >> 10} KiB more")  # seen with -s
    assert grown < GROWTH_MAX
