"""The shipped semaphore on a model of ZooKeeper: random schedules with faults, and mutants.

``ZKCOORD_LOCK_MODEL_RUNS=20000 pytest tests/model/test_semaphore_model.py`` explores further.
A failure names its seed: ``wander(STORIES[name](), seed)`` repeats it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import lock_search
from lock_scenario import Scenario
from lock_search import explore, wander
from lock_world import Step
from semaphore_requests import FOLDERS, Permits, SemaphoreWorld, permits, resize
from zk_client import modelled

from zkcoord.core import permits as permits_core
from zkcoord.core.permits import Limit, Waiter, write_limit
from zkcoord.recipes import recount, resizing
from zkcoord.recipes.lookout import Lookout
from zkcoord.recipes.permit_acquisition import PermitAcquisition
from zkcoord.zk.requests import Delete

pytestmark = pytest.mark.usefixtures("on_the_model")

RUNS = lock_search.RUNS // 12
MUTANT_RUNS = 1500
RARE = {"a limit is believed unwatched": 1130, "a limit is lowered unseen": 570}  # seeds near
WRAP = 2**31 - 3
QUIET = (("cut", 1),)
HOSTILE = (("cut", 3), ("expire", 1), ("silence", 1), ("lag", 1), ("elect", 1))


def plain() -> Scenario:
    one, two, fickle = permits(of=2), permits(2, of=2), permits(of=2, may_cancel=True)
    wishes = ((one, one, one), (one, two), (fickle, one))
    return Scenario(wishes, Permits(2), servers=3, faults=HOSTILE, counter=WRAP, folders=FOLDERS)


def calm() -> Scenario:
    one = permits(of=2)
    wishes = ((one, one), (one, one), (one, one))
    return Scenario(wishes, Permits(2), servers=3, faults=(), folders=FOLDERS)


def weighty() -> Scenario:
    def ask(weight: int, **how: Any) -> Any:
        return permits(weight, of=5, **how)

    wishes = ((ask(3), ask(1), ask(2, timeout=3.0)), (ask(5), ask(1)), (ask(2), ask(4)))
    return Scenario(wishes, Permits(5), faults=QUIET, folders=FOLDERS)


def trying() -> Scenario:
    one, attempt = permits(of=2), permits(of=2, timeout=0)
    wishes = ((one, attempt, one), (attempt, one), (one, attempt))
    return Scenario(wishes, Permits(2), faults=HOSTILE, folders=())


def resized(limit: int, wanted: int, counter: int = 0, **how: bool) -> Callable[[], Scenario]:
    def story() -> Scenario:
        rule = Permits(limit)
        one, two = permits(of=limit), permits(2, of=limit)
        wishes = ((one, two, one), (one, one), (resize(rule, wanted, **how), one))
        return Scenario(wishes, rule, servers=3, faults=QUIET, counter=counter, folders=FOLDERS)

    return story


def drained() -> Scenario:
    """Three hold, the limit falls to two by force, and another asks."""
    rule = Permits(3)
    one = permits(of=3)
    wishes = ((one, one, one), (resize(rule, 2, force=True),), (one, one))
    return Scenario(wishes, rule, faults=(), folders=FOLDERS)


STORIES: dict[str, Callable[[], Scenario]] = {
    "plain": plain,
    "calm": calm,
    "weighty": weighty,
    "trying": trying,
    "raised": resized(2, 4),
    "lowered": resized(3, 2),
    "forced": resized(4, 2, force=True),
    "drained": drained,
    "the counter ends": resized(2, 3, counter=2**31 - 3),
}


@pytest.fixture(autouse=True, scope="module")
def on_the_model() -> Iterator[None]:
    with modelled(), mock.patch.object(lock_search, "World", SemaphoreWorld):
        yield


def wrong(name: str, seed: int) -> list[str]:
    """What a schedule breaks."""
    return wander(STORIES[name](), seed).wrong


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", STORIES)
def test_long_schedules_end_well(name: str) -> None:
    for seed in range(RUNS):
        found = wrong(name, seed)
        assert not found, (name, seed, found)


def test_every_short_schedule_ends_well() -> None:
    one = permits(of=1)
    found = explore(Scenario(((one,), (one,)), Permits(1), folders=FOLDERS), 7)
    assert not found.wrong, (found.wrong, found.steps)
    assert found.states > 100


def drained_step_by_step() -> list[bool]:
    """Three hold when the limit falls to two, and another waits. Whether it has been granted after
    nobody, one and two of them let go."""
    world = SemaphoreWorld(drained())
    asks: list[Step] = [("ask", 0), ("ask", 0), ("ask", 0), ("ask", 1), ("ask", 2)]
    seen = []
    for step in (*asks, ("release", 2), ("release", 1)):
        world.take(step)
        while usual := [one for one in world.choices() if one[0] in lock_search.QUIET]:
            world.take(usual[0])
        seen.append(world.clients[2].requests[0].granted if world.clients[2].requests else False)
    assert all(world.clients[0].requests[number].granted for number in range(3))
    return [*seen[-3:], not world.wrong]


def test_a_limit_that_fell_revokes_nothing_and_grants_nothing_until_it_fits() -> None:
    assert drained_step_by_step() == [False, False, True, True]


def test_granting_up_to_the_old_limit_is_found() -> None:
    with mock.patch.object(Waiter, "_judge", up_to_the_peak):
        assert drained_step_by_step() == [False, True, True, False]


# --- mutants ----------------------------------------------------------------------------------


def unasked(*_: Any) -> None:
    """Do nothing."""


_placed = PermitAcquisition.placed


def lone(self: PermitAcquisition, found: Any) -> None:
    _placed(self, found._replace(behind=0))


def unchecked(folder: str, _name: str, wanted: int, before: Limit, seen: Any) -> Any:
    settled = write_limit(before.resized(wanted).settled())
    yield from resizing.write_kept(folder, settled, seen.stat.version, seen.names)
    return resizing.Resized(wanted, before.permits, 0)


def only_empty(folder: str) -> Any:
    yield Delete(folder)


def up_to_the_peak(self: Waiter) -> permits_core.Step:
    fits = self._total + self.weight <= self.limit.reach
    return permits_core.Step.GRANT if fits else permits_core.Step.WAIT


class Always:
    """An attribute that is always true."""

    def __get__(self, *_: object) -> bool:
        return True

    def __set__(self, *_: object) -> None: ...


def mutant(target: Any, name: str, new: object) -> Callable[[], Any]:
    return lambda: mock.patch.object(target, name, new, create=True)


MUTANTS = {
    "nobody signals": ("calm", "liveness", mutant(PermitAcquisition, "_signal", unasked)),
    "nothing is passed on in a session": (
        "calm", "liveness", mutant(PermitAcquisition, "_inherit", unasked)
    ),
    "who is granted at once never signals": (
        "calm", "liveness", mutant(PermitAcquisition, "placed", lone)
    ),
    "it counts anew in empty folders only": (
        "the counter ends", "liveness", mutant(recount, "_renewing", only_empty)
    ),
    "a limit is believed unwatched": ("lowered", "exclusion", mutant(Lookout, "live", Always())),
    "a limit is lowered unseen": ("lowered", "exclusion", mutant(resizing, "_lowering", unchecked)),
}  # fmt: skip


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_found(name: str) -> None:
    story, harm, patch = MUTANTS[name]
    with patch():
        begin = RARE.get(name, 0)
        for seed in range(begin, begin + MUTANT_RUNS):
            if any(text.startswith(harm) for text in wrong(story, seed)):
                return
    pytest.fail(f"it survived {MUTANT_RUNS} runs")
