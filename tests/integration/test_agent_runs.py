"""An agent on real servers, its leader played by hand."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.byhand import Leader, wait_for
from zkcoord import Agent, AttemptStopped, Discard, Queue, Retry, TaskContext
from zkcoord.config import AgentConfig, SessionConfig
from zkcoord.core.records import Cancel, DidFail, DidHave, DidReceive, DidReturn, DidSucceed
from zkcoord.errors import ConfigError, NodeMissing
from zkcoord.queue import ledger as ledgers


class Work:
    """The tasks of these tests, and what became of them."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.gate = threading.Event()
        self.stopped = threading.Event()
        self.contexts: list[TaskContext] = []


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


def queue_of(leader: Leader, work: Work) -> Queue:
    queue = Queue(leader.queue, kafka=leader.config.bootstrap, zookeeper=leader.session.hosts)

    @queue.task()
    async def add(a: int, b: int) -> int:
        work.runs.append("add")
        return a + b

    @queue.task()
    def multiply(a: int, b: int) -> int:
        work.runs.append("multiply")
        return a * b

    @queue.task()
    async def nap(seconds: float) -> str:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            work.stopped.set()
            raise
        return "rested"

    @queue.task()
    def hold(ctx: TaskContext) -> str:
        work.contexts.append(ctx)
        while not work.gate.is_set():
            if ctx.cancelled.wait(0.005):
                work.stopped.set()
                ctx.check()
        return "released"

    @queue.task()
    def stubborn() -> str:
        work.gate.wait(30)
        return "at last"

    @queue.task()
    async def odd() -> Any:
        return object()

    @queue.task()
    async def fail(how: str) -> None:
        if how == "retry":
            raise Retry("later", delay=3.5)
        if how == "discard":
            raise Discard("never")
        raise ValueError(f"about {how}")

    return queue


@pytest.fixture
def queue(leader: Leader, work: Work) -> Queue:
    return queue_of(leader, work)


CONFIG = AgentConfig(slots=4, drain_s=5.0, grace_s=0.2)
SESSION = SessionConfig(timeout_s=6.0)


@pytest.fixture
def agent(queue: Queue) -> Iterator[Agent]:
    made = Agent(queue, config=CONFIG, session=SESSION, name="one")
    made.start()
    yield made
    made.stop(drain=False)


def give(leader: Leader, agent: Agent, *orders: Any, **options: Any) -> None:
    leader.send(agent.inbox, agent.incarnation, *orders, **options)


def test_it_claims_an_inbox_and_says_who_it_is(leader: Leader, agent: Agent) -> None:
    assert agent.inbox is not None
    info = leader.agents()[agent.inbox]
    assert info.name == "one"
    assert info.slots == 4
    assert "add" in info.tasks
    assert not info.draining


def test_async_and_thread_handlers_report_their_results(leader: Leader, agent: Agent) -> None:
    give(leader, agent, leader.run("a", "add", 1, 2), leader.run("m", "multiply", 3, b=4))
    a, m = leader.end_of("a"), leader.end_of("m")
    assert isinstance(a, DidSucceed)
    assert isinstance(m, DidSucceed)
    assert (a.result, m.result) == (b"3", b"12")
    assert 0 < a.started <= a.finished
    record = leader.records[-1]
    assert record.agent == "one"
    assert record.incarnation == agent.incarnation
    assert record.partition == agent.inbox
    assert record.term == 7


def test_a_short_attempt_is_not_announced_a_long_one_is(leader: Leader, agent: Agent) -> None:
    give(leader, agent, leader.run("long", "nap", 30), leader.run("short", "add", 1, 2))
    leader.end_of("short")
    started = leader.started("long")
    assert started.started > 0
    assert len(leader.about("short")) == 1


def test_an_attempt_that_waits_for_a_slot_is_received(leader: Leader, agent: Agent) -> None:
    give(leader, agent, *(leader.run(f"n{n}", "nap", 30) for n in range(4)))
    leader.started("n3")
    give(leader, agent, leader.run("waits", "add", 1, 2))
    wait_for("its receipt", lambda: leader.about("waits"))
    assert isinstance(leader.about("waits")[0], DidReceive)
    give(leader, agent, Cancel("n0", 1, "make room"))
    assert isinstance(leader.end_of("waits"), DidSucceed)


def test_a_repeated_order_runs_once(leader: Leader, agent: Agent, work: Work) -> None:
    order = leader.run("a", "add", 1, 2)
    give(leader, agent, order)
    give(leader, agent, order)
    give(leader, agent, order, leader.run("last", "multiply", 1, 1))
    leader.end_of("last")
    leader.end_of("a")
    assert work.runs.count("add") == 1


def test_orders_to_others_and_of_deposed_leaders_are_dropped(
    leader: Leader, agent: Agent, work: Work
) -> None:
    assert agent.incarnation is not None
    leader.send(agent.inbox, agent.incarnation - 1, leader.run("old", "add", 1, 2))
    give(leader, agent, leader.run("m", "multiply", 1, 1), term=9)
    give(leader, agent, leader.run("deposed", "add", 1, 2), term=8)
    give(leader, agent, leader.run("last", "multiply", 1, 1), term=9)
    leader.end_of("last")
    assert work.runs == ["multiply", "multiply"]
    assert leader.about("old") == leader.about("deposed") == []


