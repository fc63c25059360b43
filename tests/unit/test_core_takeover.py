"""What stands across leaders: watermark, re-sending, the checkpoint, cold starts."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from corekit import Stage, decode_batch, decode_inbox, names

from zkcoord.config import QueueConfig, SchedulerConfig
from zkcoord.core.outputs import POSITION_KEY, Output, Topic
from zkcoord.core.records import (
    Batch,
    Checkpointed,
    DidFail,
    DidHave,
    DidReceive,
    DidSucceed,
    Dispatched,
    KeptTask,
    Position,
    Positioned,
    Released,
    TermOpened,
)
from zkcoord.core.replica import Replica
from zkcoord.errors import DecodeError

OWN = SchedulerConfig(checkpoint_after_s=1.0, checkpoint_every_s=1.0)
encode = msgspec.msgpack.encode


def entries(outputs: list[Output]) -> dict[bytes, bytes]:
    """The checkpoint topic after these outputs, compacted."""
    last: dict[bytes, bytes] = {}
    for output in outputs:
        if output.topic == Topic.CHECKPOINT:
            if output.value is None:
                last.pop(output.key or b"", None)
            else:
                last[output.key or b""] = output.value
    return last


def cold(stage: Stage) -> Replica:
    """A process that starts from the checkpoint."""
    standing = entries(stage.outputs)
    position = msgspec.msgpack.decode(standing.pop(POSITION_KEY), type=Position)
    replica = Replica("q", stage.config)
    replica.restore(position, [msgspec.msgpack.decode(v, type=KeptTask) for v in standing.values()])
    for offset in range(position.offset, len(stage.log)):
        replica.feed(offset, stage.log[offset])
    return replica


def full(stage: Stage) -> Replica:
    replica = Replica("q", stage.config)
    for offset, value in enumerate(stage.log):
        replica.feed(offset, value)
    return replica


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


def test_a_checkpoint_of_another_version_is_an_error() -> None:
    position = full(Stage()).state.position(1, 1, 0, {})
    position.version = 2
    with pytest.raises(DecodeError, match="version 2"):
        Replica("q", QueueConfig()).restore(position, [])


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


# --- the checkpoint ---


def lives(stage: Stage) -> Iterator[None]:
    """Tasks that live long and change, one event per step."""
    stage.agent()
    stage.leader.members_known()
    for i in range(40):
        if i % 3 == 0:
            stage.submit(f"t{i}", reply=0, task="t.work" if i % 2 else "t.later")
        for task in list(stage.replica.state.tasks.values()):
            if task.phase == 1 and i % 4 == 0:
                kind = "retry" if i % 8 else "malformed"
                stage.report(DidFail(task.id, task.attempt, kind, "x", 0.5, 1.0, 2.0))
        yield
    stage.agent(tasks=("t.work", "t.later"))
    for _ in range(40):
        for task in list(stage.replica.state.tasks.values()):
            if task.phase == 1:
                stage.report(DidSucceed(task.id, task.attempt, b"1", 1.0, 2.0))
        yield


def test_a_cold_start_gives_what_the_whole_log_gives() -> None:
    stage = Stage(own=OWN)
    starts = set()
    for _ in lives(stage):
        stage.step(0.3)
        stage.settle()
        if POSITION_KEY in entries(stage.outputs):
            replica = cold(stage)
            starts.add(replica.start)
            assert replica.state.image() == full(stage).state.image()
    assert len(starts) > 5
    assert not stage.replica.state.tasks
    stage.step(1.0)
    stage.settle()
    stage.step(1.0)
    assert set(entries(stage.outputs)) == {POSITION_KEY}, "every record was buried"


def test_a_task_that_ends_soon_never_touches_the_checkpoint() -> None:
    stage = Stage(own=OWN)
    stage.agent()
    for i in range(30):
        stage.submit(f"t{i}")
        stage.step(0.2)
        stage.report(DidSucceed(f"t{i}", 1, b"1", 1.0, 2.0))
        stage.step(0.2)
        stage.settle()
    assert not any(isinstance(fact, Checkpointed) for fact in stage.facts)
    assert {o.key for o in stage.sent(Topic.CHECKPOINT)} == {POSITION_KEY}


def test_the_log_may_be_trimmed_behind_a_position_once_it_is_written() -> None:
    stage = Stage(own=OWN)
    for _ in lives(stage):
        stage.step(0.3)
    assert stage.leader.trim() == 0, "nothing was acknowledged"
    stage.settle()
    stage.step(1.0)
    stage.step(1.0)
    written = [o for o in stage.sent(Topic.CHECKPOINT) if o.key == POSITION_KEY]
    assert stage.leader.trim() == 1, "only the first is known to be written"
    stage.settle()
    stage.step(1.0)
    last = msgspec.msgpack.decode(written[-1].value or b"", type=Position)
    assert stage.leader.trim() == last.offset > 0


def test_a_position_waits_for_the_records_it_relies_on() -> None:
    stage = Stage(own=OWN)
    stage.submit("old")
    for _ in range(20):
        stage.step(0.3)  # never acknowledged
    first = next(f for f in stage.facts if isinstance(f, Positioned))
    assert first.position.offset <= 1, "before the task was accepted"
    assert sum(isinstance(f, Positioned) for f in stage.facts) == 1
    stage.settle()
    stage.step(0.3)
    latest = [f for f in stage.facts if isinstance(f, Positioned)][-1]
    assert latest.position.offset > 1


def test_a_new_task_of_an_id_is_kept_only_after_the_old_one_was_buried() -> None:
    stage = Stage(own=OWN)
    stage.submit("a")
    stage.step()
    stage.step(1.5)
    stage.agent(slots=1)
    stage.step()
    stage.report(DidSucceed("a", 1, b"1", 1.0, 2.0))
    stage.step()  # the order is not acknowledged, so the watermark stands still
    stage.leader.left(100)
    stage.submit("a")
    for _ in range(5):
        stage.step(1.0)
    stage.settle()
    for _ in range(5):
        stage.step(1.0)
        stage.settle()
    said = [o.value is not None for o in stage.sent(Topic.CHECKPOINT) if o.key == b"a"]
    assert said == [True, False, True]


def test_one_decision_checkpoints_a_bounded_number_of_bytes() -> None:
    stage = Stage(own=OWN)
    for i in range(30):
        stage.submit(f"t{i}", body=b'{"task": "t.work", "args": ["%s"]}' % (b"x" * 700_000))
    while stage.inputs.size:
        stage.step()
    for _ in range(10):
        stage.step(1.0)
    each = [len(fact.ids) for fact in stage.facts if isinstance(fact, Checkpointed)]
    assert sum(each) == 30
    assert max(each) <= 13


def test_a_leader_may_start_cold() -> None:
    stage = Stage(own=OWN)
    for n, _ in enumerate(lives(stage)):
        stage.step(0.3)
        stage.settle()
        if n == 30:
            break
    replica = cold(stage)
    live = set(replica.state.tasks)
    assert live
    heir = Stage(stage.config, OWN, replica=replica, term=2, log=stage.log)
    heir.now, heir.offsets = stage.now, stage.offsets
    heir.outputs = stage.outputs + heir.leader.resend()
    heir.agent(tasks=("t.work", "t.later"))
    heir.leader.members_known()
    for _ in range(40):
        for task in list(replica.state.tasks.values()):
            if task.phase == 1:
                heir.report(DidSucceed(task.id, task.attempt, b"1", 1.0, 2.0))
        heir.step(0.3)
        heir.settle()
    assert not replica.state.tasks
    assert replica.state.image() == full(heir).state.image()
