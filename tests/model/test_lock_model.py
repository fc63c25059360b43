"""Our recipes on a model of ZooKeeper: every short schedule, many long ones, rivals and mutants.

``ZKCOORD_LOCK_MODEL_RUNS=100000 pytest tests/model/test_lock_model.py`` explores further, and
``ZKCOORD_LOCK_MODEL_DEPTH=3`` that many steps deeper. A failure names its seed or its steps:
``wander(scenario, seed)``, or ``World(scenario)`` and ``take`` of each, repeat it.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kazoo_lock import kazoo_lock
from lock_mutants import MUTANTS, Mutant
from lock_requests import Ours, alone, lock
from lock_scenario import Scenario
from lock_search import (
    DEEPER,
    HOSTILE,
    RUNS,
    Found,
    every_short_one_ends_well,
    explore,
    settled,
    wander,
)
from zk_client import ModelConnection

BLOCKS = 3
MUTANT_RUNS = 2500
WRAP = 2**31 - 2

LOCK, BRIEF, TRY, FICKLE = lock(), lock(timeout=2.0), lock(timeout=0), lock(may_cancel=True)
LEASES = Scenario(((LOCK, LOCK), (LOCK,)), alone, servers=1, faults=(("expire", 1), ("lag", 1)))
MIXED = Scenario(
    ((LOCK, FICKLE, lock(timeout=3.0)), (LOCK, TRY), (BRIEF, LOCK)),
    alone,
    servers=3,
    faults=HOSTILE,
    counter=WRAP - 2,
)

SHORT = {
    "two clients, the link of one breaks": (Scenario(((LOCK,), (LOCK,)), alone), 8),
    "a link breaks twice": (Scenario(((LOCK,),), alone, servers=3, faults=(("cut", 2),)), 9),
    "two requests of one client": (Scenario(((LOCK, LOCK),), alone), 9),
    "one gives up": (Scenario(((FICKLE, LOCK), (BRIEF,)), alone, faults=(("cut", 1),)), 5),
    "one only tries": (Scenario(((TRY,), (LOCK,)), alone), 7),
    "sessions end": (
        Scenario(((LOCK,), (LOCK,)), alone, faults=(("expire", 1), ("silence", 1))),
        4,
    ),
    "another leader, proposals lost or not": (
        Scenario(((LOCK,), (LOCK,)), alone, faults=(("elect", 1), ("cut", 1))),
        5,
    ),
    "the counter wraps": (Scenario(((LOCK, LOCK), (LOCK,)), alone, counter=2**31 - 1), 6),
    "no folder yet": (Scenario(((LOCK,), (LOCK,)), alone, folders=()), 7),
}
LONG = (
    MIXED,
    LEASES,
    Scenario(((LOCK, LOCK), (LOCK, FICKLE)), alone, faults=HOSTILE, folders=()),
    Scenario(((LOCK,), (FICKLE,), (LOCK,)), alone, servers=3, faults=(("cut", 4), ("elect", 2))),
)

pytestmark = pytest.mark.usefixtures("on_the_model")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SHORT)
def test_every_short_schedule_ends_well(name: str) -> None:
    scenario, depth = SHORT[name]
    every_short_one_ends_well(scenario, depth)


@pytest.mark.timeout(3600)
def test_a_lease_is_believed_no_longer_than_its_session_lives() -> None:
    """Every schedule from here: one holds, the other waits, and the servers hear nothing."""
    held = settled(LEASES, ("ask", 0), ("ask", 1))
    found = explore(LEASES, 4 + DEEPER, begin=held)
    assert not found.wrong, (found.wrong, found.steps)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_long_schedules_end_well(block: int) -> None:
    per_block = RUNS // BLOCKS
    for seed in range(block * per_block, (block + 1) * per_block):
        world = wander(LONG[seed % len(LONG)], seed)
        assert not world.wrong, (seed, world.wrong, world.steps)


def test_the_world_is_hostile() -> None:
    """The runs above meet what they are meant to meet."""
    steps: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for seed in range(120):
        world = wander(LONG[seed % len(LONG)], seed)
        steps.update(kind for kind, _ in world.steps)
        for client in world.clients:
            for request in client.requests:
                assert isinstance(request, Ours)
                error = type(request.error).__name__
                ends["granted" if request.granted else error] += 1
    for fault in ("cut", "expire", "silence", "lag", "elect", "cancel", "notice", "reap"):
        assert steps[fault] > 3, fault
    for end in ("granted", "AcquireTimeout", "SessionLost", "NoneType"):
        assert ends[end] > 15, end


# --- kazoo's algorithm ------------------------------------------------------------------------

KAZOO = Scenario(((kazoo_lock(),), (kazoo_lock(),)), alone)


def test_kazoos_lock_is_right_while_nothing_breaks() -> None:
    found = explore(replace(KAZOO, faults=()), 10)
    assert not found.wrong, (found.wrong, found.steps)


def test_kazoo_creates_twice_and_waits_for_itself() -> None:
    """The look-up after a lost link does not show a create that is still a proposal."""
    found = explore(KAZOO, 5, wanted=waits_for_ever)
    assert [kind for kind, _ in found.steps][-1] == "cut"
    assert any(
        text.startswith("leftovers") and text.count("guid-of-c0") == 2 for text in found.wrong
    )


def test_kazoo_takes_another_transactions_reply_for_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With xids that start again the second create gets the first one's reply: an orphan."""
    monkeypatch.setattr(ModelConnection, "xids_restart", True)
    found = explore(KAZOO, 6, wanted=only_leftovers)
    assert found.wrong, found
    assert "guid-of-c0" in found.wrong[0]
    monkeypatch.setattr(ModelConnection, "xids_restart", False)
    assert not explore(KAZOO, 6, wanted=only_leftovers).wrong


def waits_for_ever(wrong: list[str]) -> bool:
    return any(text.startswith("liveness") for text in wrong)


def only_leftovers(wrong: list[str]) -> bool:
    return bool(wrong) and all(text.startswith("leftovers: ['/locks") for text in wrong)


# --- our algorithm with a protection off ------------------------------------------------------


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_each_mutant_is_found(mutant: Mutant) -> None:
    with mutant.patch():
        found = search(mutant)
    assert found.wrong, f"{mutant.name} survived {found.runs} runs"


def search(mutant: Mutant) -> Found:
    def wanted(wrong: list[str]) -> bool:
        return any(text.startswith(mutant.harm) for text in wrong)

    if mutant.begin:
        held = settled(LEASES, *mutant.begin[:2])
        return explore(LEASES, 6, begin=held + mutant.begin[2:], wanted=wanted)
    for seed in range(MUTANT_RUNS):
        world = wander(MIXED, seed)
        if wanted(world.wrong):
            return Found(world.wrong, world.steps, 0, seed + 1)
    return Found([], [], 0, MUTANT_RUNS)
