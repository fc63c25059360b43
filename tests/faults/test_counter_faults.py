"""Counters when answers are lost: every call counts once, or says that it does not know."""

import contextlib
import threading
from collections.abc import Iterator

import pytest
from frame_relay import Frame, FrameRelay
from kazoo.client import KazooClient

from zkcoord.core import counting
from zkcoord.errors import EnsembleUnavailable, OutcomeUnknown, VersionConflict
from zkcoord.local import Proxy
from zkcoord.recipes import Counter, FastCounter
from zkcoord.zk import Session

GET_DATA, SET_DATA, CREATE = 4, 5, 15


@pytest.fixture
def other(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, timeout=10, name="other") as session:
        yield session


class Loser:
    """Cuts the link instead of delivering the next reply to a write."""

    def __init__(self, relay: FrameRelay) -> None:
        self.relay = relay
        self.losses = 0
        self.before_cut = lambda: None
        relay.down = self

    def __call__(self, frame: Frame) -> bytes | None:
        asked = {f.xid: f.opcode for f in self.relay.requests() if f.link == frame.link}
        if self.losses > 0 and frame.number and asked.get(frame.xid) in (SET_DATA, CREATE):
            self.losses -= 1
            self.before_cut()
            self.relay.cut()
            return None
        return frame.body


@contextlib.contextmanager
def losing(zookeeper: str) -> Iterator[tuple[Loser, Session, str]]:
    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=10) as session:
        yield Loser(relay), session, "/" + zookeeper.split("/")[1]


def test_a_lost_answer_does_not_give_out_the_number_of_those_who_came_after(
    zookeeper: str, other: Session
) -> None:
    with losing(zookeeper) as (loser, session, root):
        ours, theirs = Counter(session, f"{root}/c"), Counter(other, "/c")
        loser.losses = 1
        loser.before_cut = lambda: theirs.add(10)  # type: ignore[assignment,return-value]
        assert ours.add() == 1
        assert ours.add() == 12
        seen = ours.read()
        loser.losses = 1
        loser.before_cut = lambda: theirs.add(100)  # type: ignore[assignment,return-value]
        mine = ours.compare_and_set(seen, 50)
        assert (mine.number, theirs.get()) == (50, 150)
        with pytest.raises(VersionConflict):
            ours.compare_and_set(mine, 51)


def test_a_lost_answer_counts_once(zookeeper: str, other: Session) -> None:
    with losing(zookeeper) as (loser, session, root):
        counter = Counter(session, f"{root}/c")
        for expected in range(1, 6):
            loser.losses = 1
            assert counter.add() == expected
            assert loser.losses == 0
        loser.losses = 3  # one after the other
        assert counter.add() == 6
        loser.losses = 1
        assert counter.compare_and_set(6, 60).number == 60
        loser.losses = 1
        fast = FastCounter(session, f"{root}/f", stripes=1)
        fast.add(7)
        loser.losses = 1
        fast.add(7)
    assert Counter(other, "/c").get(sync=True) == 60
    assert FastCounter(other, "/f").get(sync=True) == 14


def test_a_lost_answer_counts_once_under_the_writes_of_others(
    zookeeper: str, other: Session
) -> None:
    theirs = Counter(other, "/c")
    with losing(zookeeper) as (loser, session, root):
        counter = Counter(session, f"{root}/c")
        counter.add(100)
        loser.before_cut = lambda: [theirs.add(timeout=10) for _ in range(20)]  # type: ignore[assignment, return-value]
        for _ in range(3):
            loser.losses = 1
            counter.add(100)
    assert theirs.get(sync=True) == 460


def test_a_request_that_never_arrived_is_not_taken_for_done(zookeeper: str, other: Session) -> None:
    theirs = Counter(other, "/c")
    with losing(zookeeper) as (loser, session, root):
        counter = Counter(session, f"{root}/c")
        counter.add(100)
        losses = [1]

        def lose(frame: Frame) -> bytes | None:
            if losses and frame.number and frame.xid > 0 and frame.opcode == SET_DATA:
                losses.pop()
                theirs.add(1, timeout=10)  # makes the version that ours would have made
                loser.relay.cut()
                return None
            return frame.body

        loser.relay.up = lose
        assert counter.add(100) == 201
    assert theirs.get(sync=True) == 201


