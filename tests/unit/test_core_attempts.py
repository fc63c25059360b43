"""How attempts end: failures, lost agents, cancellations, deadlines."""

from __future__ import annotations

import msgspec
import pytest
from corekit import Stage, decode_batch, decode_inbox, fail, names, running, succeed

from zkcoord.config import QueueConfig, RetryPolicy, SchedulerConfig
from zkcoord.core import results
from zkcoord.core.outputs import Topic
from zkcoord.core.records import (
    Cancel,
    Cancelled,
    DidHave,
    DidReceive,
    DidReturn,
    DidStart,
    DidSucceed,
    Died,
    Discarded,
    Dispatched,
    Refused,
    Released,
    Retrying,
    Source,
    Succeeded,
    Superseded,
)

# --- failures ---


def test_a_failed_attempt_is_tried_again_when_due() -> None:
    stage = running()
    stage.report(fail("a"))
    [fact] = stage.step()
    assert isinstance(fact, Retrying)
    assert 0 <= fact.due - stage.now <= 1.0
    assert stage.leader.due(stage.now) <= fact.due - stage.now + 1e-6
    [again] = stage.step(1.0)
    assert (type(again), again.attempt) == (Dispatched, 2)


def test_a_handler_may_name_the_delay() -> None:
    stage = running()
    stage.report(fail("a", kind="retry", delay=40.0))
    stage.step()
    assert stage.step(39.0) == []
    assert names(stage.step(1.5)) == ["Dispatched"]


def test_attempts_run_out() -> None:
    stage = running(QueueConfig(retry=RetryPolicy(attempts=2, delay_s=0.0)))
    stage.report(fail("a"))
    assert names(stage.step()) == ["Retrying", "Dispatched"]
    stage.report(fail("a", 2))
    [fact] = stage.step()
    assert isinstance(fact, Died)
    assert (fact.reason, fact.attempt, fact.error) == ("exhausted", 2, "because")
    assert dict(stage.sent(Topic.DEAD)[0].headers)["zkdead_reason"] == b"exhausted"


def test_a_tasks_own_number_of_attempts_counts() -> None:
    stage = running(attempts=1)
    stage.report(fail("a"))
    assert names(stage.step()) == ["Died"]


@pytest.mark.parametrize(
    ("kind", "ending"), [("discard", Discarded), ("malformed", Died), ("unknown_task", Retrying)]
)
def test_other_failures(kind: str, ending: type) -> None:
    stage = running()
    stage.report(fail("a", kind=kind))
    assert type(stage.step()[0]) is ending


def test_work_that_is_given_back_goes_to_its_old_place_and_elsewhere() -> None:
    stage = running()
    stage.agent(101)
    stage.report(DidReturn("a", 1, "no room"))
    assert stage.step() == [
        Released("a", 1, "no room", crash=False),
        Dispatched("a", 2, 1, 101),
    ]


def test_an_agent_that_gives_work_back_is_left_alone_for_a_while() -> None:
    stage = running()
    stage.report(DidReturn("a", 1, "no room"))
    assert names(stage.step()) == ["Released"]
    assert stage.step(0.1) == []
    assert stage.leader.due(stage.now) <= 0.2
    assert names(stage.step(0.2)) == ["Dispatched"]


# --- agents come and go ---


def test_the_attempts_of_a_lost_agent_go_elsewhere_at_once() -> None:
    stage = running()
    stage.agent(101)
    stage.leader.left(100)
    assert stage.step() == [
        Released("a", 1, "agent lost", crash=True),
        Dispatched("a", 2, 1, 101),
    ]


def test_a_late_report_changes_nothing() -> None:
    stage = running()
    stage.agent(101)
    stage.leader.left(100)
    stage.step()
    stage.report(succeed("a"), DidStart("a", 1, 5.0), DidReceive("a", 1))
    assert stage.step() == [Superseded("a", 1, 100, "succeeded")]
    stage.report(succeed("a", 2), incarnation=101)
    assert names(stage.step()) == ["Succeeded"]


def test_a_report_that_comes_twice_is_not_taken_for_the_next_task_of_its_id() -> None:
    stage = running()
    [first] = stage.orders()
    said = msgspec.structs.replace(succeed("a"), fence=first.fence)
    stage.report(said)
    assert names(stage.step()) == ["Succeeded"]
    stage.submit("a")
    assert names(stage.step()) == ["Accepted", "Dispatched"]
    stage.report(said)
    assert names(stage.step()) == ["Superseded"]
    stage.report(msgspec.structs.replace(said, fence=stage.orders()[-1].fence))
    assert names(stage.step()) == ["Succeeded"]


