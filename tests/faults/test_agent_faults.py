"""An agent whose session, broker or process is hurt, its leader played by hand."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fleet import Process
from tests.integration.byhand import Leader, wait_for
from zkcoord import Agent, Queue, TaskContext
from zkcoord.config import AgentConfig, KafkaConfig, SessionConfig
from zkcoord.core.records import DidFail, DidReturn, DidSucceed
from zkcoord.local import Proxy, Stack
from zkcoord.queue import ledger as ledgers

SESSION = SessionConfig(timeout_s=4.0)


@pytest.fixture
def leader(kafka: str, zookeeper: str, queue_name: str) -> Iterator[Leader]:
    made = Leader(kafka, zookeeper, queue_name)
    yield made
    made.close()


class Tasks:
    """A queue whose tasks tell what became of them."""

    def __init__(self, name: str, kafka: str | KafkaConfig, zookeeper: str) -> None:
        self.queue = Queue(name, kafka=kafka, zookeeper=zookeeper)
        self.cancelled = threading.Event()
        self.told = threading.Event()
        self.gate = threading.Event()
        self.runs: list[str] = []

        @self.queue.task()
        async def nap(seconds: float) -> None:
            self.runs.append("nap")
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise

        @self.queue.task()
        def hold(ctx: TaskContext) -> str:
            self.runs.append("hold")
            while not self.gate.wait(0.01):
                if ctx.cancelled.is_set():
                    self.told.set()
                    ctx.check()
            return "released"

        @self.queue.task()
        async def add(a: int, b: int) -> int:
            self.runs.append("add")
            return a + b


def test_a_lost_session_stops_the_work_and_the_agent_joins_again(leader: Leader) -> None:
    servers, _, chroot = leader.session.hosts.partition("/")
    with Proxy(target=servers) as proxy:
        tasks = Tasks(leader.queue, leader.config, f"{proxy.address}/{chroot}")
        agent = Agent(tasks.queue, config=AgentConfig(slots=4, grace_s=1.0), session=SESSION)
        agent.start()
        try:
            inbox, first = agent.inbox, agent.incarnation
            leader.send(inbox, first, leader.run("n", "nap", 60), leader.run("h", "hold"))
            leader.started("n")
            leader.started("h")
            proxy.blackhole(up=True, down=True)
            assert tasks.cancelled.wait(20)
            assert tasks.told.wait(20)
            # While cut off it starts nothing, though Kafka still brings orders.
            leader.send(inbox, first, leader.run("later", "add", 1, 2))
            proxy.heal()
            wait_for("a new incarnation", lambda: agent.incarnation not in (None, first))
            assert agent.incarnation is not None
            assert first is not None
            assert agent.incarnation > first
            order = leader.run("a", "add", 1, 2)
            leader.send(agent.inbox, agent.incarnation, order)
            assert isinstance(leader.end_of("a"), DidSucceed)
            assert leader.records[-1].incarnation == agent.incarnation
            # The first two run side by side; only the third must be the last.
            assert sorted(tasks.runs[:2]) == ["hold", "nap"]
            assert tasks.runs[2:] == ["add"]
            # What was stopped by the loss is not reported: the leader gives it to others.
            ends = (DidSucceed, DidFail, DidReturn)
            said = [r for r in leader.about("n") + leader.about("h") if isinstance(r, ends)]
            assert said == []
            wait_for("one claim only", lambda: len(leader.agents()) == 1)
        finally:
            agent.stop(drain=False)


def test_a_short_cut_is_no_reason_to_stop(leader: Leader) -> None:
    servers, _, chroot = leader.session.hosts.partition("/")
    with Proxy(target=servers) as proxy:
        tasks = Tasks(leader.queue, leader.config, f"{proxy.address}/{chroot}")
        agent = Agent(tasks.queue, session=SESSION)
        agent.start()
        try:
            first = agent.incarnation
            leader.send(agent.inbox, first, leader.run("h", "hold"))
            leader.started("h")
            proxy.cut()
            leader.send(agent.inbox, first, leader.run("a", "add", 1, 2))
            assert isinstance(leader.end_of("a"), DidSucceed)
            tasks.gate.set()
            assert isinstance(leader.end_of("h"), DidSucceed)
            assert agent.incarnation == first
        finally:
            agent.stop(drain=False)


def test_reports_survive_a_broker_that_is_away(own_stack: Stack, queue_name: str) -> None:
    leader = Leader(own_stack.kafka, own_stack.zookeeper, queue_name)
    # A short delivery time, so that the client gives up on records and the agent sends them again.
    config = KafkaConfig(bootstrap=own_stack.kafka, request_timeout_s=1.0, delivery_timeout_s=1.0)
    tasks = Tasks(queue_name, config, own_stack.zookeeper)
    agent = Agent(tasks.queue, slots=4, session=SESSION)
    agent.start()
    try:
        first = agent.incarnation
        orders = [leader.run(f"h{n}", "hold") for n in range(4)]
        leader.send(agent.inbox, first, *orders)
        for order in orders:
            leader.started(order.id)
        own_stack.brokers[0].kill()
        tasks.gate.set()
        wait_for("the tasks to end", lambda: agent.busy == 0)
        crew = agent._crew
        assert crew is not None
        wait_for("a failed delivery", lambda: crew.reporter.resent > 0)
        own_stack.brokers[0].start()
        for order in orders:
            assert isinstance(leader.end_of(order.id), DidSucceed)
        leader.send(agent.inbox, first, leader.run("a", "add", 1, 2))
        assert isinstance(leader.end_of("a"), DidSucceed)
        assert agent.incarnation == first
        wait_for("all to be acknowledged", lambda: crew.reporter.unacknowledged == 0)
    finally:
        agent.stop(drain=False)
        leader.close()


@pytest.fixture
def process(leader: Leader, tmp_path: Path) -> Iterator[Process]:
    ledger = str(tmp_path / "ledger")
    servers = ["--kafka", leader.config.bootstrap, "--zookeeper", leader.session.hosts]
    options = [leader.queue, "--ledger", ledger, "--slots", "2", *servers]
    made = Process("agent", ["tests.faults.programs.agent", *options], tmp_path)
    try:
        wait_for(f"the agent to join; {made.text()}", leader.agents)
        yield made
    finally:
        made.kill()


def incarnation_of(leader: Leader) -> tuple[int, int]:
    [inbox] = leader.agents()
    path = f"/queues/{leader.queue}/inbox/{inbox}"
    return inbox, leader.session.nodes.get(path)[1].czxid


def test_sigterm_drains_and_a_clean_end_is_zero(leader: Leader, process: Process) -> None:
    inbox, incarnation = incarnation_of(leader)
    leader.send(inbox, incarnation, leader.run("n", "nap", seconds=1.0, answer=5))
    leader.started("n")
    process.send(signal.SIGTERM)
    end = leader.end_of("n")
    assert isinstance(end, DidSucceed)
    assert process.child.wait(20) == 0
    assert leader.agents() == {}


def test_a_second_sigterm_gives_back_at_once(leader: Leader, process: Process) -> None:
    inbox, incarnation = incarnation_of(leader)
    leader.send(inbox, incarnation, leader.run("n", "nap", seconds=60.0))
    leader.started("n")
    process.send(signal.SIGTERM)
    wait_for("the mark", lambda: leader.agents()[inbox].draining)
    process.send(signal.SIGTERM)
    assert isinstance(leader.end_of("n"), DidReturn)
    process.child.wait(20)


def test_a_killed_agent_leaves_its_ledger(leader: Leader, process: Process, tmp_path: Path) -> None:
    inbox, incarnation = incarnation_of(leader)
    leader.send(inbox, incarnation, leader.run("n", "nap", seconds=60.0))
    leader.started("n")
    process.kill()
    [line] = ledgers.read(str(tmp_path / "ledger"))
    assert (line.id, line.attempt, line.event) == ("n", 1, "start")
    assert line.incarnation == incarnation


def test_paused_past_its_session_it_starts_nothing_old(
    leader: Leader, process: Process, tmp_path: Path
) -> None:
    inbox, incarnation = incarnation_of(leader)
    leader.send(inbox, incarnation, leader.run("n", "nap", seconds=60.0))
    leader.started("n")
    process.pause()
    leader.send(inbox, incarnation, leader.run("stale", "nap"))
    wait_for("the session to end", lambda: leader.agents() == {})
    process.resume()
    wait_for("the agent to join again", leader.agents)
    inbox, again = incarnation_of(leader)
    assert again > incarnation
    leader.send(inbox, again, leader.run("fresh", "nap"))
    assert isinstance(leader.end_of("fresh"), DidSucceed)
    lines = ledgers.read(str(tmp_path / "ledger"))
    assert "stale" not in {line.id for line in lines}
    ends = {line.id: line.outcome for line in lines if line.event == "end"}
    assert ends == {"n": "lost", "fresh": "succeeded"}
