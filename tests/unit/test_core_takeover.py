"""What stands across leaders: the void rule, watermark, re-sending."""

from __future__ import annotations

import msgspec
import pytest
from corekit import Stage, decode_batch, decode_inbox, names

from zkcoord.config import QueueConfig, SchedulerConfig
from zkcoord.core.outputs import Topic
from zkcoord.core.records import (
    Batch,
    DidFail,
    DidHave,
    DidReceive,
    DidSucceed,
    Dispatched,
    Released,
    TermOpened,
)
from zkcoord.core.replica import Replica
from zkcoord.errors import DecodeError

OWN = SchedulerConfig(checkpoint_after_s=1.0, checkpoint_every_s=1.0)
encode = msgspec.msgpack.encode


# --- the void rule ---


def batch(term: int, n: int, *facts: object, sent: int = -1) -> bytes:
    return encode(Batch(1, term, n, 5.0, [], sent, list(facts)))  # type: ignore[arg-type]


def test_what_is_void() -> None:
    replica = Replica("q", QueueConfig())
    log = [
        (batch(3, 0, TermOpened("a")), True),
        (batch(3, 0, TermOpened("a")), False),  # appended twice
        (batch(3, 2), False),  # a gap
        (batch(3, 1), True),
        (batch(7, 1), False),  # a higher term begins with its opening
        (batch(2, 0, TermOpened("b")), False),  # an older term
        (batch(7, 0, TermOpened("c")), True),
        (batch(3, 2), False),  # deposed
        (batch(7, 1), True),
    ]
    for offset, (value, stands) in enumerate(log):
        assert (replica.feed(offset, value) is not None) is stands, offset
    assert (replica.term, replica.n, replica.position, replica.voids) == (7, 1, 9, 5)


def test_an_offset_below_the_position_is_ignored() -> None:
    replica = Replica("q", QueueConfig())
    replica.feed(4, batch(1, 0, TermOpened("a")))
    assert replica.feed(3, batch(9, 0, TermOpened("b"))) is None
    assert replica.term == 1


@pytest.mark.parametrize(
    "value", [b"", b"nonsense", encode([1, 2]), encode([2, 1, 0, 0.0, [], 0, []])]
)
def test_bytes_that_are_no_batch_are_an_error(value: bytes) -> None:
    with pytest.raises(DecodeError, match="offset 0"):
        Replica("q", QueueConfig()).feed(0, value)


# --- watermark and re-sending ---


def test_the_watermark_moves_over_acknowledged_batches_in_order() -> None:
    stage = Stage()
    stage.agent()
    for id_ in "abc":
        stage.submit(id_)
        stage.step()
    first, second, third = (o.offset for o in stage.sent(Topic.INBOX) if o.offset >= 0)
    stage.leader.acknowledged(second)
    stage.leader.acknowledged(third)
    stage.submit("d")
    stage.step()
    assert decode_batch(stage.log[-1]).sent == first
    stage.leader.acknowledged(first)
    stage.leader.acknowledged(first)  # once more is harmless
    stage.submit("e")
    stage.step()
    assert decode_batch(stage.log[-1]).sent == third + 1


def test_an_idle_queue_writes_nothing() -> None:
    stage = Stage(own=OWN)
    stage.agent()
    stage.leader.members_known()
    stage.submit("a", reply=0)
    stage.step()
    stage.report(DidSucceed("a", 1, b"1", 1.0, 2.0))
    for _ in range(200):
        stage.step(0.3)
        stage.settle()
    length = len(stage.log)
    for _ in range(200):
        stage.step(0.3)
        stage.settle()
    assert len(stage.log) == length
    assert decode_batch(stage.log[-1]).facts == []
    assert stage.replica.watermark > 2


def test_consumed_offsets_without_facts_reach_the_log_soon() -> None:
    stage = Stage()
    stage.agent()
    stage.submit("a")
    stage.step()
    stage.report(DidReceive("a", 1))
    length = len(stage.log)
    assert stage.step() == []
    assert len(stage.log) == length
    assert stage.leader.due(stage.now) <= 0.25
    stage.step(0.3)
    assert (5, 0, 1) in decode_batch(stage.log[-1]).inputs


