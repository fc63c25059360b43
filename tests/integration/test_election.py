"""Leader election, on a real server."""

import asyncio

import pytest

from tests.waiting import until
from zkcoord.errors import AcquireTimeout, LeaseLost, NameRefused
from zkcoord.recipes import Election, Leader
from zkcoord.zk import Session


def test_the_first_to_campaign_leads_and_resigning_hands_over(
    session: Session, other: Session
) -> None:
    first = Election(session, "boss").campaign(timeout=5, data=b"here")
    second = Election(other, "boss").campaign_future(timeout=10)
    until(lambda: len(session.nodes.children("/elections/boss")) == 2)
    assert not second.done()
    first.release()
    leadership = second.wait()
    assert leadership.term > first.term
    leadership.check()
    with pytest.raises(LeaseLost):
        first.check()


def test_the_term_is_the_czxid_and_the_data_is_published(session: Session, other: Session) -> None:
    election = Election(session, "boss", label="worker-1")
    assert election.leader() is None
    leadership = election.campaign(timeout=5, data=b"\x00\xffhere")
    found = Election(other, "boss").leader()
    assert found is not None
    assert (found.name, found.term, found.data) == ("worker-1", leadership.term, b"\x00\xffhere")
    assert session.nodes.get(leadership.path)[1].czxid == leadership.term
    assert found.pid > 0
    leadership.release(timeout=5)
    assert Election(other, "boss").leader() is None


def test_observers_see_every_leader_once_and_then_nobody(session: Session, other: Session) -> None:
    seen: list[Leader | None] = []
    with Election(other, "boss").observe(seen.append):
        until(lambda: seen == [None])
        with Election(session, "boss").lead(timeout=5, data=b"1") as first:
            waiting = Election(other, "boss").campaign_future(data=b"2")
            until(lambda: len(seen) == 2)
        second = waiting.wait()
        until(lambda: len(seen) >= 3)
        second.release()
        until(lambda: seen[-1] is None and len(seen) >= 4)
    leaders = [leader for leader in seen if leader is not None]
    assert [leader.data for leader in leaders] == [b"1", b"2"]
    assert [leader.term for leader in leaders] == [first.term, second.term]
    until(lambda: len(other.link.watches) == 0)


def test_an_observer_sees_the_end_of_a_closed_session(session: Session, other: Session) -> None:
    seen: list[Leader | None] = []
    Election(session, "boss").campaign(timeout=5)
    with Election(other, "boss").observe(seen.append):
        until(lambda: len(seen) == 1 and seen[0] is not None)
        session.close()
        until(lambda: seen[-1] is None)


def test_losing_the_session_ends_the_leadership(session: Session) -> None:
    leadership = Election(session, "boss").campaign(timeout=5)
    said: list[str] = []
    leadership.on_lost(lambda: said.append("stopped"))
    session.close()
    assert leadership.lost.wait(5)
    until(lambda: said == ["stopped"])
    with pytest.raises(LeaseLost, match="session"):
        leadership.check()


def test_cancelling_withdraws_and_a_try_does_not_wait(session: Session, other: Session) -> None:
    leadership = Election(session, "boss").campaign(timeout=5)
    candidate = Election(other, "boss").campaign_future()
    until(lambda: len(session.nodes.children("/elections/boss")) == 2)
    assert candidate.cancel()
    until(lambda: len(session.nodes.children("/elections/boss")) == 1)
    with pytest.raises(AcquireTimeout, match="held by one"):
        Election(other, "boss").campaign(timeout=0)
    leadership.release()


def test_names_are_checked(session: Session) -> None:
    with pytest.raises(NameRefused):
        Election(session, "a/b")


async def test_asyncio(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        election, terms = Election(session, "boss"), []

        async def lead() -> None:
            async with election.lead(timeout=30) as leadership:
                terms.append(leadership.term)
                leader = await election.leader_future()
                assert leader is not None
                assert leader.term == leadership.term

        await asyncio.gather(*(lead() for _ in range(10)))
        assert terms == sorted(terms)
        assert len(set(terms)) == 10
