"""A task's life as the leader decides it."""

from __future__ import annotations

import msgspec
import pytest
from corekit import Stage, decode_batch, fail, names, running, succeed

from zkcoord.config import ClassConfig, QueueConfig, SchedulerConfig, default_classes
from zkcoord.core import results
from zkcoord.core.outputs import Topic
from zkcoord.core.records import (
    Accepted,
    DidStart,
    DidSucceed,
    Duplicate,
    Paused,
    Refused,
    Rejected,
    Reprioritized,
    Run,
    Source,
    Started,
    Succeeded,
)
from zkcoord.core.replica import Replica
from zkcoord.errors import Deposed, StaleTerm

# --- the way through ---


def test_a_task_is_accepted_dispatched_and_succeeds() -> None:
    stage = running(reply=3)
    assert stage.runs() == [("a", 1)]
    stage.report(DidStart("a", 1, 5.0))
    assert stage.step() == [Started("a", 1, 5.0)]
    stage.report(succeed("a"))
    assert stage.step() == [Succeeded("a", 1, b'"fine"', 1.0, 2.0)]
    [output] = stage.sent(Topic.RESULTS)
    assert (output.partition, output.key) == (3, b"a")
    assert results.decode(output.value).result == msgspec.Raw(b'"fine"')
    assert not stage.replica.state.tasks


def test_nothing_is_sent_before_its_fact_was_read_back() -> None:
    stage = Stage()
    stage.agent()
    stage.submit("a")
    stage.decide()
    assert stage.leader.in_flight == stage.log[-1]
    assert stage.leader.reminders(stage.now) == []
    assert not stage.outputs
    with pytest.raises(RuntimeError, match="in flight"):
        stage.leader.decide(stage.inputs, stage.now)
    stage.follow()
    assert stage.runs() == [("a", 1)]


def test_an_order_carries_its_log_offset_as_fence() -> None:
    stage = running()
    [order] = stage.orders()
    assert isinstance(order, Run)
    assert order.fence == len(stage.log) - 1
    stage.report(fail("a", kind="retry", delay=0.0))
    stage.step()
    assert [o.fence for o in stage.orders() if isinstance(o, Run)] == [
        len(stage.log) - 2,
        len(stage.log) - 1,
    ]


def test_facts_and_the_offsets_they_came_from_stand_in_one_record() -> None:
    stage = Stage(own=SchedulerConfig(batch_facts_max=4))
    for i in range(10):
        stage.submit(f"t{i}")
    taken = 0
    while stage.inputs.size:
        facts = stage.step()
        batch = decode_batch(stage.log[-1])
        taken += len(facts)
        assert batch.inputs == [(Source.NORMAL, 0, taken)]
        assert 0 < len(facts) <= 4
    assert taken == 10
    assert stage.leader.consumed == {(Source.NORMAL, 0): 10}


def test_a_batch_stays_within_its_bytes() -> None:
    stage = Stage(own=SchedulerConfig(batch_bytes_max=65_536))
    for i in range(20):
        stage.submit(f"t{i}", body=b'{"task": "t.work", "args": ["%s"]}' % (b"x" * 20_000))
    while stage.inputs.size:
        assert stage.step()
        assert len(stage.log[-1]) <= 65_536


def test_a_single_large_task_still_goes() -> None:
    stage = Stage(own=SchedulerConfig(batch_bytes_max=65_536))
    stage.submit("big", body=b'{"task": "t.work", "args": ["%s"]}' % (b"x" * 300_000))
    assert names(stage.step()) == ["Accepted"]


def test_a_class_keeps_its_share_of_a_batch() -> None:
    stage = Stage(own=SchedulerConfig(batch_facts_max=64))
    for i in range(100):
        stage.submit(f"c{i}", priority=Source.CRITICAL)
        stage.submit(f"l{i}", priority=Source.LOW)
    accepted = [fact.task.priority for fact in stage.step() if isinstance(fact, Accepted)]
    assert accepted.count(Source.LOW) >= 6
    assert accepted.count(Source.CRITICAL) > 30


def test_intake_leaves_room_for_dispatch() -> None:
    stage = Stage(own=SchedulerConfig(batch_facts_max=100))
    stage.agent(slots=50)
    for i in range(1000):
        stage.submit(f"t{i}")
    assert names(stage.step()).count("Dispatched") >= 20


# --- what does not become a task ---


def test_a_repeat_of_a_live_id_is_dropped() -> None:
    stage = running()
    origin = stage.submit("a")
    assert stage.step() == [Duplicate("a", origin)]


def test_a_record_that_was_consumed_before_is_dropped() -> None:
    stage = running()
    stage.offsets.clear()
    stage.submit("a")
    assert stage.step(1.0) == []


def test_garbage_becomes_a_dead_letter_with_its_bytes() -> None:
    stage = Stage()
    stage.take(Source.HIGH, b"\xff\x00 no json", [("x", b"y")])
    [fact] = stage.step()
    assert isinstance(fact, Rejected)
    assert (fact.reason, fact.value, fact.headers) == (
        "malformed",
        b"\xff\x00 no json",
        [("x", b"y")],
    )
    [letter] = stage.sent(Topic.DEAD)
    assert letter.value == b"\xff\x00 no json"


