"""Timeouts beyond what the system's waits can count, and arguments that are not there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from zkcoord.errors import ConfigError
from zkcoord.recipes import Lock, MultiLock, Pool, RLock
from zkcoord.zk import Promise, Session
from zkcoord.zk.loop import Worker

FAR = (1e10, 1e300, 10**300)


@pytest.mark.parametrize("far", FAR)
def test_every_wait_takes_a_timeout_that_is_further_than_any_clock(
    zookeeper: str, far: float
) -> None:
    session = Session(zookeeper, timeout=10)
    session.start(far)
    lease = Lock(session, "a").acquire(timeout=far)
    threading.Timer(0.05, lease.removed).start()
    assert lease.lost.wait(far)
    lease = Lock(session, "b").acquire(timeout=far)
    assert lease.release(timeout=far)
    asked = session.nodes.exists_future("/", timeout=far)
    assert asked.exception(far) is None
    assert session.nodes.get_future("/", timeout=far).result(far) is not None
    assert session.close(timeout=far)


def test_a_promise_waits_for_as_long_as_it_is_told() -> None:
    promise: Promise[int] = Promise(Worker("none"))
    threading.Timer(0.05, promise.fulfil, (7,)).start()
    assert promise.result(1e300) == 7
    failing: Promise[int] = Promise(Worker("none"))
    threading.Timer(0.05, failing.fail, (KeyError(),)).start()
    assert isinstance(failing.exception(1e300), KeyError)


@pytest.mark.parametrize(
    "acquire",
    [
        lambda s: Lock(s, "a").acquire(5),
        lambda s: RLock(s, "a").acquire(5),
        lambda s: MultiLock(s, ["a"]).acquire(5),
        lambda s: Lock(s, "a", local_handoffs=2).acquire(5),
    ],
    ids=["Lock", "RLock", "MultiLock", "handoffs"],
)
@pytest.mark.parametrize("wrong", [None, "/a"])
def test_what_is_no_transaction_cannot_be_guarded(
    session: Session, acquire: Callable[[Session], Any], wrong: Any
) -> None:
    with (
        acquire(session) as lease,
        pytest.raises(TypeError, match="transaction: must be a Transaction"),
    ):
        lease.guard(wrong)


def test_names_and_slots_that_are_none_are_named(session: Session) -> None:
    for wrong in (None, 5):
        with pytest.raises(TypeError, match=f"names {wrong}: must be several"):
            MultiLock(session, wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="slots 5: must be several names"):
        Pool(session, "a", slots=5)  # type: ignore[arg-type]


def test_slots_say_whether_they_are_too_many_or_named_twice(session: Session) -> None:
    with pytest.raises(ConfigError, match="slots: 1001 names, 1 to 1000 are possible"):
        Pool(session, "a", slots=["x"] * 1001)
    with pytest.raises(ConfigError, match="slots: 'y' is named twice"):
        Pool(session, "a", slots=["x", "y", "y"])
    with pytest.raises(ConfigError, match="slots: 0 names"):
        Pool(session, "a", slots=[])