def test_what_cannot_be_known_is_said_and_not_guessed(zookeeper: str, other: Session) -> None:
    theirs = Counter(other, "/c")
    with losing(zookeeper) as (loser, session, root):
        counter = Counter(session, f"{root}/c")
        counter.add()
        loser.before_cut = lambda: [  # type: ignore[assignment, return-value]
            theirs.add(timeout=10) for _ in range(counting.MARKS_MAX)
        ]
        loser.losses = 1
        with pytest.raises(OutcomeUnknown, match="/c"):
            counter.add(1000)
        assert counter.add(0) == 1001 + counting.MARKS_MAX
        loser.before_cut = lambda: other.nodes.set("/c", b"5")  # type: ignore[assignment, return-value]
        loser.losses = 1
        with pytest.raises(OutcomeUnknown):
            counter.add(1)


def test_a_lost_session_does_not_lose_or_double_an_addition(zookeeper: str, other: Session) -> None:
    with losing(zookeeper) as (loser, session, root):
        counter = Counter(session, f"{root}/c")
        counter.add()

        def expire() -> None:
            client = session.link._client
            thief = KazooClient(
                zookeeper.split("/", maxsplit=1)[0],
                client_id=(client._session_id, client._session_passwd),
            )
            thief.start(timeout=15)
            thief.stop()
            thief.close()

        loser.before_cut = expire
        for expected in (2, 3, 4):
            loser.losses = 1
            assert counter.add() == expected
    assert Counter(other, "/c").get(sync=True) == 4


def test_answers_lost_at_every_byte(zookeeper: str, other: Session) -> None:
    target, _, chroot = zookeeper.partition("/")
    with Proxy(target) as proxy, Session(proxy.address, timeout=10) as session:
        counter = Counter(session, f"/{chroot}/c")
        total = counter.add()
        for direction in ("up", "down"):
            for count in range(0, 220, 11):
                proxy.cut_after(count, direction=direction)  # type: ignore[arg-type]
                total += 1
                assert counter.add() == total
                proxy.heal()
    assert Counter(other, "/c").get(sync=True) == total


def test_a_sum_whose_answers_are_lost_is_asked_for_again(zookeeper: str, other: Session) -> None:
    FastCounter(other, "/f", stripes=1).add(7)
    lost: list[int] = []

    def lose(frame: Frame) -> bytes | None:
        asked = {f.xid: f.opcode for f in relay.requests() if f.link == frame.link}
        if frame.number and not lost and asked.get(frame.xid) == GET_DATA:
            lost.append(frame.xid)
            relay.cut()
            return None
        return frame.body

    root = "/" + zookeeper.split("/")[1]
    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=10) as session:
        relay.down = lose
        assert FastCounter(session, f"{root}/f").get() == 7
        assert lost


def test_deadlines_hold_in_a_partition_and_say_what_may_have_happened(
    zookeeper: str, other: Session
) -> None:
    target, _, chroot = zookeeper.partition("/")
    with Proxy(target) as proxy, Session(proxy.address, timeout=10) as session:
        counter = Counter(session, f"/{chroot}/c")
        counter.add()
        proxy.blackhole(up=False, down=True)
        flying = counter.add_future(10, timeout=0.5)
        sent = threading.Event()
        waiting = counter.add_future(100, timeout=0.4)  # still behind the first
        living = counter.add_future(1000, timeout=30)
        with pytest.raises(EnsembleUnavailable, match="nothing was changed"):
            waiting.wait()
        with pytest.raises(EnsembleUnavailable, match="may or may not"):
            flying.wait()
        sent.set()
        proxy.heal()
        assert living.wait() in (1001, 1011)  # and not those that were given up
        assert Counter(other, "/c").get(sync=True) in (1001, 1011)
