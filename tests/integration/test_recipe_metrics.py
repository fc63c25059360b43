"""What locks tell observers, on a real server."""

import threading

import pytest

from tests.waiting import until
from zkcoord.errors import AcquireTimeout
from zkcoord.recipes import Election, Lock, Observation, RLock, observe
from zkcoord.zk import Session


def test_grants_and_releases_are_told_with_what_they_cost(session: Session) -> None:
    lock = Lock(session, "gpu")
    lock.acquire(timeout=5).release(timeout=5)
    seen: list[Observation] = []
    threads: set[str] = set()

    def note(one: Observation) -> None:
        seen.append(one)
        threads.add(threading.current_thread().name)

    stop = observe(session, note)
    first = lock.acquire(timeout=5)
    future = lock.acquire_future(timeout=10)
    until(lambda: len(session.link.watches) == 1)
    first.release()
    future.wait().release(timeout=5)
    until(lambda: len(seen) == 4)
    granted, released, second, _ = seen
    assert [one.kind for one in seen] == ["granted", "released", "granted", "released"]
    assert {one.name for one in seen} == {"lock gpu"}
    assert (granted.ahead, granted.requests) == (0, 1)  # its number tells that nobody is in front
    assert second.ahead == 1
    assert second.requests >= 2  # create and the watch on its predecessor
    assert released.seconds > 0
    assert second.seconds > 0
    assert threads == {"zkcoord-calls-one"}
    stop()
    lock.acquire(timeout=5).release(timeout=5)
    assert len(seen) == 4


def test_refusals_and_losses_are_told(session: Session) -> None:
    seen: list[Observation] = []
    observe(session, seen.append)
    lease = Election(session, "boss").campaign(timeout=5)
    with pytest.raises(AcquireTimeout):
        Election(session, "boss").campaign(timeout=0)
    Election(session, "boss").campaign_future().cancel()
    session.close()
    assert lease.lost.wait(5)
    until(lambda: len(seen) == 4)
    assert [(one.kind, one.error) for one in seen] == [
        ("granted", ""),
        ("refused", "AcquireTimeout"),
        ("refused", "CancelledError"),
        ("lost", ""),
    ]
    assert {one.name for one in seen} == {"election boss"}


def test_holds_within_a_hold_are_not_counted(session: Session) -> None:
    seen: list[str] = []
    observe(session, lambda one: seen.append(one.kind))
    lock = RLock(session, "gpu")
    with lock.hold(timeout=5), lock.hold(timeout=5):
        pass
    until(lambda: seen == ["granted", "released"])


def test_an_observer_that_fails_stops_nothing(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(_: Observation) -> None:
        raise ZeroDivisionError

    seen: list[Observation] = []
    observe(session, bad)
    observe(session, seen.append)
    Lock(session, "gpu").acquire(timeout=5).release(timeout=5)
    until(lambda: len(seen) == 2)
    assert "ZeroDivisionError" in caplog.text
