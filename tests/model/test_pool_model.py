"""The shipped pool of slots on a model of ZooKeeper: schedules with faults, and mutants.

``ZKCOORD_LOCK_MODEL_RUNS=20000 pytest tests/model/test_pool_model.py`` explores further. A failure
names its seed: ``wander(STORIES[name], seed)`` repeats it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import lock_search
from lock_mutants import Patch, replaced
from lock_scenario import Scenario, Wish
from lock_search import HOSTILE, every_short_one_ends_well, explore, long_ones_end_well, wander
from pool_requests import FOLDERS, SLOTS, TAKEN, PoolWorld, add, drain, one_each, slot

from zkcoord.errors import VersionConflict
from zkcoord.recipes import recount, slot_acquisition
from zkcoord.recipes.slot_acquisition import SlotAcquisition
from zkcoord.zk.requests import NODE_CHANGED, Check, Delete, Multi, WatchEvent

pytestmark = pytest.mark.usefixtures("on_the_model")

RUNS = lock_search.RUNS // 30
MUTANT_RUNS = 1500
RARE = {"hears of ends only": 560, "takes a lost claim for a failed one": 420}  # seeds near
CUTS = (("cut", 2),)
ENDS = (("cut", 1), ("close", 2), ("expire", 1))
ALL = (*FOLDERS, TAKEN)


def pool(
    *wishes: tuple[Wish, ...],
    faults: tuple[tuple[str, int], ...] = CUTS,
    folders: tuple[str, ...] = ALL,
    servers: int = 2,
    counter: int = 0,
) -> Scenario:
    return Scenario(wishes, one_each, servers, faults, counter, folders=folders, world=PoolWorld)


ONE, FICKLE, TRY, BRIEF = slot(), slot(may_cancel=True), slot(timeout=0), slot(timeout=3.0)
LAST, STORED = slot(prefer=SLOTS[1]), slot(of=None)
STORIES = {
    "calm": pool((ONE, ONE), (ONE, ONE), (ONE,), faults=()),
    "every fault": pool(
        (ONE, ONE, BRIEF), (LAST, FICKLE), (ONE, TRY, ONE),
        faults=HOSTILE, servers=3,
    ),
    "no folder yet": pool((ONE, ONE), (ONE, BRIEF), folders=()),
    "sessions end": pool((ONE, ONE), (ONE, ONE), (FICKLE, ONE), faults=ENDS),
    "drained and added": pool(
        (ONE, ONE), (drain(SLOTS[0]), ONE), (ONE, add("gpu-2"), STORED), faults=CUTS, servers=3
    ),
    "the counter ends": pool((ONE, ONE), (add("gpu-2"), BRIEF), (ONE, ONE), counter=2**31 - 3),
    "drained": pool((ONE, ONE), (drain(SLOTS[0]), ONE), (LAST, FICKLE), faults=HOSTILE),
}  # fmt: skip


SHORT = {
    "two for one slot": (pool((slot(of=("a",)),), (slot(of=("a",)),), faults=(("cut", 1),)), 5),
    "one that may give up": (pool((FICKLE,), faults=(), servers=1), 20),
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", STORIES)
def test_long_schedules_end_well(name: str) -> None:
    long_ones_end_well(STORIES[name], RUNS, steps=90)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SHORT)
def test_every_short_schedule_ends_well(name: str) -> None:
    scenario, depth = SHORT[name]
    every_short_one_ends_well(scenario, depth)


def test_the_schedules_meet_what_they_are_meant_to_meet() -> None:
    """Somebody waits for a slot, another is drained while it is held, one is added."""
    seen: set[str] = set()
    for seed in range(60):
        world = wander(STORIES["drained and added"], seed, steps=90)
        for txn in world.ensemble.log:
            seen |= {f"{kind} {path}" for kind, path, _ in txn.deltas}
    taken = {f"created {TAKEN}/{name}" for name in (*SLOTS, "gpu-2")}
    assert taken <= seen
    assert f"set {FOLDERS[1]}" in seen


# --- mutants ----------------------------------------------------------------------------------


def _unversioned(path: str, _version: int = -1) -> Check:
    return Check(path, -1)


def _deaf_to_values(self: SlotAcquisition, event: WatchEvent | None) -> None:
    if event is None or event.kind != NODE_CHANGED:
        _fired(self, event)


def _deaf_while_looking(self: SlotAcquisition, event: WatchEvent | None) -> None:
    if not self._looking:
        _fired(self, event)


_fired = SlotAcquisition._fired


def _lost_claims_failed(self: SlotAcquisition, _create: Any) -> None:
    self._not_claimed(VersionConflict("another was faster"))


def _gives_up_at_once(self: SlotAcquisition) -> None:
    if self._claiming:
        self._claimed = lambda *_: None  # type: ignore[method-assign]
    self._claiming = False
    _tidy(self)


_tidy = SlotAcquisition._tidy


def _turn_stays(operations: tuple[Any, ...]) -> Multi:
    return Multi(operations[:2])


def _only_empty(folder: str) -> Any:
    yield Delete(folder)


def _look_once(self: SlotAcquisition, *, watch: bool = False) -> None:
    if not watch:
        _look(self)


_look = SlotAcquisition._look

MUTANTS: dict[str, tuple[str, tuple[str, ...], Patch]] = {
    "claims whatever was drained": (
        "drained", ("drained",), replaced(slot_acquisition, "Check", _unversioned)),
    "hears of ends only": (
        "drained and added", ("liveness",),
        replaced(SlotAcquisition, "_fired", _deaf_to_values)),
    "misses what comes between two answers": (
        "calm", ("liveness",), replaced(SlotAcquisition, "_fired", _deaf_while_looking)),
    "watches nothing": ("calm", ("liveness",), replaced(SlotAcquisition, "_look", _look_once)),
    "takes a lost claim for a failed one": (
        "every fault", ("liveness", "leftovers"),
        replaced(SlotAcquisition, "_verify", _lost_claims_failed)),
    "gives up while its claim is under way": (
        "one that may give up", ("leftovers", "liveness"),
        replaced(SlotAcquisition, "_tidy", _gives_up_at_once)),
    "counts anew in empty folders only": (
        "the counter ends", ("liveness",), replaced(recount, "_renewing", _only_empty)),
    "stays in the queue": (
        "calm", ("liveness", "leftovers"), replaced(slot_acquisition, "Multi", _turn_stays)),
}  # fmt: skip


def has(wrong: list[str], harm: tuple[str, ...]) -> bool:
    return any(text.startswith(harm) for text in wrong)


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_found(name: str) -> None:
    story, harm, patch = MUTANTS[name]
    with patch():
        if story in SHORT:
            found = explore(*SHORT[story], wanted=lambda wrong: has(wrong, harm))
            assert found.wrong, f"it survived {found.runs} runs"
            return
        begin = RARE.get(name, 0)
        for seed in range(begin, begin + MUTANT_RUNS):
            world = wander(STORIES[story], seed, steps=90)
            if has(world.wrong, harm):
                return
    pytest.fail(f"it survived {MUTANT_RUNS} runs")
