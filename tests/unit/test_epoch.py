"""What stands and falls with a session, and the count of its ephemeral bytes. No server needed."""

import threading

import pytest

from zkcoord.core.lease import Belief
from zkcoord.errors import SessionFull
from zkcoord.zk.clock import now
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.loop import Loop, Worker


def epoch(valid_for: float = 100.0) -> Epoch:
    return Epoch(7, Belief(now(), valid_for + 0.1, 0.1), Worker("calls"), ephemeral_bytes_max=100)


def test_members_are_told_once_and_latecomers_at_once() -> None:
    session, told = epoch(), []
    early, gone, late = object(), object(), object()
    session.join(early, lambda: told.append("early"))
    session.join(gone, lambda: told.append("gone"))
    session.leave(gone)
    session.end("over")
    session.end("again")
    assert told == ["early"]
    assert session.reason == "over"
    session.join(late, lambda: told.append("late"))
    assert told == ["early", "late"]
    assert session.lost.wait(0)


def test_lost_is_set_by_the_clock_before_anybody_tells() -> None:
    session = epoch(valid_for=-0.2)
    assert session.lost.is_set()
    assert session.lost.wait(0)
    called: list[int] = []
    session.lost.on_set(lambda: called.append(1))
    assert not called  # callbacks are for the watchdog to call
    session.end("it was silent")
    assert called == [1]


def test_bytes_are_reserved_held_and_freed_once() -> None:
    session = epoch()
    session.reserve("/a", 60)
    session.hold("/a", 60)
    session.hold("/a", 60)
    with pytest.raises(SessionFull, match="60 bytes"):
        session.reserve("/b", 41)
    session.reserve("/b", 40)
    session.unreserve(40)
    session.free("/a")
    session.free("/a")
    assert session.ephemeral_bytes == 0


def test_request_numbers_rise() -> None:
    session = epoch()
    assert [session.request() for _ in range(3)] == [1, 2, 3]


def test_the_loop_runs_everything_in_order_whoever_takes_the_turn() -> None:
    loop, seen = Loop("loop"), []
    loop.start()
    done = threading.Event()

    def guest() -> None:
        loop.welcome()
        for number in range(2000):
            loop.post(seen.append, number)
            if number % 7 == 0:
                loop.turn(0.0001)
        loop.turn(0.0)
        loop.post(done.set)
        loop.turn()

    threading.Thread(target=guest).start()
    assert done.wait(10)
    assert seen == list(range(2000))
    loop.stop()
    assert loop.join(5)


def test_timers_fire_in_order_and_not_when_cancelled() -> None:
    loop, seen, done = Loop("loop"), [], threading.Event()
    loop.start()
    loop.call_at(now() + 0.02, seen.append, "second")
    loop.call_at(now() + 0.01, seen.append, "first")
    loop.call_at(now() + 0.015, seen.append, "never").cancel()
    loop.call_at(now() + 0.03, done.set)
    assert done.wait(5)
    assert seen == ["first", "second"]
    loop.stop()
    assert loop.join(5)


def test_an_error_in_a_callback_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    loop, done = Loop("loop"), threading.Event()
    loop.start()
    loop.post(lambda: 1 / 0)
    loop.post(done.set)
    assert done.wait(5)
    assert "ZeroDivisionError" in caplog.text
    loop.stop()
    assert loop.join(5)
