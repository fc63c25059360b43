"""Who was the last to hold asks with the create alone: what its number must and must not prove."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lock_requests import alone, lock
from lock_scenario import Scenario
from lock_search import explore, settled, wander
from lock_world import Step

from zkcoord.core.vacancy import Moment, Vacancy
from zkcoord.recipes import entry

RUNS = int(os.environ.get("ZKCOORD_LOCK_MODEL_RUNS", "600"))
LOCK = lock()
REAPED = Scenario(((LOCK, LOCK), (LOCK, LOCK)), alone, servers=1, faults=(("reap", 1), ("cut", 1)))
OFTEN = Scenario(
    ((LOCK,) * 4, (LOCK,) * 3),
    alone,
    faults=(("reap", 3), ("cut", 1), ("expire", 1), ("elect", 1)),
)

pytestmark = pytest.mark.usefixtures("on_the_model")
LEFT: tuple[Step, ...] = (("ask", 0), ("release", 0))

Rule = Callable[[Vacancy | None, int, Moment], bool]


def any_folder(left: Vacancy | None, sequence: int, created: Moment) -> bool:
    """Takes a folder that was made again for the one that it left."""
    del created
    known = left is not None and left.removed is not None
    return sequence == 0 or (known and left is not None and sequence == left.sequence + 1)


def any_number(left: Vacancy | None, sequence: int, created: Moment) -> bool:
    """Does not see that others came in between."""
    del created
    return sequence == 0 or (left is not None and left.removed is not None)


def any_holder(left: Vacancy | None, sequence: int, created: Moment) -> bool:
    """Takes the one who holds for one who has gone."""
    del created
    return sequence == 0 or (left is not None and sequence == left.sequence + 1)


MUTANTS: tuple[tuple[Rule, tuple[Step, ...]], ...] = (
    (any_folder, (*LEFT, ("reap", 0), ("ask", 1), ("ask", 0))),
    (any_number, (*LEFT, ("ask", 1), ("ask", 0))),
    (any_holder, (("ask", 0), ("ask", 0))),
)


@pytest.mark.parametrize(
    "begin",
    [LEFT, (*LEFT, ("reap", 0)), (*LEFT, ("ask", 1))],
    ids=["it left", "no folder", "another came"],
)
@pytest.mark.timeout(3600)
def test_every_short_schedule_after_it_left_ends_well(begin: tuple[Step, ...]) -> None:
    found = explore(REAPED, 6, begin=settled(REAPED, *begin))
    assert not found.wrong, (found.wrong, found.steps)
    assert found.states > 50


@pytest.mark.timeout(3600)
def test_long_schedules_end_well() -> None:
    reaped = 0
    for seed in range(RUNS):
        world = wander(OFTEN, seed)
        assert not world.wrong, (seed, world.wrong, world.steps)
        reaped += any(kind == "reap" for kind, _ in world.steps)
    assert reaped > RUNS / 10


@pytest.mark.parametrize(("rule", "steps"), MUTANTS, ids=[rule.__name__ for rule, _ in MUTANTS])
def test_each_mutant_is_found(rule: Rule, steps: tuple[Step, ...]) -> None:
    def wrong() -> list[str]:
        return explore(REAPED, 0, begin=settled(REAPED, *steps)).wrong

    assert not wrong()
    with mock.patch.object(entry, "nobody_in_front", rule):
        assert any(text.startswith("exclusion") for text in wrong())
