"""Asking a leader to resign while links drop: it is asked once, and the next one is not."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from frame_relay import Frame, FrameRelay

from tests import waiting
from zkcoord.errors import LeaseLost
from zkcoord.local import Proxy
from zkcoord.recipes import Election, Leadership, Revocation
from zkcoord.zk import Session
from zkcoord.zk.requests import Multi, SetData

until = partial(waiting.until, seconds=30.0)


def losing(relay: FrameRelay, opcode: int, *, reply: bool, then: Callable[[], object]) -> list[int]:
    """Lose the first request of this kind, or its reply, and cut the link; xids of those seen."""
    seen: list[int] = []

    def up(frame: Frame) -> bytes | None:
        if frame.number and frame.opcode == opcode:
            seen.append(frame.xid)
            if not reply and len(seen) == 1:
                relay.cut()
                return None
        return frame.body

    def down(frame: Frame) -> bytes | None:
        if reply and frame.number and seen[:1] == [frame.xid] and frame.link == 0:
            then()
            relay.cut()
            return None
        return frame.body

    relay.up, relay.down = up, down
    return seen


@pytest.mark.parametrize("reply", [True, False])
def test_when_the_answer_is_lost_the_next_leader_is_not_asked(zookeeper: str, reply: bool) -> None:
    chroot = zookeeper.partition("/")[2]
    heard: dict[str, list[Revocation]] = {"c0": [], "c1": []}
    won: list[Leadership] = []
    with (
        FrameRelay(zookeeper) as relay,
        Session(zookeeper, timeout=10) as one,
        Session(f"{relay.address}/{chroot}", timeout=10) as operator,
    ):

        def go(asked: Revocation) -> None:
            heard["c0"].append(asked)
            won[0].release()

        won.append(Election(one, "boss", label="c0").campaign(timeout=5, on_revoke=go))
        behind = Election(one, "boss", label="c1").campaign_future(on_revoke=heard["c1"].append)
        written = losing(relay, SetData.opcode, reply=reply, then=behind.wait)
        asked = Election(operator, "boss").revoke("an upgrade", timeout=20)
        assert asked.token == won[0].term
        until(behind.done)
        behind.wait().check()
        assert written
        assert [revocation.reason for revocation in heard["c0"]] == ["an upgrade"]
        assert heard["c1"] == []


@pytest.mark.parametrize("reply", [True, False])
def test_a_hand_over_that_was_asked_for_survives_a_cut(zookeeper: str, reply: bool) -> None:
    chroot = zookeeper.partition("/")[2]
    leading = threading.Event()

    def lead(leadership: Leadership) -> None:
        leading.set()
        assert leadership.lost.wait(60)

    with (
        FrameRelay(zookeeper) as relay,
        Session(f"{relay.address}/{chroot}", timeout=10) as leader,
        Session(zookeeper, timeout=10) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        running = pool.submit(Election(leader, "boss", label="c0").run, lead)
        assert leading.wait(10)
        futures = []
        for place, label in enumerate(("c1", "c2"), 2):
            futures.append(Election(other, "boss", label=label).campaign_future(60))
            until(lambda count=place: len(other.nodes.children("/elections/boss")) == count)  # type: ignore[misc]
        removals = losing(relay, Multi.opcode, reply=reply, then=lambda: None)
        Election(other, "boss").revoke("an upgrade", to="c2")
        with pytest.raises(LeaseLost, match="asked to resign"):
            running.result(30)
        chosen = futures[1].wait()
        chosen.check()
        assert removals
        assert not futures[0].done()
        until(lambda: len(other.nodes.children("/elections/boss")) == 2)


def test_a_leader_that_is_cut_off_after_it_was_asked_leaves_nothing(zookeeper: str) -> None:
    leading, end = threading.Event(), threading.Event()

    def lead(leadership: Leadership) -> None:
        leading.set()
        assert leadership.lost.wait(60)
        assert end.wait(60)

    chroot = zookeeper.partition("/")[2]
    with (
        Proxy(zookeeper.partition("/")[0]) as proxy,
        Session(f"{proxy.address}/{chroot}", timeout=4) as leader,
        Session(zookeeper, timeout=10) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        election = Election(leader, "boss", label="c0")
        running = pool.submit(election.run, lead)
        assert leading.wait(10)
        behind = Election(other, "boss", label="c1").campaign_future(60)
        until(lambda: len(other.nodes.children("/elections/boss")) == 2)
        Election(other, "boss").revoke("an upgrade", to="c1")
        until(lambda: election.state == "idle")
        proxy.blackhole()
        end.set()
        behind.wait().check()  # its session has expired
        with pytest.raises(LeaseLost, match="asked to resign"):
            running.result(30)
        assert len(other.nodes.children("/elections/boss")) == 1
