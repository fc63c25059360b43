"""State, proclaimed values and the callback style of elections, on a real server."""

import asyncio
import threading

import pytest
from kazoo.client import KazooClient

from tests.waiting import until
from zkcoord.errors import AcquireTimeout, ConfigError, LeaseLost, NameRefused, SessionLost
from zkcoord.recipes import Election, Leader, Leadership
from zkcoord.zk import Session


def expire(session: Session, zookeeper: str) -> None:
    """Close a session from elsewhere, with its id and password."""
    client = session.link._client
    thief = KazooClient(
        zookeeper.split("/", maxsplit=1)[0],
        client_id=(client._session_id, client._session_passwd),
    )
    thief.start(timeout=15)
    thief.stop()
    thief.close()


def test_the_state_is_told(session: Session, other: Session) -> None:
    first, second = Election(session, "boss"), Election(other, "boss")
    assert (first.state, second.state) == ("idle", "idle")
    leadership = first.campaign(timeout=5)
    waiting = second.campaign_future(timeout=20)
    assert (first.state, second.state) == ("leading", "candidate")
    leadership.release()
    next_one = waiting.wait()
    assert (first.state, second.state) == ("idle", "leading")
    other.close()
    assert next_one.lost.wait(5)
    assert second.state == "idle"


def test_a_proclaimed_value_is_observed_and_is_the_leaders_own(
    session: Session, other: Session
) -> None:
    seen: list[Leader | None] = []
    leadership = Election(session, "boss").campaign(timeout=5, data=b"0")
    with Election(other, "boss").observe(seen.append):
        until(lambda: len(seen) == 1)
        leadership.proclaim(b"1")
        until(lambda: len(seen) == 2)
        found = Election(other, "boss").leader()
        assert found is not None
        assert (found.data, found.term, found.name) == (b"1", leadership.term, "one")
        assert [one.data for one in seen if one is not None] == [b"0", b"1"]
        assert seen[0] is not None
        assert seen[1] == seen[0]._replace(data=b"1")
        with pytest.raises(NameRefused):
            leadership.proclaim(b"." * 300_000)
        many = [leadership.proclaim_future(b"%d" % number) for number in range(100)]
        for one in many:
            one.wait()
        until(lambda: seen[-1] is not None and seen[-1].data == b"99")


def test_an_old_leader_cannot_proclaim(session: Session, other: Session) -> None:
    leadership = Election(session, "boss").campaign(timeout=5)
    waiting = Election(other, "boss").campaign_future(timeout=20, data=b"new")
    until(lambda: len(session.nodes.children("/elections/boss")) == 2)
    other.nodes.delete(leadership.path)  # it does not know yet
    second = waiting.wait()
    with pytest.raises(LeaseLost, match="removed"):
        leadership.proclaim(b"old")
    assert leadership.lost.is_set()
    found = Election(session, "boss").leader()
    assert found is not None
    assert (found.data, found.term) == (b"new", second.term)
    second.release()
    with pytest.raises(LeaseLost, match="released"):
        second.proclaim(b"late")


def test_run_calls_the_function_while_leading_and_resigns(session: Session, other: Session) -> None:
    election = Election(session, "boss")

    def work(leadership: Leadership) -> int:
        leadership.check()
        assert election.state == "leading"
        return leadership.term

    term = election.run(work, timeout=10)
    assert election.state == "idle"
    assert Election(other, "boss").run(lambda leadership: leadership.term, timeout=10) > term

    def fail(_leadership: Leadership) -> None:
        raise KeyError("work")

    with pytest.raises(KeyError):
        election.run(fail, timeout=10)
    held = Election(other, "boss").campaign(timeout=5)
    with pytest.raises(AcquireTimeout):
        election.run(work, timeout=0.2)
    held.release()
    for terms in (0, -1, 1.5):
        with pytest.raises(ConfigError):
            election.run(work, terms=terms)  # type: ignore[arg-type]


def test_run_goes_on_with_another_term_after_a_loss(zookeeper: str, session: Session) -> None:
    terms: list[int] = []

    def work(leadership: Leadership) -> str:
        terms.append(leadership.term)
        if len(terms) < 3:
            expire(session, zookeeper)
            assert leadership.lost.wait(10)
            if len(terms) == 2:
                leadership.check()
            return "not to be trusted"
        return "done"

    assert Election(session, "boss").run(work, terms=5, timeout=30) == "done"
    assert terms == sorted(set(terms))
    terms.clear()
    with pytest.raises(LeaseLost):
        Election(session, "boss").run(work, terms=1, timeout=30)
    assert len(terms) == 1


def test_a_lost_error_of_another_lease_is_the_functions_own(session: Session) -> None:
    calls: list[int] = []

    def work(_leadership: Leadership) -> None:
        calls.append(1)
        raise LeaseLost("another one", name="other", token=1, reason="session")

    with pytest.raises(LeaseLost, match="another one"):
        Election(session, "boss").run(work, terms=5)
    assert len(calls) == 1


def test_run_stands_again_when_the_session_is_lost_while_waiting(
    zookeeper: str, session: Session, other: Session
) -> None:
    held = Election(other, "boss").campaign(timeout=5)
    ends: list[object] = []

    def run(terms: int) -> None:
        try:
            ends.append(Election(session, "boss").run(lambda one: one.term, terms=terms))
        except SessionLost as error:
            ends.append(error)

    for terms in (1, 2):
        thread = threading.Thread(target=run, args=(terms,))
        thread.start()
        until(lambda: len(other.nodes.children("/elections/boss")) == 2)
        expire(session, zookeeper)
        if terms == 2:
            until(lambda: len(other.nodes.children("/elections/boss")) == 2)
            held.release()
        thread.join(20)
        assert not thread.is_alive()
    assert isinstance(ends[0], SessionLost)
    assert isinstance(ends[1], int)


async def test_run_async_cancels_the_task_on_loss_and_goes_on(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        ends: list[str] = []

        async def work(leadership: Leadership) -> int:
            if ends:
                return leadership.term
            expiring = asyncio.to_thread(expire, session, zookeeper)
            try:
                await asyncio.gather(expiring, asyncio.sleep(60))
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise
            return 0

        election = Election(session, "boss")
        assert await election.run_async(work, terms=3, timeout=30) > 0
        assert ends == ["cancelled"]
        ends.clear()
        with pytest.raises(LeaseLost):
            await election.run_async(work, terms=1, timeout=30)


async def test_run_async_is_cancelled_with_its_task(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        inside, ends = asyncio.Event(), []

        async def work(_leadership: Leadership) -> None:
            inside.set()
            try:
                await asyncio.sleep(60)
            finally:
                ends.append("ended")

        election = Election(session, "boss")
        running = asyncio.create_task(election.run_async(work))
        await asyncio.wait_for(inside.wait(), 10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert ends == ["ended"]
        assert election.state == "idle"
        with pytest.raises(RuntimeError, match="event loop"):
            election.run(lambda _: None)
