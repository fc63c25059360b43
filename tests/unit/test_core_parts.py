"""The small parts of the core, each on its own."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from corekit import Stage, decode_inbox
from hypothesis import given
from hypothesis import strategies as st

from zkcoord.config import QueueConfig, RetryPolicy
from zkcoord.core import backoff, deadletters, results
from zkcoord.core.admission import Estimates
from zkcoord.core.inputs import Inputs, Misread, ReportRecord
from zkcoord.core.outputs import INBOX_ORDERS_MAX, Output, Packer, Topic
from zkcoord.core.records import (
    AgentInfo,
    Cancel,
    DidSucceed,
    KeptTask,
    Origin,
    Reports,
    Source,
    Submission,
)
from zkcoord.core.state import State
from zkcoord.core.tasks import RUNNING, Task, keep, revive, weigh
from zkcoord.core.timers import DUE, EXPIRE, Timers
from zkcoord.core.unsent import Unsent

# --- delays ---

POLICY = st.builds(
    RetryPolicy,
    attempts=st.just(5),
    delay_s=st.floats(0, 100),
    factor=st.floats(1, 100),
    delay_s_max=st.floats(100, 1e6),
)


@given(POLICY, st.integers(1, 1000), st.integers(0, 9), st.none() | st.floats(0, 1e6))
def test_a_delay_is_spread_over_all_that_the_policy_allows(
    policy: RetryPolicy, failures: int, seed: int, first: float | None
) -> None:
    most = backoff.ceiling(policy, failures, first)
    assert 0 <= backoff.delay(policy, failures, Random(seed), first) <= most <= policy.delay_s_max
    assert most <= backoff.ceiling(policy, failures + 1, first)


def test_delays_double_until_the_bound() -> None:
    policy = RetryPolicy(delay_s=1.0, factor=2.0, delay_s_max=10.0)
    assert [backoff.ceiling(policy, n) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]


# --- timers ---


@given(st.lists(st.floats(0, 100), max_size=50), st.floats(0, 100))
def test_timers_come_up_in_order_and_not_too_soon(times: list[float], now: float) -> None:
    timers = Timers()
    for i, time in enumerate(times):
        timers.add(time, f"t{i}", DUE)
    came = []
    while (timer := timers.pop(now)) is not None:
        came.append(timer[0])
    assert came == sorted(time for time in times if time <= now)
    assert timers.next() == min((time for time in times if time > now), default=None)


def test_timers_of_tasks_that_ended_are_swept() -> None:
    timers = Timers()
    for i in range(10_000):
        timers.add(float(i), f"t{i}", EXPIRE)
    timers.sweep({"t5": None}, 1)
    assert len(timers) == 1
    assert timers.next() == 5.0


# --- inputs ---


@given(
    st.sampled_from(list(Source)),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=20),
    st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=4),
)
def test_nothing_that_is_read_raises(
    source: Source, value: bytes | None, key: bytes | None, headers: list
) -> None:
    inputs = Inputs()
    inputs.take(Origin(source, 0, 0, 1.0), key, value, headers)
    assert inputs.size == 1


def test_reports_of_another_version_are_misread() -> None:
    inputs = Inputs()
    for version in (1, 2):
        value = msgspec.msgpack.encode(Reports(version, 0, 1, "a", 1, []))
        inputs.take(Origin(Source.REPORTS, 0, version, 1.0), None, value, [])
    assert [type(record) for record in inputs.reports] == [ReportRecord, Misread]


# --- tasks ---


def test_a_task_comes_back_from_its_checkpoint_record_as_it_was() -> None:
    sub = Submission("a", "t", 2, Origin(2, 0, 7, 5.0), b"body", headers=[("h", None)])
    task = Task(sub, 5.0, 1, 9, 6.0, RUNNING, 7.0, 3, 1, 1, 4, 100, 12, 8.0, 9.0, "stop", 10.0)
    record = msgspec.msgpack.decode(msgspec.msgpack.encode(keep(task, 20)), type=KeptTask)
    back = revive(record)
    assert back.kept
    assert back.as_of == 20
    for name in msgspec.structs.asdict(task):
        if name not in ("kept", "as_of", "size"):
            assert getattr(back, name) == getattr(task, name), name
    assert back.size == weigh(sub)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, "pending"),
        ({"due": 20.0}, "waiting"),
        ({"due": 20.0, "failures": 1}, "retrying"),
        ({"due": 5.0, "failures": 1}, "pending"),
        ({"phase": RUNNING}, "running"),
    ],
)
def test_states_in_the_words_of_users(fields: dict, status: str) -> None:
    task = Task(Submission("a", "t", 2, Origin(2, 0, 7, 5.0), b""), 5.0, 1, 9, 6.0, **fields)
    assert task.status(10.0) == status


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -5.0, 0.0, 1e300])
def test_an_absurd_duration_does_no_harm(seconds: float) -> None:
    estimates = Estimates()
    estimates.learn("t", seconds)
    assert 0 < estimates.of("t") <= 3600
    assert 0 < estimates.of("other") <= 3600


# --- what was not acknowledged ---


@given(st.lists(st.integers(0, 3), max_size=30), st.randoms(use_true_random=False))
def test_the_watermark_is_the_first_that_is_open(counts: list[int], rng: Random) -> None:
    unsent = Unsent()
    output = Output(Topic.DEAD, None, None, b"x", [], 0)
    for offset, count in enumerate(counts):
        unsent.add(offset, [output] * count)
    open_ = {offset for offset, count in enumerate(counts) if count}
    order = list(range(len(counts)))
    rng.shuffle(order)
    for offset in order:
        assert unsent.watermark(len(counts)) == min(open_, default=len(counts))
        unsent.acknowledged(offset)
        open_.discard(offset)
    assert unsent.watermark(len(counts)) == len(counts)
    assert not unsent.is_full


def test_too_much_unacknowledged_stops_deciding() -> None:
    stage = Stage()
    unsent = stage.leader._unsent
    output = Output(Topic.DEAD, None, None, b"x" * 2_000_000, [], 0)
    unsent.add(100, [output] * 150)
    stage.submit("a")
    assert stage.step() == []
    assert stage.inputs.size == 1
    unsent.acknowledged(100)
    assert len(stage.step()) == 1


def test_news_of_the_watermark() -> None:
    unsent, state = Unsent(), State()
    assert not unsent.has_news(state, 5)
    unsent.add(5, [Output(Topic.DEAD, None, None, b"x", [], 5)])
    assert not unsent.has_news(state, 5)
    assert unsent.has_news(state, 6)
    state.sent = 6
    assert not unsent.has_news(state, 9)
    state.ended["a"] = 7
    assert unsent.has_news(state, 9)


# --- outputs ---


def test_orders_for_one_agent_are_split_and_numbered() -> None:
    stage = Stage()
    stage.agent(slots=5000)
    for i in range(INBOX_ORDERS_MAX + 10):
        stage.submit(f"t{i}")
    while stage.step():
        pass
    records = [decode_inbox(o.value) for o in stage.sent(Topic.INBOX)]
    assert all(len(record.orders) <= INBOX_ORDERS_MAX for record in records)
    assert [record.seq for record in records] == list(range(len(records)))
    assert len(stage.runs()) == INBOX_ORDERS_MAX + 10


def test_large_orders_are_split_by_bytes() -> None:
    stage = Stage(QueueConfig())
    stage.agent(slots=50)
    for i in range(6):
        stage.submit(f"t{i}", body=b'{"task": "t.work", "args": ["%s"]}' % (b"x" * 300_000))
    while stage.step():
        pass
    assert len(stage.runs()) == 6
    assert all(len(o.value or b"") < 1_000_000 for o in stage.sent(Topic.INBOX))


def test_a_gone_agent_starts_from_zero_when_it_returns() -> None:
    packer = Packer("q", QueueConfig(), 1)
    packer.stop(0, 100, Cancel("a", 1, "x"))
    packer.stop(0, 101, Cancel("a", 1, "x"))
    assert [decode_inbox(o.value).seq for o in packer.reminders()] == [0, 0]
    packer.forget(100)
    packer.stop(0, 100, Cancel("a", 1, "x"))
    packer.stop(0, 101, Cancel("a", 1, "x"))
    assert [decode_inbox(o.value).seq for o in packer.reminders()] == [0, 1]
    assert packer.reminders() == []


def test_a_dead_letter_holds_the_original_and_why() -> None:
    stage = Stage()
    origin = stage.submit("a", expires=stage.now - 1)
    stage.step()
    [output] = stage.sent(Topic.DEAD)
    letter = deadletters.decode(output.key, output.value, output.headers)
    assert (letter.reason, letter.id, letter.task, letter.attempts) == ("expired", "a", "t.work", 0)
    assert letter.value == b'{"task": "t.work"}'
    assert [name for name, _ in letter.headers] == ["ce_id", "ce_expirytime"]
    assert letter.origin.offset == origin.offset
    assert letter.fact == f"{output.offset}.1"


def test_nobody_is_told_who_does_not_listen() -> None:
    stage = Stage()
    stage.agent()
    stage.submit("a")
    stage.submit("b", reply=7)
    stage.step()
    stage.report(DidSucceed("a", 1, b"1", 1.0, 2.0), DidSucceed("b", 1, b"2", 1.0, 2.0))
    stage.step()
    [output] = stage.sent(Topic.RESULTS)
    assert (output.partition, results.decode(output.value).id) == (7, "b")


def test_an_updated_agent_is_believed() -> None:
    stage = Stage()
    stage.agent(slots=1)
    stage.submit("a")
    stage.submit("b")
    stage.step()
    assert len(stage.runs()) == 1
    stage.leader.updated(100, AgentInfo("a100", "h", 1, 2, ("t.work",)))
    stage.step()
    assert len(stage.runs()) == 2
    stage.leader.updated(999, AgentInfo("ghost", "h", 1, 2, ("t.work",)))
    assert stage.leader.pressure(stage.now, (0, 0, 0, 0)).slots == 2
