"""The sequence of a folder's nodes at the end of its range, on a real server.

Two thousand million creates take weeks, so the folder's counter is set in the server's snapshot.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path

import pytest

from zkcoord.errors import AcquireTimeout
from zkcoord.local import Stack
from zkcoord.recipes import Lock, MultiLock, Pool, Semaphore
from zkcoord.zk import Session

FOLDER = "/locks/gpu"
_SEAL = b"\0\0\0\x01/"  # what follows each checksum: the text "/"


def set_counter(snapshot: Path, path: str, value: int) -> None:
    """Change a node's child counter, and the checksums behind it.

    Source: ``FileSnap``, ``SnapStream`` and ``StatPersisted`` of Apache ZooKeeper 3.9.
    """
    data = bytearray(snapshot.read_bytes())
    seals = [
        at
        for at in range(len(data) - 12)
        if data[at + 8 : at + 13] == _SEAL
        and int.from_bytes(data[at : at + 8], "big") == zlib.adler32(data[:at])
    ]
    assert seals
    name = struct.pack("!i", len(path)) + path.encode()
    at = data.index(name) + len(name)
    (size,) = struct.unpack_from("!i", data, at)
    at += 4 + max(0, size) + 8 + 4 * 8 + 4  # value, ACL, four longs, version
    struct.pack_into("!i", data, at, value)
    for seal in seals:
        struct.pack_into("!q", data, seal, zlib.adler32(data[:seal]))
    snapshot.write_bytes(data)


@pytest.fixture
def near_the_end() -> Iterator[str]:
    """A server whose folders have three sequences left: of a lock, of one with a delay, of a
    semaphore that was resized and of a pool that was added to."""
    with Stack(zookeepers=1, brokers=0) as stack:
        server = stack.zookeepers[0]
        with Session(stack.zookeeper, timeout=20) as session:
            Lock(session, "gpu").acquire(timeout=10).release(timeout=10)
            Semaphore(session, "jobs", permits=1).acquire(timeout=10).release(timeout=10)
            Semaphore(session, "jobs").resize(2)
            Pool(session, "gpus", ["gpu-0"]).acquire(timeout=10).release(timeout=10)
            Pool(session, "gpus").add("gpu-1")
            Lock(session, "slow", lock_delay=0.5).acquire(timeout=10)  # not released
        server.restart()  # takes a snapshot
        server.stop()
        snapshots = sorted(
            (server.folder / "data" / "version-2").glob("snapshot.*"),
            key=lambda found: int(found.suffix[1:], 16),
        )
        for folder in (FOLDER, "/semaphores/jobs", "/pools/gpus", "/locks/slow"):
            set_counter(snapshots[-1], folder, 2**31 - 4)
        server.start()
        yield stack.zookeeper


def test_one_holds_and_all_get_in_when_the_counter_is_used_up(near_the_end: str) -> None:
    """The server gives out its last number again and again; the folder has to count anew."""
    with (
        Session(near_the_end, timeout=20, name="one") as one,
        Session(near_the_end, timeout=20, name="two") as two,
    ):
        waiting = []
        for number in range(12):
            session = (one, two)[number % 2]
            waiting.append(Lock(session, "gpu").acquire_future(timeout=120))
            session.nodes.sync()  # so that creates of both come in this order
        tokens, order = [], []
        while waiting:
            done, _ = wait(waiting, timeout=60, return_when=FIRST_COMPLETED)
            (future,) = done  # never two at once
            lease = future.result()
            lease.check()
            tokens.append(lease.token)
            order.append(int(lease.path.rpartition(".")[2]))
            waiting.remove(future)
            lease.release(timeout=10)
        assert tokens == sorted(tokens)
        assert order[:3] == [2**31 - 4, 2**31 - 3, 2**31 - 2]
        assert order[3:] == sorted(order[3:])
        assert order[-1] < 100


def test_several_locks_and_permits_get_in_too(near_the_end: str) -> None:
    with Session(near_the_end, timeout=20) as session:
        for _ in range(3):
            Lock(session, "gpu").acquire(timeout=20).release(timeout=10)
        both = MultiLock(session, ["gpu", "cpu"])
        with both.hold(timeout=60) as lease:
            lease.check()
            with pytest.raises(AcquireTimeout):
                Lock(session, "gpu").acquire(timeout=0)
        Lock(session, "gpu").acquire(timeout=60).release(timeout=10)


def test_folders_that_are_never_empty_count_anew_and_keep_what_they_say(near_the_end: str) -> None:
    """A limit that was resized, slots that were added, the mark of a holder that was lost."""
    with Session(near_the_end, timeout=20) as session:
        semaphore, pool = Semaphore(session, "jobs"), Pool(session, "gpus")
        delayed = Lock(session, "slow", lock_delay=0.5)
        for _ in range(6):
            semaphore.acquire(2, timeout=60).release(timeout=10)
            pool.acquire(timeout=60).release(timeout=10)
            delayed.acquire(timeout=60).release(timeout=10)
        assert semaphore.standing().permits == 2
        assert [one.slot for one in pool.standing().slots] == ["gpu-0", "gpu-1"]
        lease = pool.acquire(timeout=10)
        lease.check()
        lease.release(timeout=10)
        for folder in ("/semaphores/jobs", "/pools/gpus", "/locks/slow"):
            stat = session.nodes.exists(folder)
            assert stat is None or 0 <= stat.cversion < 100
