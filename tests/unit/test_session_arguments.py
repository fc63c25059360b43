"""What recipes say of arguments that cannot work, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zkcoord.errors import ConfigError
from zkcoord.recipes import Election, Lock, Membership
from zkcoord.zk import Session


@pytest.fixture
def session() -> Session:
    return Session("127.0.0.1:1")  # never started


@pytest.mark.parametrize(
    "make",
    [
        lambda session: Lock(session, b"x"),
        lambda session: Lock(session, None),
        lambda session: Election(session, 7),
        lambda session: Membership(session, b"/x"),
        lambda session: session.nodes.get(b"/x"),
    ],
)
def test_a_name_is_a_text(session: Session, make: Callable[[Session], object]) -> None:
    with pytest.raises(TypeError, match=r"must be a text \(str\), not (bytes|int|NoneType)$"):
        make(session)


def test_a_timeout_is_a_number(session: Session) -> None:
    lock = Lock(session, "x")
    for call in (lock.acquire, lock.acquire_future, session.start, session.close):
        with pytest.raises(ConfigError, match=r"timeout '5': must be a number of .* not a str"):
            call("5")  # type: ignore[operator]
    for call in (lock.acquire, session.start):
        with pytest.raises(ConfigError, match="0 or more seconds"):
            call(-1)  # type: ignore[operator]


async def test_a_lock_is_entered_through_hold(session: Session) -> None:
    with pytest.raises(TypeError, match=r"with lock\.hold\("), Lock(session, "x"):  # type: ignore[attr-defined]
        pass
    with pytest.raises(TypeError, match=r"async with lock\.hold\("):
        async with Lock(session, "x"):  # type: ignore[attr-defined]
            pass