def test_a_new_term_and_a_hole_are_answered_with_what_is_held(leader: Leader, agent: Agent) -> None:
    give(leader, agent, leader.run("n", "nap", 30))
    wait_for("an answer to a new term", lambda: leader.all_of(DidHave))
    assert leader.all_of(DidHave)[0].attempts == [("n", 1)]
    give(leader, agent, leader.run("a", "add", 1, 2), skip=3)
    wait_for("an answer to the hole", lambda: len(leader.all_of(DidHave)) == 2)
    assert ("n", 1) in leader.all_of(DidHave)[1].attempts


def test_garbage_in_the_inbox_is_survived_and_answered(leader: Leader, agent: Agent) -> None:
    for value in (b"\xff\x00garbage", b"", None):
        leader.producer.send(leader.description.topics.inbox, value, partition=agent.inbox)
    assert leader.producer.flush(10) == 0
    wait_for("an answer", lambda: leader.all_of(DidHave))
    give(leader, agent, leader.run("a", "add", 1, 2))
    assert isinstance(leader.end_of("a"), DidSucceed)


@pytest.mark.parametrize(
    ("task", "args", "kind", "words"),
    [
        ("odd", [], "error", "cannot be written as JSON"),
        ("fail", ["x"], "error", "ValueError: about x"),
        ("fail", ["retry"], "retry", "later"),
        ("fail", ["discard"], "discard", "never"),
        ("add", [1], "malformed", "missing 1 required positional argument"),
        ("add", ["x", None], "error", "TypeError"),
        ("multiply", [1, 2, 3], "malformed", "positional arguments"),
        ("nobody.knows", [], "unknown_task", "no handler"),
    ],
)
def test_failures_say_what_happened(
    leader: Leader, agent: Agent, task: str, args: list[Any], kind: str, words: str
) -> None:
    give(leader, agent, leader.run("t", task, *args))
    end = leader.end_of("t")
    assert isinstance(end, DidFail)
    assert end.kind == kind
    assert words in end.error
    assert end.delay == (3.5 if kind == "retry" else None)


def test_a_record_that_holds_no_call_is_malformed(leader: Leader, agent: Agent) -> None:
    order = leader.run("t", "add")
    order.value = b"[1, 2"
    give(leader, agent, order)
    end = leader.end_of("t")
    assert isinstance(end, DidFail)
    assert end.kind == "malformed"


def test_time_limits_stop_coroutines_and_threads(leader: Leader, agent: Agent, work: Work) -> None:
    give(leader, agent, leader.run("n", "nap", 30, timeout=0.1))
    end = leader.end_of("n")
    assert isinstance(end, DidFail)
    assert (end.kind, end.error) == ("timeout", "over its time limit of 0.1 s")
    assert work.stopped.is_set()
    work.stopped.clear()
    give(leader, agent, leader.run("h", "hold", timeout=0.1))
    end = leader.end_of("h")
    assert isinstance(end, DidFail)
    assert end.kind == "timeout"
    assert work.stopped.is_set()
    with pytest.raises(AttemptStopped, match="over its time limit"):
        work.contexts[0].check()
    assert work.contexts[0].remaining() == 0.0


def test_a_thread_that_does_not_stop_keeps_its_slot(
    leader: Leader, agent: Agent, work: Work
) -> None:
    give(leader, agent, leader.run("s", "stubborn", timeout=0.1))
    end = leader.end_of("s")
    assert isinstance(end, DidFail)
    assert end.kind == "timeout"
    assert agent.busy == 1
    assert agent.inbox is not None
    inbox = agent.inbox
    wait_for("fewer slots offered", lambda: leader.agents()[inbox].slots == 3)
    work.gate.set()
    wait_for("all slots offered again", lambda: leader.agents()[inbox].slots == 4)
    assert agent.busy == 0
    assert len(leader.about("s")) == 2  # its start and its end


def test_a_task_past_its_deadline_is_not_started(leader: Leader, agent: Agent, work: Work) -> None:
    give(leader, agent, leader.run("late", "add", 1, 2, expires_at=time.time() - 1))
    end = leader.end_of("late")
    assert isinstance(end, DidFail)
    assert end.kind == "timeout"
    assert work.runs == []


def test_cancel_stops_what_runs(leader: Leader, agent: Agent, work: Work) -> None:
    give(leader, agent, leader.run("n", "nap", 30), leader.run("h", "hold"))
    leader.started("n")
    leader.started("h")
    give(leader, agent, Cancel("n", 1, "no longer wanted"), Cancel("h", 1, ""))
    for task_id in ("n", "h"):
        end = leader.end_of(task_id)
        assert isinstance(end, DidFail)
        assert end.kind == "cancelled"
    assert work.stopped.is_set()


def test_a_handler_sees_its_context(leader: Leader, agent: Agent, work: Work) -> None:
    expires = time.time() + 60
    order = leader.run("h", "hold", attempt=3, expires_at=expires, timeout=100)
    give(leader, agent, order)
    leader.started("h")
    context = work.contexts[0]
    assert (context.id, context.attempt, context.agent) == ("h", 3, "one")
    assert context.fencing_token == order.fence
    assert context.deadline == expires
    assert 0 < context.remaining() <= 60
    assert context.session is not None
    assert context.session.connected
    context.check()
    work.gate.set()
    assert isinstance(leader.end_of("h", 3), DidSucceed)


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
    with pytest.raises(ConfigError, match="no tasks"):
        Agent(queue)

    @queue.task()
    async def nothing() -> None:
        return None

    before = threading.active_count()
    with pytest.raises(NodeMissing, match="there is no queue"):
        Agent(queue, session=SESSION).start()
    wait_for("its threads to end", lambda: threading.active_count() <= before)
