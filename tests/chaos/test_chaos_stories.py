"""Slices of stories about our lock, and of some that must convict; `make chaos-locks` tells all.

Stories of clients run side by side on one ensemble, those that hurt servers on another.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.chaos.arena import Arena
from tests.chaos.catalogue import STORIES, Outcome, Story, run
from tests.chaos.interposing import interposer
from tests.chaos.stage import OURS, Subject

SEED = int(os.environ.get("ZKCOORD_CHAOS_SEED", str(random.SystemRandom().randrange(10**6))))
LANES = 4
SLOW = {
    "mixed_faults_of_servers",
    "t7_leaders_are_killed",
    "t8_leader_in_the_minority",
    "t10_frozen_for_long",
    "t11_wall_clocks_jump",
    "t16_the_counter_ends",
    "t10_frozen_for_a_moment",
}
QUICK = [(story, OURS) for story in STORIES if story.name not in SLOW]
MUST = {
    ("t1_cut_off_while_busy", "late"),
    ("t5_paused_longer_than_the_timeout", "unguarded"),
    ("t16_numbers_that_wrap", "text"),
    ("t17_what_it_costs", "kazoo"),
}
GUILTY = [
    (story, Subject(name))
    for story in STORIES
    for name in story.convicts
    if (story.name, name) in MUST
]
TASKS = [*QUICK, *GUILTY]


@pytest.fixture(scope="module")
def told() -> dict[tuple[str, str], Outcome]:
    """Everything is told once, several stories at a time."""
    outcomes: dict[tuple[str, str], Outcome] = {}
    lanes: dict[str, list[tuple[Story, Subject]]] = {"shared": [], "own": []}
    for task in TASKS:
        lanes["own" if task[0].where == "own" else "shared"].append(task)
    with Arena() as shared, Arena(partitions=True) as own:
        threads = [
            threading.Thread(target=_work, args=(lanes[where], arena, outcomes))
            for where, arena in [("shared", shared)] * LANES + [("own", own)]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return outcomes


def _work(
    tasks: list[tuple[Story, Subject]], arena: Arena, outcomes: dict[tuple[str, str], Outcome]
) -> None:
    while tasks:
        try:
            story, subject = tasks.pop(0)
        except IndexError:
            return
        outcome = run(story, arena, subject, seed=SEED, size=story.slice)
        outcomes[story.name, subject.name] = outcome


def _id(value: object) -> str:
    return getattr(value, "name", str(value))


@pytest.mark.parametrize(("story", "subject"), QUICK, ids=_id)
def test_our_lock_holds(
    told: dict[tuple[str, str], Outcome], story: Story, subject: Subject
) -> None:
    outcome = told[story.name, subject.name]
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert not outcome.violations, str(outcome)


@pytest.mark.parametrize(("story", "subject"), GUILTY, ids=_id)
def test_others_are_convicted(
    told: dict[tuple[str, str], Outcome], story: Story, subject: Subject
) -> None:
    outcome = told[story.name, subject.name]
    assert outcome.convicted, str(outcome)


@pytest.mark.skipif(interposer() is None, reason="there is no C compiler")
def test_the_interposer_changes_wall_clocks_and_nothing_else(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("3600")
    program = "import time; print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))"

    def ask(**more: str) -> list[float]:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, env=os.environ | more, check=True)
        return [float(word) for word in done.stdout.split()]

    wall, boot = ask()
    wrong, right = ask(LD_PRELOAD=str(interposer()), FAULT_CLOCK=str(clock))
    assert 3600 <= wrong - wall < 3700
    assert 0 <= right - boot < 100
