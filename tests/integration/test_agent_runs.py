"""An agent on real servers, its leader played by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.agentwork import CONFIG, SESSION, Work, give, queue_of
from tests.integration.byhand import Leader, wait_for
from zkcoord import Agent, AttemptStopped, Queue
from zkcoord.core.records import Cancel, DidFail, DidHave, DidReceive, DidSucceed


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


@pytest.fixture
def agent(queue: Queue) -> Iterator[Agent]:
    made = Agent(queue, config=CONFIG, session=SESSION, name="one")
    made.start()
    yield made
    made.stop(drain=False)


def test_it_claims_an_inbox_and_says_who_it_is(leader: Leader, agent: Agent) -> None:
    assert agent.inbox is not None
    info = leader.agents()[agent.inbox]
    assert info.name == "one"
    assert info.slots == 4
    assert "add" in info.tasks
    assert not info.draining


def test_a_second_agent_of_the_same_name_is_warned_about(
    agent: Agent, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    for name, warnings in (("one", 1), ("two", 0)):
        caplog.clear()
        with Agent(queue, config=CONFIG, session=SESSION, name=name):
            pass
        found = [r for r in caplog.records if "is called 'one' too" in r.getMessage()]
        assert len(found) == warnings
        assert all(record.levelname == "WARNING" for record in found)


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
