"""Verdicts: monotone in the backlog, steady at a constant load, and true."""

from __future__ import annotations

from itertools import pairwise

import pytest
from corekit import Stage
from hypothesis import given
from hypothesis import strategies as st

from zkcoord.config import QueueConfig
from zkcoord.core.admission import Admission, Meter, available
from zkcoord.core.records import ClassPressure, DidSucceed, Pressure, Source
from zkcoord.core.verdict import ACCEPT, REJECT, SLOW, STALE_AFTER_S, judge

FILL = st.floats(0, 3)


def admission() -> Admission:
    return Admission(QueueConfig(), Meter())


@given(st.lists(FILL, min_size=1, max_size=60))
def test_a_verdict_never_changes_twice_within_a_second(fills: list[float]) -> None:
    subject, changed, before, now = admission(), float("-inf"), 0, 0.0
    for fill in fills:
        now += 0.25
        level = subject.move(1, fill, now, may_refuse=True)
        if level != before:
            assert now - changed >= 0.98
            changed, before = now, level


@given(st.floats(0.0, 2.0), st.lists(st.floats(-0.04, 0.04), min_size=30, max_size=30))
def test_a_load_that_trembles_does_not_make_verdicts_flap(
    around: float, trembling: list[float]
) -> None:
    subject = admission()
    levels = [
        subject.move(0, max(0.0, around + d), float(i), may_refuse=True)
        for i, d in enumerate(trembling)
    ]
    changes = sum(a != b for a, b in pairwise(levels))
    assert changes <= 2


@given(FILL, FILL)
def test_a_fuller_class_is_never_treated_better(one: float, other: float) -> None:
    low, high = sorted((one, other))
    first, second = admission(), admission()
    assert first.move(0, low, 0.0, may_refuse=True) <= second.move(0, high, 0.0, may_refuse=True)


@pytest.mark.parametrize(
    ("path", "level"),
    [
        ([0.59], 0),
        ([0.61], 1),
        ([0.81], 2),
        ([0.61, 0.55], 1),
        ([0.61, 0.49], 0),
        ([0.9, 0.75], 2),
        ([0.9, 0.69], 1),
        ([0.9, 0.49], 0),
    ],
)
def test_thresholds_and_their_exits(path: list[float], level: int) -> None:
    subject = admission()
    found = [subject.move(0, fill, float(i * 2), may_refuse=True) for i, fill in enumerate(path)]
    assert found[-1] == level


def test_a_guess_never_refuses() -> None:
    assert admission().move(0, 50.0, 0.0, may_refuse=False) == 1


@given(
    st.floats(0.01, 1e4),
    st.lists(st.floats(0, 1e4), min_size=4, max_size=4),
    st.lists(st.floats(0, 0.2), min_size=4, max_size=4),
)
def test_every_class_gets_its_floor_at_least(
    rate: float, work_in: list[float], floors: list[float]
) -> None:
    shares = available(rate, work_in, floors)
    for share, floor in zip(shares, floors, strict=True):
        assert share >= max(floor * rate, rate / 1000) * 0.999
    assert shares[0] <= rate * 1.001


def pressures(stage: Stage, seconds: int, arriving: int, served: int) -> list[Pressure]:
    """One queue, `arriving` NORMAL tasks a second against `served` that get done."""
    found = []
    open_runs: list[tuple[str, int]] = []
    for second in range(seconds):
        for i in range(arriving):
            stage.submit(f"{int(stage.now)}.{second}.{i}", reply=0)
        seen = len(stage.runs())
        stage.step(1.0)
        open_runs += stage.runs()[seen:]
        done, open_runs = open_runs[:served], open_runs[served:]
        each = [DidSucceed(i, a, b"1", stage.now - 1, stage.now) for i, a in done]
        if each:
            stage.report(*each)
        found.append(stage.leader.pressure(stage.now, (0, 0, 0, 0)))
    return found


def test_overload_is_slowed_then_refused_with_a_retry_after_that_is_true() -> None:
    stage = Stage()
    stage.agent(slots=4)
    history = pressures(stage, 60, arriving=12, served=4)
    verdicts = [p.classes[2].verdict for p in history]
    assert verdicts[0] == ACCEPT
    assert SLOW in verdicts
    assert verdicts[-1] == REJECT
    wait = history[-1].classes[2].retry_after
    assert wait > 0
    # Whoever obeys is let in: nothing arrives meanwhile, as all are refused.
    later = pressures(stage, int(wait) + 5, arriving=0, served=4)
    assert later[-1].classes[2].verdict != REJECT


