"""The checkpoint: what is kept, from where a cold fold may start, and that it gives the same."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from corekit import Stage

from zkcoord.config import QueueConfig, SchedulerConfig
from zkcoord.core.outputs import POSITION_KEY, Output, Topic
from zkcoord.core.records import (
    Checkpointed,
    DidFail,
    DidSucceed,
    KeptTask,
    Position,
    Positioned,
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


def test_a_checkpoint_of_another_version_is_an_error() -> None:
    position = full(Stage()).state.position(1, 1, 0, {})
    position.version = 2
    with pytest.raises(DecodeError, match="version 2"):
        Replica("q", QueueConfig()).restore(position, [])
