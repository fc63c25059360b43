"""Read-write lock, semaphore and several locks at once on the model of ZooKeeper.

See test_lock_model.py; ``ZKCOORD_LOCK_MODEL_RUNS`` and ``ZKCOORD_LOCK_MODEL_DEPTH`` count here too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import lock_search
from lock_mutants import Mutant, replaced
from lock_requests import (
    alone,
    downgrade,
    lock,
    locks,
    one_by_one,
    one_writer_or_readers,
    permits,
    read,
    within_the_limit,
    write,
)
from lock_scenario import Rule, Scenario, Wish
from lock_search import (
    DEEPER,
    HOSTILE,
    every_short_one_ends_well,
    explore,
    long_ones_end_well,
    settled,
    wander,
)
from recipe_mutants import MULTI, READ_WRITE, SEMAPHORE

from zkcoord.recipes.acquisition import Acquisition

pytestmark = pytest.mark.usefixtures("on_the_model")

RUNS = lock_search.RUNS // 10
MUTANT_RUNS = 600
CUTS = (("cut", 2),)
BOTH = ("/locks", "/locks/gpu", "/locks/cpu")


def rw(*wishes: tuple[Wish, ...], faults: tuple[tuple[str, int], ...] = CUTS) -> Scenario:
    return Scenario(wishes, one_writer_or_readers, faults=faults)


def limited(*wishes: tuple[Wish, ...], faults: tuple[tuple[str, int], ...] = CUTS) -> Scenario:
    return Scenario(wishes, within_the_limit, faults=faults)


def several(*wishes: tuple[Wish, ...], faults: tuple[tuple[str, int], ...] = CUTS) -> Scenario:
    return Scenario(wishes, alone, faults=faults, folders=BOTH)


READ, WRITE, DOWN, FICKLE = read(), write(), downgrade(), write(may_cancel=True)
ONE, TWO = permits(1, 3), permits(2, 3)
PAIR, RIAP = locks("gpu", "cpu"), locks("cpu", "gpu", may_cancel=True)

LONG = {
    "readers and writers": rw((READ, WRITE), (DOWN,), (READ,)),
    "readers, writers and every fault": rw(
        (READ, WRITE, lock()), (DOWN, read(timeout=2.0)), (FICKLE, READ), faults=HOSTILE
    ),
    "permits": limited((permits(), permits(2)), (permits(), permits(timeout=2.0)), (permits(),)),
    "permits and every fault": limited(
        (ONE, permits(3, 3)),
        (TWO, permits(1, 3, timeout=2.0)),
        (permits(1, 3, may_cancel=True), permits(1, 3, timeout=0), ONE),
        faults=HOSTILE,
    ),
    "several locks": several((PAIR,), (RIAP,), (lock("cpu"),)),
    "several locks and every fault": several(
        (PAIR, locks("cpu", "net", may_cancel=True)),
        (locks("net", "gpu"), lock("cpu")),
        (locks("cpu", "gpu", "net", timeout=2.0), locks("gpu", timeout=0)),
        faults=HOSTILE,
    ),
}
SHORT = {
    "a reader and a writer": (rw((READ,), (WRITE,)), 6),
    "a downgrade": (rw((DOWN,), (READ,), faults=(("cut", 1),)), 7),
    "permits": (limited((ONE,), (TWO,), faults=(("cut", 1),)), 6),
    "two pairs": (several((PAIR,), (RIAP,), faults=(("cut", 1),)), 6),
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SHORT)
def test_every_short_schedule_ends_well(name: str) -> None:
    scenario, depth = SHORT[name]
    every_short_one_ends_well(scenario, depth, states=50)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LONG)
def test_long_schedules_end_well(name: str) -> None:
    long_ones_end_well(LONG[name], RUNS)


def test_locks_one_after_the_other_end_in_a_deadlock() -> None:
    """What a MultiLock saves from is found at once; the model can see it."""
    scenario = several((one_by_one("gpu", "cpu"),), (one_by_one("cpu", "gpu"),), faults=())
    found = explore(scenario, 12, wanted=lambda wrong: any("waits for ever" in w for w in wrong))
    assert found.wrong


KINDS: dict[str, tuple[Wish, Rule]] = {
    "lock": (lock(), alone),
    "writer": (WRITE, one_writer_or_readers),
    "permit": (permits(1, 1), within_the_limit),
    "several": (PAIR, alone),
}


@pytest.mark.parametrize("end", ["close", "kick"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sessions_end_grants_nothing_to_its_own_waiters(kind: str, end: str) -> None:
    """One session holds and waits behind itself when it is closed, or ended from elsewhere.

    Both nodes go in one instant; the event of the first must not be taken for a grant.
    """
    assert not ending(kind, end)


def ending(kind: str, end: str) -> list[str]:
    wish, rule = KINDS[kind]
    scenario = Scenario(((wish, wish), (wish,)), rule, faults=((end, 1),), folders=BOTH)
    begin = settled(scenario, ("ask", 0), ("ask", 0), ("ask", 1))
    return explore(scenario, 5 + DEEPER, begin=begin).wrong


def test_taking_ones_own_end_for_a_grant_is_found() -> None:
    with replaced(Acquisition, "_went_alone", lambda *_: True)():
        assert any("its own session ended" in text for text in ending("lock", "kick"))


GROUPS = (
    ("readers and writers", READ_WRITE),
    ("permits", SEMAPHORE),
    ("several locks", MULTI),
)


@pytest.mark.parametrize(
    ("name", "mutant"),
    [pytest.param(n, m, id=m.name.replace(" ", "_")) for n, group in GROUPS for m in group],
)
def test_each_mutant_is_found(name: str, mutant: Mutant) -> None:
    with mutant.patch():
        for seed in range(MUTANT_RUNS):
            world = wander(LONG[name], seed)
            if any(text.startswith(mutant.harm) for text in world.wrong):
                return
    pytest.fail(f"{mutant.name} survived {MUTANT_RUNS} runs")
