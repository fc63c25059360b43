"""Waiters that ask where they stand, on a real server."""

import threading

import pytest

from tests.faults.frame_relay import Frame, FrameRelay
from tests.waiting import until
from zkcoord.recipes import Election, Lock, Position, contenders
from zkcoord.recipes.position import REFRESH_S, _surveys
from zkcoord.zk import Session
from zkcoord.zk.clock import now
from zkcoord.zk.requests import GetChildren


def requests(session: Session) -> list[str]:
    """What the session sends from now on."""
    sent: list[str] = []
    submit = session.link._connection.submit

    def spy(call: object) -> None:
        sent.append(call.what.split()[0])  # type: ignore[attr-defined]
        submit(call)

    session.link._connection.submit = spy
    return sent


def test_a_waiter_is_told_its_place_as_it_moves_up(session: Session, other: Session) -> None:
    ahead = [Lock(other, "gpu").acquire(timeout=5)]
    futures = [Lock(other, "gpu").acquire_future(timeout=30) for _ in range(2)]
    until(lambda: len(contenders(session, "gpu")) == 3)
    told: list[Position] = []
    threads = set()

    def tell(position: Position) -> None:
        threads.add(threading.current_thread().name)
        told.append(position)

    future = Lock(session, "gpu").acquire_future(timeout=30, on_position=tell)
    until(lambda: told)
    assert told[-1].position == 3
    assert told[-1].holder.startswith("two (pid ")
    assert told[-1].estimated_wait is None  # no hand-off seen yet
    ahead[0].release()
    for place, waiter in zip((2, 1), futures, strict=True):
        lease = waiter.wait()
        until(lambda place=place: told[-1].position == place)
        assert told[-1].estimated_wait is not None
        assert told[-1].estimated_wait > 0
        lease.release()
    count = len(told)
    future.wait().release(timeout=5)
    assert {one.position for one in told} == {3, 2, 1}
    assert len(told) == count
    assert threads == {"zkcoord-calls-one"}
    assert not _surveys.of(session.link).open
    until(lambda: len(session.link.watches) == 0)


def test_all_who_ask_share_one_listing_and_one_watch(session: Session, other: Session) -> None:
    held = Lock(other, "gpu").acquire(timeout=5)
    told: dict[int, list[int]] = {number: [] for number in range(50)}
    lock = Lock(session, "gpu")
    futures = [
        lock.acquire_future(timeout=30, on_position=lambda p, n=n: told[n].append(p.position))
        for n in range(50)
    ]
    until(lambda: all(told[n][-1:] == [n + 1] for n in told))
    until(lambda: len(session.link.watches) == 51)
    until(lambda: _surveys.of(session.link).open["/" + path(session)]._timer is None)
    sent = requests(session)
    futures[0].cancel()
    until(lambda: all(told[n][-1:] == [n] for n in range(1, 50)))
    # It leaves, takes its watch back and wakes its follower, who looks; then one listing for all.
    assert sorted(sent) == ["children", "delete", "unwatch", "watch", "watch"]
    for future in futures:
        future.cancel()
    until(lambda: len(session.link.watches) == 0 and not _surveys.of(session.link).open)
    held.release()


def path(session: Session) -> str:
    return session.link.absolute("/locks/gpu").removeprefix("/")


def called_by_now(session: Session) -> None:
    """All that is under way to the session's callbacks has been called."""
    done = threading.Event()
    session.link.loop.post(session.link.dispatcher.post, done.set)
    assert done.wait(10)


def test_who_does_not_ask_pays_nothing(session: Session, other: Session) -> None:
    held = Lock(other, "gpu").acquire(timeout=5)
    sent = requests(session)
    future = Lock(session, "gpu").acquire_future(timeout=30)
    until(lambda: len(session.link.watches) == 1)
    held.release()
    future.wait().release(timeout=5)
    assert sent == ["create", "children", "watch", "delete"]


def test_a_slow_callback_misses_what_was_in_between(session: Session, other: Session) -> None:
    ahead = [Lock(other, "gpu").acquire(timeout=5)]
    waiters = [Lock(other, "gpu").acquire_future(timeout=30) for _ in range(3)]
    until(lambda: len(contenders(session, "gpu")) == 4)
    gate, told = threading.Event(), []

    def slow(position: Position) -> None:
        told.append(position.position)
        gate.wait(10)

    future = Lock(session, "gpu").acquire_future(timeout=30, on_position=slow)
    until(lambda: told == [4])
    survey = _surveys.of(session.link).open["/" + path(session)]
    ahead[0].release()
    second = waiters[0].wait()
    until(lambda: len(survey._nodes) == 4)
    second.release()
    waiters[1].wait().release()
    waiters[2].wait()
    until(lambda: len(survey._nodes) == 2)
    until(lambda: survey._holder)
    gate.set()
    until(lambda: told == [4, 1])
    called_by_now(session)
    assert told == [4, 1]
    future.cancel()