def test_an_earlier_incarnation_does_not_speak_for_the_next_task_of_an_id() -> None:
    stage = running()
    stage.report(succeed("a"))
    stage.step()
    stage.leader.left(100)
    stage.agent(101)
    stage.submit("a")
    assert names(stage.step()) == ["Accepted", "Dispatched"]
    stage.report(succeed("a"))
    assert names(stage.step()) == ["Superseded"]


def test_a_record_of_very_many_reports_is_taken_in_parts() -> None:
    stage = running()
    lies = [DidReturn("", 0, "")] * 20_000
    stage.report(*lies, succeed("a"))
    facts = []
    while stage.inputs.size:
        facts += stage.step(0.3)
        assert len(stage.log[-1]) < 1_000_000
        assert len(decode_batch(stage.log[-1]).facts) <= 4200
        assert (5, 0, 1) not in decode_batch(stage.log[-1]).inputs or not stage.inputs.size
    assert names(facts) == ["Superseded"] * 20_000 + ["Succeeded"]
    assert stage.leader.consumed[Source.REPORTS, 0] == 1


def test_times_that_make_no_sense_are_left_out() -> None:
    stage = running(reply=0)
    stage.report(DidSucceed("a", 1, b"1", float("nan"), float("inf")))
    assert stage.step() == [Succeeded("a", 1, b"1", 0.0, 0.0)]


def test_a_task_that_kills_its_agents_dies() -> None:
    stage = running(QueueConfig(crashes_max=2))
    stage.agent(101)
    stage.leader.left(100)
    stage.step()
    stage.leader.left(101)
    [fact] = stage.step()
    assert isinstance(fact, Died)
    assert fact.reason == "crashes"


def test_a_report_before_the_loss_is_heard_counts() -> None:
    stage = running()
    stage.report(succeed("a"))
    stage.step()
    stage.leader.left(100)
    assert stage.step() == []


def test_a_draining_agent_gets_nothing_new() -> None:
    stage = Stage()
    stage.agent(draining=True)
    stage.submit("a")
    assert names(stage.step()) == ["Accepted"]
    stage.agent(draining=False)
    assert names(stage.step()) == ["Dispatched"]


def test_a_draining_agent_is_told_when_no_order_follows() -> None:
    stage = running()
    assert stage.leader.reminders(stage.now) == []
    stage.submit("b")
    assert names(stage.decide()) == ["Accepted", "Dispatched"]
    stage.agent(draining=True)
    assert stage.leader.reminders(stage.now) == []  # its last order waits to be read back
    stage.follow()
    assert stage.runs()[-1] == ("b", 1)
    assert not any(decode_inbox(output.value).last for output in stage.sent(Topic.INBOX))
    [word] = stage.leader.reminders(stage.now)
    assert decode_inbox(word.value).last
    stage.agent(draining=True)
    assert stage.leader.reminders(stage.now) == []


def test_the_word_that_no_order_follows_comes_after_orders_that_are_sent_again() -> None:
    stage = running()
    stage.leader.reminders(stage.now)
    stage.agent(draining=True)
    [word] = stage.leader.reminders(stage.now + 5.1)
    record = decode_inbox(word.value)
    assert ([order.id for order in record.orders], record.last) == (["a"], True)


def test_what_goes_with_an_agent_that_drained_is_not_its_tasks_fault() -> None:
    stage = running(QueueConfig(crashes_max=1))
    stage.agent(draining=True)
    stage.agent(101)
    stage.leader.left(100)
    assert stage.step() == [
        Released("a", 1, "agent left", crash=False),
        Dispatched("a", 2, 1, 101),
    ]


def test_an_order_that_is_not_confirmed_is_sent_again_unchanged() -> None:
    stage = running()
    first = stage.orders()
    assert stage.leader.reminders(stage.now + 4.9) == []
    again = stage.leader.reminders(stage.now + 5.1)
    assert [output.offset for output in again] == [-1]
    record = decode_inbox(again[0].value)
    assert record.orders == first
    assert record.seq == 2  # after the greeting and the first
    assert stage.leader.reminders(stage.now + 6.0) == []


def test_an_order_that_was_received_is_not_sent_again() -> None:
    stage = running()
    stage.report(DidReceive("a", 1))
    stage.step()
    assert stage.leader.reminders(stage.now + 60) == []


