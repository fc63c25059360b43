"""Barriers, on a real server."""

import asyncio

import pytest

from tests.waiting import until
from zkcoord.errors import ConfigError, NameRefused, NodeForeign, SessionClosed, WaitTimeout
from zkcoord.recipes import Barrier
from zkcoord.zk import Session
from zkcoord.zk.call import Call


def test_all_wait_until_it_is_lifted(session: Session, other: Session) -> None:
    barrier, theirs = Barrier(session, "gate"), Barrier(other, "gate")
    barrier.create()
    barrier.create()
    assert theirs.is_up()
    waiting = [theirs.wait_future(timeout=20) for _ in range(20)]
    until(lambda: len(other.link.watches) == 20)
    assert not any(one.done() for one in waiting)
    barrier.lift()
    for one in waiting:
        one.wait()
    barrier.lift()
    assert not theirs.is_up()
    theirs.wait(timeout=0.5)
    until(lambda: len(other.link.watches) == 0)
    assert session.nodes.children("/barriers") == []


def test_it_stays_up_when_its_creator_has_gone(session: Session, other: Session) -> None:
    Barrier(session, "gate").create()
    session.close()
    assert Barrier(other, "gate").is_up()


def test_a_timeout_and_a_cancelled_wait_leave_nothing(session: Session, other: Session) -> None:
    barrier = Barrier(session, "gate")
    barrier.create()
    with pytest.raises(WaitTimeout, match="barrier gate: not lifted within"):
        barrier.wait(timeout=0.2)
    waiting = barrier.wait_future()
    until(lambda: len(session.link.watches) == 1)
    assert waiting.cancel()
    until(lambda: len(session.link.watches) == 0)


def test_lifted_and_put_up_again_lets_everybody_go_who_waited(
    session: Session, other: Session
) -> None:
    barrier = Barrier(session, "gate")
    barrier.create()
    waiting = Barrier(other, "gate").wait_future(timeout=20)
    until(lambda: len(other.link.watches) == 1)
    session.nodes.transaction().delete("/barriers/gate").create("/barriers/gate").commit()
    waiting.wait()
    assert barrier.is_up()


def test_what_anybody_did_before_is_seen(session: Session) -> None:
    """A server may be behind: it catches up before it is asked."""
    sent: list[str] = []
    submit = session.link._connection.submit

    def spy(call: Call) -> None:
        sent.append(type(call.request).__name__)
        submit(call)

    session.link._connection.submit = spy  # type: ignore[method-assign]
    Barrier(session, "gate").wait(timeout=5)
    assert not Barrier(session, "gate").is_up()
    assert [one for one in sent if one in {"Sync", "Exists"}] == ["Sync", "Exists"] * 2


def test_bad_input(session: Session) -> None:
    with pytest.raises(NameRefused):
        Barrier(session, "a/b")
    with pytest.raises(ConfigError):
        Barrier(session, "a").wait(timeout=-1)
    session.nodes.create("/barriers/x/child", makepath=True)
    with pytest.raises(NodeForeign, match="children"):
        Barrier(session, "x").lift()
    session.close()
    with pytest.raises(SessionClosed):
        Barrier(session, "a").wait()


async def test_asyncio(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        barrier = Barrier(session, "gate")
        await barrier.create_future()
        waiting = asyncio.gather(*(barrier.wait_future(timeout=20) for _ in range(50)))
        await barrier.lift_future()
        await waiting
