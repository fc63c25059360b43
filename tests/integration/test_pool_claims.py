"""Claims of a pool's slots that are overtaken, or whose answers are lost. The server is real."""

from collections.abc import Callable
from functools import partial

import pytest

from tests import waiting
from tests.faults.frame_relay import Frame, FrameRelay
from zkcoord.errors import LeaseLost, NodeMissing
from zkcoord.recipes import Pool
from zkcoord.zk import Session
from zkcoord.zk.call import Call
from zkcoord.zk.requests import Multi

FOLDER = "/pools/gpus"
GPUS = ("gpu-0", "gpu-1")
until = partial(waiting.until, seconds=20.0)


def children(session: Session, path: str) -> list[str]:
    try:
        return session.nodes.children(path)
    except NodeMissing:
        return []


def queue(session: Session) -> list[str]:
    return [name for name in children(session, FOLDER) if name[0] == "x"]


def taken(session: Session) -> list[str]:
    return children(session, f"{FOLDER}/slots")


def before(session: Session, word: str, overtake: Callable[[], object]) -> list[str]:
    """Call this once, just before the first request of that name is sent; what was sent then."""
    submit = session.link._connection.submit
    sent: list[str] = []

    def spy(call: Call) -> None:
        if word in call.what and not sent:
            sent.append(call.what)
            overtake()
        submit(call)

    session.link._connection.submit = spy  # type: ignore[method-assign]
    return sent


def test_a_slot_that_is_drained_under_a_claim_is_not_given_out(
    session: Session, other: Session
) -> None:
    pool, theirs = Pool(session, "gpus", GPUS), Pool(other, "gpus")
    pool.acquire(timeout=5).release(timeout=5)
    drained: list[bool] = []
    overtaken = before(session, "claim", lambda: drained.append(theirs.drain("gpu-0")))
    lease = pool.acquire(timeout=10)
    assert overtaken
    assert drained == [True]  # free, and so nobody may get it any more
    assert lease.slot == "gpu-1"
    assert taken(other) == ["gpu-1"]


def test_a_slot_that_is_taken_under_a_claim_is_left_to_who_took_it(
    session: Session, other: Session
) -> None:
    pool = Pool(session, "gpus", GPUS)
    pool.acquire(timeout=5).release(timeout=5)
    path = f"{FOLDER}/slots/gpu-0"
    overtaken = before(session, "claim", lambda: other.nodes.create(path, ephemeral=True))
    lease = pool.acquire(timeout=10)
    assert overtaken
    assert lease.slot == "gpu-1"
    assert other.nodes.get(path)[1].owner == other.id


def test_two_who_add_at_once_both_count(session: Session, other: Session) -> None:
    pool = Pool(session, "gpus", GPUS)
    pool.acquire(timeout=5).release(timeout=5)
    overtaken = before(session, "add", lambda: None)
    pool.add("gpu-2")  # what it sends is known now: look, then write
    assert overtaken
    writes = before(session, "add: setdata", lambda: Pool(other, "gpus").add("gpu-3"))
    pool.add("gpu-4")
    assert writes
    slots = [one.slot for one in pool.standing().slots]
    assert slots == [*GPUS, "gpu-2", "gpu-3", "gpu-4"]


def test_a_waiter_whose_node_was_removed_is_told(session: Session, other: Session) -> None:
    held = Pool(other, "gpus", ("gpu-0",)).acquire(timeout=5)
    future = Pool(session, "gpus").acquire_future(timeout=20)
    until(lambda: len(session.link.watches) == 2)  # it is the first in line
    (mine,) = queue(other)
    other.nodes.delete(f"{FOLDER}/{mine}")
    held.release(timeout=5)
    with pytest.raises(LeaseLost, match="removed while it waited"):
        future.wait()
    until(lambda: len(session.link.watches) == 0 and session.ephemeral_bytes == 0)
    assert taken(other) == []


def test_a_claim_that_never_arrived_is_not_taken_for_done(zookeeper: str, session: Session) -> None:
    """Sent again, it is refused for what another has done meanwhile."""
    lost: list[int] = []

    def lose(frame: Frame) -> bytes | None:
        if frame.number and frame.opcode == Multi.opcode and not lost:
            lost.append(frame.xid)
            session.nodes.create(f"{FOLDER}/slots/gpu-0", ephemeral=True)
            relay.cut()
            return None
        return frame.body

    chroot = zookeeper.partition("/")[2]
    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=10) as cut_off:
        pool = Pool(cut_off, "gpus", GPUS, root=f"/{chroot}/pools")
        pool.acquire(timeout=5).release(timeout=5)
        relay.up = lose
        lease = pool.acquire(timeout=10)
        assert lost
        assert lease.slot == "gpu-1"
        assert session.nodes.get(f"{FOLDER}/slots/gpu-0")[1].owner == session.id