def test_an_agent_answers_for_what_it_has() -> None:
    stage = running()
    stage.submit("b")
    stage.submit("c")
    stage.step()
    stage.report(DidReceive("a", 1), DidReceive("c", 1))
    stage.step()
    # It has c and something that nobody dispatched; a, which it had, is gone; b may be on its way.
    stage.report(DidHave([("c", 1), ("z", 4)]))
    facts = stage.step()
    assert facts[0] == Released("a", 1, "not held", crash=False)
    assert {type(fact) for fact in facts[1:]} <= {Dispatched}
    stage.outputs += stage.leader.reminders(stage.now + 1)
    assert Cancel("z", 4, "superseded") in stage.orders()
    assert stage.replica.state.tasks["b"].attempt == 1


# --- cancellation, deadlines, delays ---


def test_a_waiting_task_is_cancelled_at_once() -> None:
    stage = Stage()
    stage.submit("a", reply=0)
    stage.step()
    stage.control("cancel", "a", reason="no longer needed")
    assert stage.step() == [Cancelled("a", 0, "no longer needed")]
    assert results.decode(stage.sent(Topic.RESULTS)[0].value).state == "cancelled"
    stage.agent()
    assert stage.step() == []


def test_a_running_task_is_cancelled_by_its_agent() -> None:
    stage = running()
    stage.control("cancel", "a", reason="stop")
    assert names(stage.step()) == ["CancelAsked"]
    assert stage.orders()[-1] == Cancel("a", 1, "stop")
    stage.control("cancel", "a")
    assert stage.step() == []
    stage.report(fail("a", kind="cancelled"))
    assert stage.step() == [Cancelled("a", 1, "stop")]


def test_a_task_that_finished_first_has_succeeded() -> None:
    stage = running()
    stage.control("cancel", "a")
    stage.step()
    stage.report(succeed("a"))
    assert names(stage.step()) == ["Succeeded"]


def test_a_cancelled_task_is_not_tried_again_when_its_agent_is_lost() -> None:
    stage = running()
    stage.control("cancel", "a", reason="stop")
    stage.step()
    stage.leader.left(100)
    assert stage.step() == [Cancelled("a", 1, "stop")]


def test_an_agent_that_does_not_stop_keeps_its_slot_taken() -> None:
    stage = Stage(own=SchedulerConfig(cancel_s=10.0))
    stage.agent(slots=1)
    stage.submit("a")
    stage.step()
    stage.control("cancel", "a", reason="stop")
    stage.step()
    stage.submit("b")
    assert names(stage.step(9.0)) == ["Accepted"]
    assert stage.step(1.5) == [Cancelled("a", 1, "stop")]
    assert stage.step(1.0) == []  # b waits: the slot is still taken
    stage.report(succeed("a"))
    assert names(stage.step()) == ["Superseded", "Dispatched"]


def test_cancelling_what_is_not_live_is_refused() -> None:
    stage = Stage()
    stage.control("cancel", "nobody")
    [fact] = stage.step()
    assert isinstance(fact, Refused)
    assert fact.reason == "not_live"


def test_a_waiting_task_dies_at_its_deadline() -> None:
    stage = Stage()
    stage.submit("a", expires=stage.now + 5)
    stage.step()
    assert stage.step(4.0) == []
    [fact] = stage.step(1.1)
    assert isinstance(fact, Died)
    assert fact.reason == "expired"


def test_a_running_task_is_stopped_at_its_deadline_and_dies_once() -> None:
    stage = running(expires=1_000_005.0)
    assert names(stage.step(5.1)) == ["CancelAsked"]
    stage.report(fail("a", kind="cancelled"))
    [fact] = stage.step()
    assert isinstance(fact, Died)
    assert fact.reason == "expired"
    assert stage.step(60) == []


def test_a_delayed_task_waits() -> None:
    stage = Stage()
    stage.agent()
    stage.submit("a", not_before=stage.now + 30)
    assert names(stage.step()) == ["Accepted"]
    assert stage.replica.state.tasks["a"].status(stage.now) == "waiting"
    assert stage.step(29) == []
    assert names(stage.step(1.5)) == ["Dispatched"]


def test_a_task_that_nobody_knows_dies_after_a_while_if_anybody_is_there() -> None:
    stage = Stage(QueueConfig(unknown_task_s=10))
    stage.submit("a", task="t.nobody")
    stage.step()
    assert stage.step(60) == []
    stage.agent()
    assert stage.step(1) == []
    assert stage.step(8) == []
    [fact] = stage.step(3)
    assert isinstance(fact, Died)
    assert fact.reason == "unknown_task"


def test_a_task_whose_requirements_nobody_meets_waits() -> None:
    stage = Stage(QueueConfig(unknown_task_s=10))
    stage.agent()
    stage.submit("a", requires="gpu")
    stage.step()
    assert stage.step(100) == []
    stage.agent(101, capabilities=("gpu",))
    assert names(stage.step()) == ["Dispatched"]