def test_a_successor_sends_what_was_not_acknowledged_and_nothing_else() -> None:
    stage = Stage()
    stage.agent()
    stage.submit("a", reply=0)
    stage.submit("b", reply=0)
    stage.take(2, b"garbage")
    stage.step()
    stage.settle()
    stage.report(DidSucceed("a", 1, b"1", 1.0, 2.0), DidFail("b", 1, "malformed", "x", None, 1, 2))
    stage.step()
    lost = [o for o in stage.outputs if o.offset == len(stage.log) - 1]
    assert {o.topic for o in lost} == {Topic.RESULTS, Topic.DEAD}
    heir = stage.successor(2)
    assert heir.leader.resend() == lost
    assert heir.leader.resend() == []


def test_orders_are_sent_again_under_the_new_term_with_the_old_fence() -> None:
    stage = Stage()
    stage.agent()
    stage.submit("a")
    stage.step()
    [first] = stage.orders()
    heir = stage.successor(2)
    [output] = heir.leader.resend()
    record = decode_inbox(output.value)
    assert (record.term, record.seq, record.orders) == (2, 0, [first])


def test_an_order_that_was_superseded_is_not_sent_again() -> None:
    stage = Stage()
    stage.agent()
    stage.submit("a")
    stage.step()
    stage.leader.left(100)
    stage.step()
    assert names(stage.facts)[-1] == "Released"
    assert stage.successor(2).leader.resend() == []


def test_of_two_orders_for_one_task_only_the_last_is_sent_again() -> None:
    stage = Stage()
    stage.agent()
    stage.submit("a")
    stage.step()
    stage.report(DidFail("a", 1, "retry", "x", 0.0, 1.0, 2.0))
    assert names(stage.step()) == ["Retrying", "Dispatched"]
    [output] = stage.successor(2).leader.resend()
    assert decode_inbox(output.value).orders == stage.orders()[1:]


def test_attempts_of_unknown_agents_wait_until_all_members_are_known() -> None:
    stage = Stage()
    stage.agent(100)
    stage.agent(101)
    stage.submit("a")
    stage.submit("b")
    stage.step()
    heir = stage.successor(2)
    assert heir.step() == []
    heir.agent(101)
    assert heir.step() == []
    heir.leader.members_known()
    released, again = heir.step()
    assert isinstance(released, Released)
    assert released.crash
    assert isinstance(again, Dispatched)
    assert (again.attempt, again.incarnation) == (2, 101)


def test_agents_are_greeted_and_their_answers_confirm() -> None:
    stage = Stage()
    stage.agent()
    stage.submit("a")
    stage.step()
    heir = stage.successor(2)
    heir.agent()
    heir.leader.members_known()
    [greeting] = heir.leader.reminders(heir.now)
    assert (decode_inbox(greeting.value).term, decode_inbox(greeting.value).orders) == (2, [])
    heir.report(DidHave([("a", 1)]))
    heir.step()
    assert heir.leader.reminders(heir.now + 100) == []


def test_what_an_earlier_leader_sent_is_sent_again_only_after_a_while() -> None:
    stage = Stage()
    stage.agent()
    stage.submit("a")
    stage.step()
    stage.now += 100
    heir = stage.successor(2)
    heir.agent()
    first = [decode_inbox(o.value) for o in heir.leader.reminders(heir.now)]
    assert [record.orders for record in first] == [[]]
    assert heir.leader.reminders(heir.now + 4) == []
    again = [decode_inbox(o.value) for o in heir.leader.reminders(heir.now + 6)]
    assert [record.orders for record in again] == [stage.orders()]


def test_under_load_the_greeting_comes_with_the_batches() -> None:
    stage = Stage()
    stage.agent(101, tasks=("t.other",))
    stage.submit("a")
    stage.step()
    assert [decode_inbox(o.value).incarnation for o in stage.sent(Topic.INBOX)] == [101]
