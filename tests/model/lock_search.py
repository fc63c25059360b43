"""Looking for a schedule that breaks something: all of them up to a depth, or many at random."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from lock_scenario import Scenario
from lock_world import FAULTS, Step, World

RUNS = int(os.environ.get("ZKCOORD_LOCK_MODEL_RUNS", "1200"))
"""How many schedules a test of locks tries at random; the other recipes take a share of it."""
DEEPER = int(os.environ.get("ZKCOORD_LOCK_MODEL_DEPTH", "0"))
HOSTILE = (("cut", 3), ("expire", 1), ("silence", 1), ("lag", 1), ("elect", 1), ("reap", 1))

QUIET = {"receive", "deliver", "commit", "apply"}


class Found(NamedTuple):
    """What a search met.

    Attributes:
        wrong: of the first schedule that broke something; empty when none did.
        steps: that schedule, until everything was healed.
        states: different states seen. runs: schedules run.
    """

    wrong: list[str]
    steps: list[Step]
    states: int
    runs: int


def begun(scenario: Scenario) -> World:
    """A world in which nothing has happened yet."""
    world: World = (scenario.world or World)(scenario)
    return world


def explore(
    scenario: Scenario,
    depth: int,
    *,
    wanted: Callable[[list[str]], bool] = bool,
    limit: int = 10**9,
    begin: tuple[Step, ...] = (),
) -> Found:
    """Every schedule of so many steps, the shortest first; each is then healed and judged.

    Two schedules that led to the same ensemble and told each client the same are one: a client is
    a function of what it was told.
    """
    seen: set[object] = set()
    frontier: deque[tuple[Step, ...]] = deque([begin])
    runs = 0
    while frontier and runs < limit:
        schedule = frontier.popleft()
        runs += 1
        world = begun(scenario)
        for step in schedule:
            world.take(step)
        if wanted(world.wrong):
            return Found(world.wrong, world.steps, len(seen), runs)
        state = hash(world.state())
        if state in seen:
            continue
        seen.add(state)
        if len(schedule) - len(begin) < depth:
            frontier.extend((*schedule, step) for step in world.choices())
        wrong = world.calm()
        if wanted(wrong):
            return Found(wrong, list(schedule), len(seen), runs)
    return Found([], [], len(seen), runs)


def settled(scenario: Scenario, *steps: Step) -> tuple[Step, ...]:
    """A schedule that takes these steps and carries out all that follows from each."""
    world = begun(scenario)
    for step in steps:
        world.take(step)
        while usual := [s for s in world.choices() if s[0] in QUIET]:
            world.take(usual[0])
    return tuple(world.steps)


def wander(scenario: Scenario, seed: int, steps: int = 60) -> World:
    """One schedule at random, faults being rarer than the rest; then healed and judged."""
    rng = Random(seed)
    world = begun(scenario)
    lazy = rng.choice([0.0, 0.3, 0.8])  # how often servers dawdle
    for _ in range(steps):
        choices = world.choices()
        usual = [step for step in choices if step[0] not in FAULTS]
        if lazy and rng.random() < lazy:
            usual = [step for step in usual if step[0] not in {"commit", "apply"}] or usual
        faults = [step for step in choices if step[0] in FAULTS]
        if faults and (not usual or rng.random() < 0.12):
            usual = faults
        if not usual:
            break
        world.take(rng.choice(usual))
        if world.wrong:
            return world
    world.calm(rng)
    return world


def every_short_one_ends_well(scenario: Scenario, depth: int, *, states: int = 100) -> None:
    """Nothing breaks within so many steps, which meet more than so many states."""
    found = explore(scenario, depth + DEEPER)
    assert not found.wrong, (found.wrong, found.steps)
    assert found.states > states


def long_ones_end_well(scenario: Scenario, runs: int, *, steps: int = 60) -> None:
    """Nothing breaks in so many schedules at random. What fails names its seed."""
    for seed in range(runs):
        world = wander(scenario, seed, steps)
        assert not world.wrong, (seed, world.wrong, world.steps)
