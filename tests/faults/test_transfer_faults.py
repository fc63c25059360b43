"""Handing leadership over when answers are lost."""

import threading
from collections.abc import Iterator

import pytest
from frame_relay import Frame, FrameRelay

from tests.waiting import until
from zkcoord.errors import CandidateMissing, EnsembleUnavailable, LeaseLost
from zkcoord.local import Proxy
from zkcoord.recipes import Election
from zkcoord.zk import Session

FOLDER = "/elections/boss"
MULTI = 14


@pytest.fixture
def other(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, timeout=10, name="other") as session:
        yield session


def waiting(session: Session) -> int:
    return len(session.nodes.children(FOLDER))


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_hand_over_whose_answer_is_lost_happens_once(
    zookeeper: str, other: Session, way: str
) -> None:
    losses = [1]

    def lose(frame: Frame) -> bytes | None:
        asked = frame.opcode if way == "up" else opcodes().get((frame.link, frame.xid))
        if losses and frame.number and asked == MULTI:
            losses.pop()
            relay.cut()
            return None
        return frame.body

    def opcodes() -> dict[tuple[int, int], int]:
        return {(one.link, one.xid): one.opcode for one in relay.requests()}

    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=10) as session:
        root = f"/{zookeeper.split('/')[1]}/elections"
        leader = Election(session, "boss", root=root, label="c0").campaign(timeout=5)
        between = Election(other, "boss", label="c1").campaign_future(timeout=30)
        until(lambda: waiting(other) == 2)
        chosen = Election(other, "boss", label="c2").campaign_future(timeout=30)
        until(lambda: waiting(other) == 3)
        setattr(relay, way, lose)
        leader.transfer("c2", timeout=20)
        assert losses == []
        second = chosen.wait()
        assert second.term > leader.term
        assert not between.done()
        second.release()
        assert between.wait().term > second.term
        between.result().release(timeout=5)
        assert waiting(other) == 0
        until(lambda: session.ephemeral_bytes == other.ephemeral_bytes == 0)


def test_a_candidate_that_goes_at_the_last_moment(zookeeper: str, other: Session) -> None:
    held = threading.Event()
    gone = threading.Event()

    def hold(frame: Frame) -> bytes | None:
        if frame.number and frame.xid > 0 and frame.opcode == MULTI and not held.is_set():
            held.set()
            gone.wait(10)
        return frame.body

    with FrameRelay(zookeeper, up=hold) as relay, Session(relay.address, timeout=10) as session:
        root = f"/{zookeeper.split('/')[1]}/elections"
        leader = Election(session, "boss", root=root, label="c0").campaign(timeout=5)
        next_one = Election(other, "boss", label="c1").campaign_future(timeout=30)
        until(lambda: waiting(other) == 2)
        chosen = Election(other, "boss", label="c2").campaign_future(timeout=30)
        until(lambda: waiting(other) == 3)
        handing = leader.transfer_future("c2", timeout=20)
        assert held.wait(10)
        chosen.cancel()
        until(lambda: waiting(other) == 2)
        gone.set()
        with pytest.raises(CandidateMissing, match="next in line"):
            handing.wait()
        with pytest.raises(LeaseLost, match="released"):
            leader.check()
        next_one.wait().release()


def test_a_hand_over_that_cannot_be_sent_ends_the_leadership_once_it_can(
    zookeeper: str, other: Session
) -> None:
    target, _, chroot = zookeeper.partition("/")
    with Proxy(target) as proxy, Session(proxy.address, timeout=10) as session:
        root = f"/{chroot}/elections"
        leader = Election(session, "boss", root=root, label="c0").campaign(timeout=5)
        chosen = Election(other, "boss", label="c1").campaign_future(timeout=30)
        until(lambda: waiting(other) == 2)
        proxy.blackhole()
        with pytest.raises(EnsembleUnavailable):
            leader.transfer("c1", timeout=0.5)
        leader.check()  # nobody was found yet, so nothing was given up
        proxy.heal()
        leader.transfer("c1", timeout=20)
        chosen.wait().release()