def test_a_position_that_waits_to_be_told_is_not_told_after_the_end(
    session: Session, other: Session
) -> None:
    ahead = [Lock(other, "gpu").acquire(timeout=5)]
    waiter = Lock(other, "gpu").acquire_future(timeout=30)
    until(lambda: len(contenders(session, "gpu")) == 2)
    gate, told = threading.Event(), []

    def slow(position: Position) -> None:
        told.append(position.position)
        gate.wait(10)

    future = Lock(session, "gpu").acquire_future(timeout=30, on_position=slow)
    until(lambda: told == [2])
    survey = _surveys.of(session.link).open["/" + path(session)]
    (telling,) = survey.askers.values()
    ahead[0].release()
    waiter.wait()
    until(lambda: telling._pending)  # one place further: to be told once the first call returns
    assert future.cancel()
    gate.set()
    called_by_now(session)
    assert told == [2]


def test_what_happens_behind_is_not_told(session: Session, other: Session) -> None:
    held = Lock(other, "gpu").acquire(timeout=5)
    told: list[Position] = []
    future = Lock(session, "gpu").acquire_future(timeout=30, on_position=told.append)
    until(lambda: told)
    survey = _surveys.of(session.link).open["/" + path(session)]
    behind = Lock(other, "gpu").acquire_future(timeout=30)
    until(lambda: len(survey._nodes) == 3)  # it was seen
    called_by_now(session)
    assert [one.position for one in told] == [1]
    behind.cancel()
    future.cancel()
    held.release()


def test_a_queue_that_moves_all_the_time_is_listed_once_a_second(
    session: Session, other: Session
) -> None:
    held = Lock(other, "gpu").acquire(timeout=5)
    told: list[Position] = []
    future = Lock(session, "gpu").acquire_future(timeout=60, on_position=told.append)
    until(lambda: told)
    since, sent = now(), requests(session)
    for _ in range(20):
        behind = Lock(other, "gpu").acquire_future(timeout=30)
        until(lambda: len(contenders(other, "gpu")) == 3)
        behind.cancel()
        until(lambda: len(contenders(other, "gpu")) == 2)
    assert sent.count("watch") <= (now() - since) / REFRESH_S + 2
    future.cancel()
    held.release()


def test_a_listing_whose_answer_is_lost_is_asked_for_again(zookeeper: str, other: Session) -> None:
    held = Lock(other, "gpu").acquire(timeout=5)
    surveys: list[int] = []

    def note(frame: Frame) -> bytes:
        if frame.number and frame.opcode == GetChildren.opcode and frame.body[-1]:  # with a watch
            surveys.append(frame.xid)
        return frame.body

    def lose(frame: Frame) -> bytes | None:
        if frame.link == 0 and surveys[:1] == [frame.xid]:
            relay.cut()
            return None
        return frame.body

    root = f"/{zookeeper.partition('/')[2]}/locks"
    told: list[Position] = []
    with (
        FrameRelay(zookeeper, up=note, down=lose) as relay,
        Session(relay.address, timeout=10) as cut_off,
    ):
        lock = Lock(cut_off, "gpu", root=root)
        future = lock.acquire_future(timeout=30, on_position=told.append)
        until(lambda: [one.position for one in told] == [1])
        assert len(surveys) >= 2
        assert told[0].holder.startswith("two (pid ")
        held.release()
        future.wait().release(timeout=5)


def test_a_callback_that_fails_stops_nothing(
    session: Session, other: Session, caplog: pytest.LogCaptureFixture
) -> None:
    held = Lock(other, "gpu").acquire(timeout=5)
    called = threading.Event()

    def bad(_position: Position) -> None:
        called.set()
        raise ZeroDivisionError

    future = Lock(session, "gpu").acquire_future(timeout=10, on_position=bad)
    assert called.wait(5)
    held.release()
    future.wait().release()
    until(lambda: "ZeroDivisionError" in caplog.text)  # told on a thread of its own


def test_candidates_can_ask_too(session: Session, other: Session) -> None:
    with Election(other, "boss").campaign(timeout=5):
        told: list[int] = []
        future = Election(session, "boss").campaign_future(
            on_position=lambda place: told.append(place.position)
        )
        until(lambda: told == [1])
    future.wait().release()
