"""An agent that comes and goes, on real servers, its leader played by hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agentwork import CONFIG, SESSION, Work, give, queue_of
from tests.integration.byhand import Leader, wait_for
from zkcoord import Agent, Queue
from zkcoord.config import AgentConfig
from zkcoord.core.records import DidReturn, DidSucceed
from zkcoord.errors import ConfigError, NodeMissing
from zkcoord.queue import ledger as ledgers


@pytest.fixture
def work() -> Iterator[Work]:
    made = Work()
    yield made
    made.gate.set()


@pytest.fixture
def leader(kafka: str, zookeeper: str, queue_name: str) -> Iterator[Leader]:
    made = Leader(kafka, zookeeper, queue_name)
    yield made
    made.close()


@pytest.fixture
def queue(leader: Leader, work: Work) -> Queue:
    return queue_of(leader, work)


def test_drain_finishes_what_runs_and_returns_the_rest(
    leader: Leader, queue: Queue, work: Work
) -> None:
    agent = Agent(queue, slots=1, config=CONFIG, session=SESSION)
    agent.start()
    inbox, incarnation = agent.inbox, agent.incarnation
    assert inbox is not None
    give(leader, agent, leader.run("h", "hold"))
    leader.started("h")
    give(leader, agent, leader.run("waits", "add", 1, 2))
    wait_for("its receipt", lambda: leader.about("waits"))
    outcome: list[bool] = []
    stopping = threading.Thread(target=lambda: outcome.append(agent.stop()))
    stopping.start()
    end = leader.end_of("waits")
    assert isinstance(end, DidReturn)
    wait_for("the mark", lambda: leader.agents()[inbox].draining)
    leader.send(inbox, incarnation, leader.run("too late", "add", 1, 2))
    assert isinstance(leader.end_of("too late"), DidReturn)
    work.gate.set()
    assert isinstance(leader.end_of("h"), DidSucceed)
    stopping.join(20)
    assert outcome == [True]
    assert work.runs == []
    wait_for("the claim to go", lambda: not leader.agents())


def test_a_drain_that_takes_too_long_returns_what_runs(
    leader: Leader, queue: Queue, work: Work
) -> None:
    config = AgentConfig(slots=2, drain_s=0.1, grace_s=0.1)
    agent = Agent(queue, config=config, session=SESSION)
    agent.start()
    give(leader, agent, leader.run("n", "nap", 30), leader.run("s", "stubborn"))
    leader.started("n")
    leader.started("s")
    assert agent.stop() is False
    assert isinstance(leader.end_of("n"), DidReturn)
    assert isinstance(leader.end_of("s"), DidReturn)
    assert work.stopped.is_set()


def test_halt_gives_back_at_once(leader: Leader, queue: Queue, work: Work) -> None:
    agent = Agent(queue, config=CONFIG, session=SESSION)
    agent.start()
    give(leader, agent, leader.run("h", "hold"))
    leader.started("h")
    assert agent.stop(drain=False) is False
    assert isinstance(leader.end_of("h"), DidReturn)


def test_more_agents_than_inboxes_grow_the_topic(leader: Leader, queue: Queue) -> None:
    agents = [Agent(queue, slots=1, session=SESSION, name=f"a{n}") for n in range(6)]
    try:
        for agent in agents:
            agent.start()
        assert len({agent.inbox for agent in agents}) == 6
        last = max(agents, key=lambda agent: agent.inbox or 0)
        give(leader, last, leader.run("a", "add", 1, 2))
        assert isinstance(leader.end_of("a"), DidSucceed)
    finally:
        for agent in agents:
            agent.stop()


def test_old_records_of_an_inbox_concern_no_newcomer(
    leader: Leader, queue: Queue, work: Work
) -> None:
    first = Agent(queue, slots=1, session=SESSION)
    first.start()
    inbox, incarnation = first.inbox, first.incarnation
    first.stop()
    leader.send(inbox, incarnation, leader.run("stale", "add", 1, 2))
    second = Agent(queue, slots=1, session=SESSION)
    second.start()
    try:
        assert second.incarnation is not None
        assert incarnation is not None
        assert second.incarnation > incarnation
        leader.send(second.inbox, incarnation, leader.run("stale too", "add", 1, 2))
        give(leader, second, leader.run("m", "multiply", 1, 1))
        leader.end_of("m")
        assert work.runs == ["multiply"]
    finally:
        second.stop()


def test_the_ledger_has_a_line_per_start_and_end(
    leader: Leader, queue: Queue, tmp_path: Path
) -> None:
    path = str(tmp_path / "ledger")
    config = AgentConfig(slots=2, ledger=path)
    with Agent(queue, config=config, session=SESSION, name="one") as agent:
        give(leader, agent, leader.run("a", "add", 1, 2), leader.run("f", "fail", "x", attempt=2))
        leader.end_of("a")
        leader.end_of("f", 2)
    lines = ledgers.read(path)
    told = [(line.id, line.attempt, line.event, line.outcome) for line in lines]
    assert sorted(told) == [
        ("a", 1, "end", "succeeded"),
        ("a", 1, "start", ""),
        ("f", 2, "end", "error"),
        ("f", 2, "start", ""),
    ]
    assert {line.agent for line in lines} == {"one"}


async def test_it_works_inside_asyncio(leader: Leader, queue: Queue) -> None:
    async with Agent(queue, config=CONFIG, session=SESSION) as agent:
        order = leader.run("a", "add", 1, 2)
        await asyncio.to_thread(give, leader, agent, order)
        end = await asyncio.to_thread(leader.end_of, "a")
        assert isinstance(end, DidSucceed)


def test_no_queue_is_a_clear_error(kafka: str, zookeeper: str, queue_name: str) -> None:
    queue = Queue(queue_name, kafka=kafka, zookeeper=zookeeper)
    for wrong in ("2", 2.0, True):
        with pytest.raises(ConfigError, match="slots: must be a whole number, not"):
            Agent(queue, slots=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no tasks"):
        Agent(queue)

    @queue.task()
    async def nothing() -> None:
        return None

    before = threading.active_count()
    with pytest.raises(NodeMissing, match="there is no queue"):
        Agent(queue, session=SESSION).start()
    wait_for("its threads to end", lambda: threading.active_count() <= before)
