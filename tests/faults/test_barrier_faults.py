"""Barriers when answers are late or lost."""

import contextlib
import threading
from collections.abc import Iterator

import pytest
from frame_relay import Frame, FrameRelay

from tests.waiting import until
from zkcoord.errors import WaitTimeout
from zkcoord.local import Proxy
from zkcoord.recipes import Barrier, DoubleBarrier, arrival
from zkcoord.zk import Session

FOLDER = "/double-barriers/b"
DELETE = 2


@pytest.fixture
def other(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, timeout=10, name="other") as session:
        yield session


@contextlib.contextmanager
def behind_a_proxy(zookeeper: str) -> Iterator[tuple[Proxy, Session, str]]:
    target, _, chroot = zookeeper.partition("/")
    with Proxy(target) as proxy, Session(proxy.address, timeout=10) as session:
        yield proxy, session, f"/{chroot}/double-barriers"


def present(session: Session) -> int:
    return len(session.nodes.children(FOLDER)) if session.nodes.exists(FOLDER) else 0


def test_who_withdraws_too_late_is_in(
    zookeeper: str, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival, "_WITHDRAW_S", 29.0)
    monkeypatch.setattr(arrival, "_WITHDRAW_SHARE", 1.0)  # it withdraws after a second
    going = threading.Event()
    going.set()

    def hold_back(frame: Frame) -> bytes | None:
        going.wait(20)
        return frame.body

    with (
        FrameRelay(zookeeper, down=hold_back) as relay,
        Session(relay.address, timeout=10) as session,
    ):
        root = f"/{zookeeper.split('/')[1]}/double-barriers"
        first = DoubleBarrier(session, "b", 2, root=root).enter_future(timeout=30)
        until(lambda: len(session.link.watches) == 1)
        going.clear()
        theirs = DoubleBarrier(other, "b", 2).enter(timeout=60)
        until(lambda: any(frame.opcode == DELETE for frame in relay.requests()))
        going.set()
        mine = first.wait()
        assert sorted((mine.rank, theirs.rank)) == [0, 1]
        leaving = mine.finish_future(timeout=10)
        theirs.finish(timeout=10)
        leaving.wait()


def test_who_hears_of_its_node_after_its_deadline_is_in_when_a_round_has_it(
    zookeeper: str, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival, "_GRACE_S", 60.0, raising=False)
    going = threading.Event()
    going.set()

    def hold_back(frame: Frame) -> bytes | None:
        going.wait(20)
        return frame.body

    with (
        FrameRelay(zookeeper, down=hold_back) as relay,
        Session(relay.address, timeout=10) as session,
    ):
        root = f"/{zookeeper.split('/')[1]}/double-barriers"
        barrier = DoubleBarrier(session, "b", 2, root=root)
        with pytest.raises(WaitTimeout):
            barrier.enter(timeout=0.2)  # the folder is there
        going.clear()
        first = barrier.enter_future(timeout=0.2)
        until(lambda: present(other) == 1)
        theirs = DoubleBarrier(other, "b", 2).enter(timeout=20)
        threading.Event().wait(0.3)  # its deadline passes
        going.set()
        assert [first.wait().rank, theirs.rank] == [0, 1]
        first.result().release(timeout=5)
        theirs.release(timeout=5)


def test_answers_lost_at_every_byte_make_whole_rounds_and_leave_nothing(
    zookeeper: str, other: Session
) -> None:
    theirs = DoubleBarrier(other, "b", 2)
    with behind_a_proxy(zookeeper) as (proxy, session, root):
        mine = DoubleBarrier(session, "b", 2, root=root)
        for direction in ("up", "down"):
            for count in range(0, 600, 40):
                proxy.cut_after(count, direction=direction)  # type: ignore[arg-type]
                entering = [mine.enter_future(timeout=20), theirs.enter_future(timeout=20)]
                pair = [one.wait() for one in entering]
                assert sorted(one.rank for one in pair) == [0, 1]
                leaving = [one.finish_future(timeout=20) for one in pair]
                for one in leaving:
                    one.wait()
                proxy.heal()
        until(lambda: present(other) == 0)
        until(lambda: len(session.link.watches) + len(other.link.watches) == 0)
        assert session.ephemeral_bytes == 0


def test_timeouts_hold_in_a_partition_and_nothing_is_left_after_it(
    zookeeper: str, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival, "_GRACE_S", 0.3)
    with behind_a_proxy(zookeeper) as (proxy, session, root):
        barrier = DoubleBarrier(session, "b", 2, root=root)
        waiting = barrier.enter_future(timeout=1.0)
        until(lambda: present(other) == 1)
        proxy.blackhole()
        with pytest.raises(WaitTimeout):
            waiting.wait()
        with pytest.raises(WaitTimeout):
            barrier.enter(timeout=0.2)
        proxy.heal()
        until(lambda: present(other) == 0)
        until(lambda: session.ephemeral_bytes == 0)


def test_a_barrier_that_is_lifted_during_a_partition_is_noticed(
    zookeeper: str, other: Session
) -> None:
    with behind_a_proxy(zookeeper) as (proxy, session, root):
        barrier = Barrier(other, "gate")
        barrier.create()
        waiting = Barrier(session, "gate", root=root.replace("double-", "")).wait_future(30)
        until(lambda: len(session.link.watches) == 1)
        proxy.refuse()
        proxy.cut()
        barrier.lift()
        barrier.create()  # put up again meanwhile: it was lifted all the same
        proxy.heal()
        waiting.wait()