def test_expired_on_arrival_dies_and_its_submitter_hears() -> None:
    stage = Stage()
    stage.submit("a", reply=0, expires=stage.now - 1)
    assert names(stage.step()) == ["Accepted", "Died"]
    [output] = stage.sent(Topic.RESULTS)
    assert (results.decode(output.value).state, results.decode(output.value).reason) == (
        "dead",
        "expired",
    )
    assert len(stage.sent(Topic.DEAD)) == 1


@pytest.mark.parametrize("value", [b"nonsense", b"[]", b'{"action": "explode"}', None])
def test_a_control_record_that_says_nothing_is_kept_as_a_dead_letter(value: bytes | None) -> None:
    stage = Stage()
    stage.take(Source.CONTROL, value)
    assert names(stage.step()) == ["Refused"]
    assert stage.sent(Topic.DEAD)[0].value == value


def test_a_report_that_cannot_be_read_is_kept_as_a_dead_letter() -> None:
    stage = running()
    stage.take(Source.REPORTS, b"\x93rubbish")
    stage.take(Source.REPORTS, msgspec.msgpack.encode([9, 0, 100, "a", 1, []]))
    stage.report(succeed("a"))
    assert [type(fact) for fact in stage.step()] == [Refused, Refused, Succeeded]


# --- the log ---


def test_a_term_not_above_the_logs_is_refused() -> None:
    stage = Stage(term=5)
    with pytest.raises(StaleTerm, match="term 5 already"):
        Stage(replica=stage.replica, term=5, log=stage.log)


def test_a_higher_term_deposes() -> None:
    stage = running()
    stage.successor(2)
    stage.report(succeed("a"))
    stage.decide()
    with pytest.raises(Deposed, match="term 2"):
        stage.follow()


def test_a_batch_that_landed_twice_counts_once() -> None:
    stage = running()
    stage.log.append(stage.log[-1])
    stage.follow()
    assert stage.replica.voids == 1
    assert stage.runs() == [("a", 1)]
    replica = Replica("q", stage.config)
    batches = [replica.feed(offset, value) for offset, value in enumerate(stage.log)]
    assert [batch is None for batch in batches] == [False, False, True]
    assert replica.state.image() == stage.replica.state.image()


# --- orders of an operator ---


def test_pausing_stops_dispatch() -> None:
    stage = Stage()
    stage.agent()
    stage.control("pause", who="me")
    stage.submit("a")
    assert names(stage.step()) == ["Paused", "Accepted"]
    stage.control("resume", who="me")
    assert stage.step()[0] == Paused(paused=False, who="me")
    assert stage.runs() == [("a", 1)]


def test_a_task_may_change_its_class() -> None:
    stage = Stage()
    stage.submit("a", priority=Source.LOW)
    stage.submit("b", priority=Source.HIGH)
    stage.step()
    stage.control("reprioritize", "a", priority=0)
    [fact] = stage.step()
    assert isinstance(fact, Reprioritized)
    assert stage.replica.state.ready == [1, 1, 0, 0]
    stage.agent(slots=1)
    stage.step()
    assert stage.runs() == [("a", 1)]


# --- bounds ---


def test_intake_waits_at_the_bound_on_live_tasks() -> None:
    stage = Stage(QueueConfig(live_tasks_max=10))
    for i in range(20):
        stage.submit(f"l{i}", priority=Source.LOW)
    stage.step()
    assert len(stage.replica.state.tasks) == 7
    assert stage.leader.room() == (3, 2, 1, 0)
    for i in range(20):
        stage.submit(f"c{i}", priority=Source.CRITICAL)
    stage.step()
    assert len(stage.replica.state.tasks) == 10
    assert stage.inputs.size == 30
    assert stage.leader.room() == (0, 0, 0, 0)


def test_a_full_class_refuses_raw_records_when_told_to() -> None:
    classes = list(default_classes())
    classes[2] = ClassConfig(budget_s=1.0, floor=0.1, overflow="reject")
    stage = Stage(QueueConfig(classes=tuple(classes)))
    stage.agent(slots=1)
    for round_ in range(30):
        for i in range(3):
            stage.submit(f"t{round_}.{i}", reply=0)
        stage.step(0.2)
        for id_, attempt in stage.runs()[-1:]:
            stage.report(DidSucceed(id_, attempt, b"null", stage.now, stage.now + 0.2))
        if round_ % 5 == 4:
            stage.leader.pressure(stage.now, (0, 0, 0, 0))
    stage.submit("raw")
    stage.submit("asked", reply=0)
    facts = stage.step()
    refused = [fact for fact in facts if isinstance(fact, Rejected)]
    assert [(fact.id, fact.reason) for fact in refused] == [("raw", "overload")]
    assert refused[0].retry_after > 0
    assert "asked" in stage.replica.state.tasks
