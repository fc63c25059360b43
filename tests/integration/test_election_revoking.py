"""Asking a leader to resign or to hand over, on a real server."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.waiting import until
from zkcoord.errors import CandidateMissing, LeaseLost, NameRefused, NodeMissing, NotRevocable
from zkcoord.recipes import Election, Leadership, Revocation
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise

FOLDER = "/elections/boss"


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def standing(session: Session) -> int:
    try:
        return len(session.nodes.children(FOLDER))
    except NodeMissing:
        return 0


def line_up(session: Session, *labels: str) -> list[Promise[Leadership]]:
    there, futures = standing(session), []
    for place, label in enumerate(labels, there + 1):
        futures.append(Election(session, "boss", label=label).campaign_future(timeout=60))
        until(lambda wanted=place: standing(session) == wanted)  # type: ignore[misc]
    return futures


class Office:
    """A function for `run` that leads until it is told to stop, and counts its terms."""

    def __init__(self) -> None:
        self.terms: list[int] = []
        self.ended: list[str] = []

    def lead(self, leadership: Leadership) -> None:
        self.terms.append(leadership.term)
        assert leadership.lost.wait(60)
        with pytest.raises(LeaseLost) as caught:
            leadership.check()
        self.ended.append(caught.value.reason)


def test_a_leader_who_listens_hears_who_asks_why_and_for_whom(
    session: Session, other: Session
) -> None:
    heard: list[Revocation] = []
    leadership = Election(session, "boss").campaign(timeout=5, on_revoke=heard.append)
    line_up(other, "c1")
    leadership.proclaim(b"at work")  # does not make it deaf
    asked = Election(other, "boss").revoke("a new release", to="c1", by="planner")
    assert asked.token == leadership.term
    until(lambda: heard)
    assert (heard[0].reason, heard[0].by, heard[0].to) == ("a new release", "planner", "c1")
    leadership.check()  # it is the leader's to decide
    leadership.proclaim(b"still at work")
    Election(other, "boss").revoke("please")
    until(lambda: len(heard) == 2)
    assert heard[1].to == ""
    leader = Election(other, "boss").leader()
    assert leader is not None
    assert leader.data == b"still at work"


def test_it_is_told_why_nobody_was_asked(session: Session, other: Session) -> None:
    election = Election(other, "boss")
    with pytest.raises(NodeMissing, match="nobody leads"):
        election.revoke("x")
    deaf = Election(session, "boss", label="c0").campaign(timeout=5)
    with pytest.raises(NotRevocable, match="c0"):
        election.revoke("x")
    deaf.release(timeout=5)
    heard: list[Revocation] = []
    leader = Election(session, "boss", label="c0").campaign(timeout=5, on_revoke=heard.append)
    line_up(other, "c1")
    with pytest.raises(CandidateMissing, match="'c1'"):
        election.revoke("x", to="c2")
    with pytest.raises(CandidateMissing, match="leads already"):
        election.revoke("x", to="c0")
    with pytest.raises(NameRefused):
        election.revoke("")
    Election(other, "boss").revoke("at last", to=other.id)
    until(lambda: heard)
    assert [one.reason for one in heard] == ["at last"]
    leader.release()


def test_a_function_that_leads_is_stopped_before_another_leads(
    session: Session, other: Session, pool: ThreadPoolExecutor
) -> None:
    working, end = threading.Event(), threading.Event()

    def lead(leadership: Leadership) -> None:
        working.set()
        assert leadership.lost.wait(60)
        assert end.wait(60)  # it takes a while to stop

    election = Election(session, "boss", label="c0")
    running = pool.submit(election.run, lead)
    assert working.wait(10)
    c1, c2 = line_up(other, "c1", "c2")
    Election(other, "boss").revoke("a new release")
    until(lambda: election.state == "idle")
    assert standing(other) == 3  # nobody leads before the work has ended
    assert not c1.done()
    end.set()
    c1.wait().check()
    with pytest.raises(LeaseLost, match="asked to resign"):
        running.result(10)
    assert not c2.done()


def test_after_resigning_it_stands_again_behind_all(session: Session, other: Session) -> None:
    office = Office()
    election = Election(session, "boss", label="c0")

    def run() -> None:
        with pytest.raises(LeaseLost, match="asked to resign"):
            election.run(office.lead, terms=2)

    runner = threading.Thread(target=run)
    runner.start()
    until(lambda: office.terms)
    c1, c2 = line_up(other, "c1", "c2")
    Election(other, "boss").revoke("make room", to="c2")
    second = c2.wait()
    assert not c1.done()
    second.release()
    c1.wait().release()
    until(lambda: len(office.terms) == 2)
    Election(other, "boss").revoke("once more")
    runner.join(20)
    assert not runner.is_alive()
    assert office.ended == ["revoked", "revoked"]
    assert office.terms[0] < second.term < office.terms[1]
    until(lambda: standing(other) == 0)


def test_in_asyncio_the_task_is_cancelled_and_the_chosen_one_leads(
    session: Session, other: Session
) -> None:
    cancelled: list[bool] = []

    async def lead(leadership: Leadership) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(leadership.lost.is_set())
            raise

    async def main() -> None:
        with pytest.raises(LeaseLost) as caught:
            await Election(session, "boss", label="c0").run_async(lead)
        assert caught.value.reason == "revoked"

    started = threading.Event()
    runner = threading.Thread(target=lambda: asyncio.run(main()))
    runner.start()
    assert started.wait(10)
    c1, c2 = line_up(other, "c1", "c2")
    Election(other, "boss").revoke("make room", to="c2")
    c2.wait().check()
    runner.join(10)
    assert not runner.is_alive()
    assert cancelled == [True]
    assert not c1.done()


def test_a_candidate_that_goes_away_leaves_it_to_the_next(
    session: Session, other: Session, pool: ThreadPoolExecutor
) -> None:
    working, end = threading.Event(), threading.Event()

    def lead(leadership: Leadership) -> None:
        working.set()
        assert leadership.lost.wait(60)
        assert end.wait(60)

    election = Election(session, "boss", label="c0")
    running = pool.submit(election.run, lead)
    assert working.wait(10)
    c1, c2 = line_up(other, "c1", "c2")
    Election(other, "boss").revoke("make room", to="c2")
    until(lambda: election.state == "idle")
    c2.cancel()
    until(lambda: standing(other) == 2)
    end.set()
    c1.wait().check()
    with pytest.raises(LeaseLost, match="asked to resign"):
        running.result(10)