def test_a_load_within_capacity_is_accepted() -> None:
    stage = Stage()
    stage.agent(slots=8)
    history = pressures(stage, 60, arriving=6, served=8)
    assert {p.classes[2].verdict for p in history} == {ACCEPT}
    last = history[-1]
    assert last.slots == 8
    assert last.classes[2].rate_in == pytest.approx(6, rel=0.2)
    assert last.classes[2].rate_out == pytest.approx(6, rel=0.2)


def test_unread_records_count() -> None:
    stage = Stage()
    stage.agent(slots=4)
    pressures(stage, 30, arriving=5, served=4)
    near = stage.leader.pressure(stage.now + 2, (0, 0, 0, 0)).classes[2]
    far = stage.leader.pressure(stage.now + 4, (0, 0, 5000, 0)).classes[2]
    assert far.fill > near.fill
    assert far.depth == near.depth + 5000
    assert far.verdict == REJECT


def test_a_backlog_without_agents_is_never_refused_until_memory_fills() -> None:
    stage = Stage(QueueConfig(live_tasks_max=1000))
    for i in range(600):
        stage.submit(f"t{i}")
    stage.step()
    assert stage.leader.pressure(stage.now, (0, 0, 0, 0)).classes[2].verdict == SLOW
    for i in range(600, 800):
        stage.submit(f"t{i}")
    stage.step()
    full = stage.leader.pressure(stage.now + 2, (0, 0, 0, 0)).classes[2]
    assert (full.verdict, full.retry_after > 0) == (REJECT, True)


def test_a_higher_class_does_not_wait_for_a_lower_ones_backlog() -> None:
    stage = Stage()
    stage.agent(slots=4)
    pressures(stage, 60, arriving=12, served=4)
    pressure = stage.leader.pressure(stage.now + 2, (0, 0, 0, 0))
    assert pressure.classes[2].verdict == REJECT
    assert pressure.classes[0].verdict == ACCEPT
    assert pressure.classes[0].fill == 0


def test_the_oldest_is_told() -> None:
    stage = Stage()
    stage.submit("a", priority=Source.HIGH)
    stage.step()
    stage.submit("b", priority=Source.HIGH)
    stage.step(30)
    pressure = stage.leader.pressure(stage.now, (0, 0, 0, 0))
    assert pressure.classes[1].oldest == pytest.approx(30)
    assert pressure.classes[1].depth == 2


@pytest.mark.parametrize(("idle", "rate"), [(True, 4.0), (False, 1.0)])
def test_only_a_fleet_without_a_free_slot_shows_what_it_can_do(idle: bool, rate: float) -> None:
    meter = Meter()
    for second in range(30):
        meter.tick(float(second), 4)
        meter.note_out(2, 1.0)
        meter.idle_seen = idle
    assert meter.rate == pytest.approx(rate)
    assert meter.has_learned is not idle


# --- at the edge ---


def pressure(verdict: str, fill: float = 0.0, **more: float) -> Pressure:
    one = ClassPressure(verdict, fill, **more)  # type: ignore[arg-type]
    return Pressure(term=1, at=100.0, classes=(one, one, one, one))


def test_the_edge_follows_the_published_verdict() -> None:
    accepted = judge(pressure(ACCEPT), 1, 101.0, budget_s=10)
    slowed = judge(pressure(SLOW, 0.7, pace=0.4), 1, 101.0, budget_s=10)
    refused = judge(pressure(REJECT, 2.0, retry_after=7.0), 1, 101.0, budget_s=10)
    assert (accepted.kind, accepted.pace, accepted.retry_after) == (ACCEPT, 0, 0)
    assert (slowed.kind, slowed.pace) == (SLOW, 0.4)
    assert (refused.kind, refused.retry_after, refused.reason) == (REJECT, 7.0, "overload")


@pytest.mark.parametrize("known", [None, pressure(REJECT, 2.0, retry_after=7.0)])
def test_without_fresh_pressure_everything_is_slowed_a_little(known: Pressure | None) -> None:
    verdict = judge(known, 1, 100.0 + STALE_AFTER_S + 1, budget_s=10)
    assert (verdict.kind, verdict.reason) == (SLOW, "unknown")
    assert 0 < verdict.pace < 1


def test_what_would_start_after_its_deadline_is_refused_at_once() -> None:
    busy = pressure(SLOW, 0.7, pace=0.4)
    verdict = judge(busy, 1, 101.0, budget_s=10, deadline=105.0)
    assert (verdict.kind, verdict.reason, verdict.retry_after > 0) == (REJECT, "infeasible", True)
    assert judge(busy, 1, 101.0, budget_s=10, deadline=110.0).kind == SLOW
    assert judge(busy, 1, 101.0, budget_s=10, deadline=100.0).reason == "expired"
