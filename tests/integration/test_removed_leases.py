"""Leases whose nodes are removed by hand: every holder is told, and short holds cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests import waiting
from tests.faults.frame_relay import FrameRelay
from zkcoord.errors import LeaseLost
from zkcoord.recipes import (
    DoubleBarrier,
    Election,
    Lease,
    Lock,
    Membership,
    MultiLock,
    Pool,
    ReadWriteLock,
    RLock,
    Semaphore,
    break_lock,
)
from zkcoord.zk import Session

EXISTS = 3


until = partial(waiting.until, seconds=20.0)


@pytest.fixture
def operator(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, timeout=10, name="operator") as session:
        yield session


@pytest.fixture
def holder(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, timeout=4, name="holder") as session:
        yield session


def downgraded(session: Session) -> Lease:
    lock = ReadWriteLock(session, "downgraded")
    writer = lock.write.acquire(5)
    reader = lock.read.acquire(5)
    writer.release()
    return reader


HOLDING: dict[str, Callable[[Session], Lease]] = {
    "lock": lambda s: Lock(s, "plain").acquire(5),
    "handed on": lambda s: Lock(s, "shared", local_handoffs=3).acquire(5),
    "kazoo": lambda s: Lock(s, "kazoo", layout="kazoo").acquire(5),
    "rlock": lambda s: RLock(s, "again").acquire(5),
    "reader": lambda s: ReadWriteLock(s, "read").read.acquire(5),
    "writer": lambda s: ReadWriteLock(s, "write").write.acquire(5),
    "downgraded": downgraded,
    "permit": lambda s: Semaphore(s, "some", permits=2).acquire(1, 5),
    "slot": lambda s: Pool(s, "gpus", slots=["a", "b"]).acquire(5),
    "several": lambda s: MultiLock(s, ["one", "two"]).acquire(5),
    "leader": lambda s: Election(s, "boss").campaign(5),
    "member": lambda s: Membership(s, "/fleet").join("me"),
    "participant": lambda s: DoubleBarrier(s, "start", size=1).enter(5),
}


def test_every_holder_hears_that_its_node_was_removed(operator: Session, holder: Session) -> None:
    leases = {kind: hold(holder) for kind, hold in HOLDING.items()}
    told: list[str] = []
    for kind, lease in leases.items():
        lease.on_lost(lambda kind=kind: told.append(kind))
    for lease in leases.values():
        operator.nodes.delete(lease.path)
    until(lambda: len(told) == len(leases))
    assert sorted(told) == sorted(leases)
    for lease in leases.values():
        assert lease.lost.is_set()
        assert not lease.held
        with pytest.raises(LeaseLost) as caught:
            lease.check()
        assert caught.value.reason == "removed"
    until(lambda: holder.ephemeral_bytes == 0 and len(holder.link.watches) == 0)


def test_a_lock_that_is_broken_is_lost_to_a_holder_that_does_not_listen(
    operator: Session, holder: Session
) -> None:
    lease = Lock(holder, "gpu").acquire(5)
    until(lambda: len(holder.link.watches) == 1)
    break_lock(operator, "gpu", lease.token, "hangs")
    assert lease.lost.wait(10)


def test_another_node_of_the_same_name_is_not_ours(operator: Session, holder: Session) -> None:
    """It was removed, and made again by somebody else, before it was watched."""
    lease = Membership(holder, "/fleet").join("me")
    operator.nodes.delete("/fleet/me")
    operator.nodes.create("/fleet/me", b"another")
    assert lease.lost.wait(10)
    assert operator.nodes.get("/fleet/me")[0] == b"another"


def test_a_long_hold_costs_one_read_and_after_a_dropped_link_another(zookeeper: str) -> None:
    many = 450
    root = "/" + zookeeper.partition("/")[2]
    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=4) as session:

        def asked() -> int:
            return sum(frame.opcode == EXISTS for frame in relay.requests())

        futures = [
            Lock(session, f"gpu-{number}", root=root).acquire_future(20) for number in range(many)
        ]
        leases: list[Any] = [future.wait() for future in futures]
        until(lambda: len(session.link.watches) == many)
        assert asked() == many
        relay.cut()
        until(lambda: asked() == 2 * many and len(session.link.watches) == many)
        for lease in leases:
            lease.check()
            lease.release()
        until(lambda: session.ephemeral_bytes == 0 and len(session.link.watches) == 0)
        assert asked() == 2 * many


def test_short_holds_leave_nothing_to_watch_over(holder: Session) -> None:
    lock = Lock(holder, "gpu")
    for _ in range(50):
        lock.acquire(5).release()
    assert holder.link.epoch is not None
    vigil = holder.link.epoch.vigil
    assert not vigil._leases
    assert not vigil._due
    assert not vigil._asked
