"""Handing leadership to a named candidate, on a real server: never two leaders, terms rise."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.waiting import until
from zkcoord.errors import CandidateMissing, ConfigError, LeaseLost
from zkcoord.recipes import Election, Leader, Leadership
from zkcoord.zk import Session
from zkcoord.zk.call import Call
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Multi

FOLDER = "/elections/boss"


def waiting(session: Session) -> int:
    return len(session.nodes.children(FOLDER))


def line_up(sessions: list[Session], first: int = 1) -> list[Promise[Leadership]]:
    """Candidates c1, c2, … in this order."""
    there = waiting(sessions[0])
    futures = []
    for number, session in enumerate(sessions, first):
        futures.append(Election(session, "boss", label=f"c{number}").campaign_future(timeout=30))
        there += 1
        until(lambda wanted=there: waiting(sessions[0]) == wanted)  # type: ignore[misc]
    return futures


def test_the_chosen_one_leads_and_those_between_wait_behind_all(
    session: Session, other: Session
) -> None:
    leader = Election(session, "boss", label="c0").campaign(timeout=5)
    c1, c2, c3, c4 = line_up([session, other, other, session])
    leader.transfer("c3")
    with pytest.raises(LeaseLost, match="released"):
        leader.check()
    third = c3.wait()
    assert third.term > leader.term
    until(lambda: waiting(session) == 4)  # the others stand again
    assert not any(one.done() for one in (c1, c2, c4))
    third.check()
    third.release()
    fourth = c4.wait()  # it was behind the chosen one and stays in front of the others
    assert fourth.term > third.term
    terms = [fourth.term]
    fourth.release()
    order = []
    left = [c1, c2]
    while left:
        until(lambda: any(one.done() for one in left))
        for one in [one for one in left if one.done()]:
            left.remove(one)
            order.append(one)
            terms.append(one.result().term)
            one.result().release(timeout=5)
    assert terms == sorted(terms)
    assert waiting(session) == 0
    until(lambda: session.ephemeral_bytes == other.ephemeral_bytes == 0)
    until(lambda: len(session.link.watches) + len(other.link.watches) == 0)


def test_a_session_can_be_chosen_and_the_next_in_line_too(session: Session, other: Session) -> None:
    leader = Election(session, "boss", label="c0").campaign(timeout=5)
    (c1,) = line_up([other])
    leader.transfer(other.id)
    second = c1.wait()
    (c2,) = line_up([session], 2)
    second.transfer("c2")
    c2.wait().release()


def test_who_is_not_there_is_an_error_and_the_leader_goes_on(
    session: Session, other: Session
) -> None:
    leader = Election(session, "boss", label="c0").campaign(timeout=5)
    (c1,) = line_up([other])
    with pytest.raises(CandidateMissing, match="waiting: 'c1'"):
        leader.transfer("nobody")
    with pytest.raises(CandidateMissing):
        leader.transfer("c0")  # itself
    with pytest.raises(ConfigError):
        leader.transfer("c1", timeout=-1)
    leader.check()
    assert not c1.done()
    leader.release()
    with pytest.raises(LeaseLost):
        leader.transfer("c1")
    c1.wait().release()


def test_observers_see_the_chosen_one_next(session: Session, other: Session) -> None:
    seen: list[Leader | None] = []
    leader = Election(session, "boss", label="c0").campaign(timeout=5)
    c1, c2 = line_up([session, other])
    with Election(other, "boss").observe(seen.append):
        until(lambda: len(seen) == 1)
        leader.transfer("c2")
        until(lambda: len(seen) == 2)
    assert [one.name for one in seen if one is not None] == ["c0", "c2"]
    c2.wait().release()
    c1.wait().release()


def test_a_leader_whose_node_is_gone_hands_nothing_over(session: Session, other: Session) -> None:
    leader = Election(session, "boss", label="c0").campaign(timeout=5)
    (c1,) = line_up([other])
    other.nodes.delete(leader.path)
    with pytest.raises(LeaseLost, match="removed"):
        leader.transfer("c1")
    assert leader.lost.is_set()
    c1.wait().release()


def test_the_leader_stops_believing_before_anything_is_written(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Election(session, "boss", label="c0").campaign(timeout=5)
    (c1,) = line_up([other])
    believed: list[float] = []
    submit = session.link.submit

    def spy(call: Call) -> None:
        if isinstance(call.request, Multi):
            believed.append(leader.valid_for())
        submit(call)

    monkeypatch.setattr(session.link, "submit", spy)
    leader.transfer("c1")
    assert believed == [0.0]
    c1.wait().release()


def test_never_two_leaders_while_everybody_hands_over(zookeeper: str) -> None:
    lock = threading.Lock()
    leading: list[str] = []
    terms: list[int] = []
    doubled: list[list[str]] = []
    names = [f"n{number}" for number in range(4)]

    def work(name: str) -> int:
        handed = 0
        with Session(zookeeper, timeout=10, name=name) as session:
            election = Election(session, "boss")
            for turn in range(8):
                leadership = election.campaign(timeout=60)
                with lock:
                    leading.append(name)
                    terms.append(leadership.term)
                    if len(leading) > 1:
                        doubled.append(list(leading))
                threading.Event().wait(0.002)
                with lock:
                    leading.remove(name)
                try:
                    leadership.transfer(names[(names.index(name) + 1 + turn % 3) % 4])
                    handed += 1
                except CandidateMissing:
                    leadership.leave(quiet=True)
        return handed

    with ThreadPoolExecutor(4) as threads:
        handed = sum(threads.map(work, names))
    assert doubled == []
    assert terms == sorted(terms)
    assert len(set(terms)) == 32
    assert handed > 5
