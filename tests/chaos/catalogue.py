"""All stories: where each needs to happen, and whom it must convict."""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.chaos.actors import Stuck
from tests.chaos.arena import Arena
from tests.chaos.interposing import interposer
from tests.chaos.programs import protections
from tests.chaos.stage import KAZOO, OURS, SLOW, SUBJECTS, UNGUARDED, Stage, Subject
from tests.chaos.stories import commands, crowds, cutoff, processes, servers
from tests.histories.rules import Violation

Tell = Callable[[Stage], None]
Where = Literal["shared", "long", "own"]
MUTANTS = [subject for subject in SUBJECTS if subject.name in protections.MUTANTS]
PASSING, COUNTING, CONTENT = map(Subject, ("passing", "counting", "content"))
LOCKS = (OURS, KAZOO, *MUTANTS)


@dataclass(frozen=True)
class Story:
    """One of T1 to T22, or a part of one.

    Attributes:
        number: as the table of faults has it.
        where: ``own`` when it hurts servers; others share an ensemble, those that are ``long`` in
            a lane of their own.
        interposed: whether it needs a C compiler.
        subjects: whose locks it is told of.
        convicts: subjects that it must find guilty.
        slice: the size at which `make test` tells it, and the whole run for mutants.
    """

    number: str
    tell: Tell
    where: Where = "shared"
    interposed: bool = False
    subjects: tuple[Subject, ...] = LOCKS
    convicts: tuple[str, ...] = ()
    slice: float = 0.1

    @property
    def name(self) -> str:
        return self.tell.__name__

    @property
    def about(self) -> str:
        """What happens, in one sentence."""
        text = " ".join((self.tell.__doc__ or "").split())
        return text.partition(". ")[0].rstrip(".")


STORIES = [
    Story("T1", cutoff.t1_cut_off_while_busy, convicts=("kazoo", "late")),
    Story("T1", cutoff.t1_one_server_goes_silent, convicts=("kazoo", "sent")),
    Story("T2", cutoff.t2_cut_off_while_idle, convicts=("late",)),
    Story("T3", servers.t3_create_in_flight, "own", True, convicts=("kazoo", "looks")),
    Story(
        *("T3", servers.t3_create_in_flight_same_xid, "own", True),
        convicts=("kazoo", "looks", "xids"),
    ),
    Story("T4", cutoff.t4_cut_at_every_byte, convicts=("kazoo",)),
    Story(
        *("T5", processes.t5_paused_longer_than_the_timeout),
        subjects=(OURS, KAZOO, UNGUARDED, *MUTANTS),
        convicts=("kazoo", "unguarded"),
    ),
    Story("T5", processes.t5_paused_for_a_moment),
    Story("T6", processes.t6_killed),
    Story("T7", servers.t7_leaders_are_killed, "own", convicts=("kazoo",)),
    Story("T8", servers.t8_leader_in_the_minority, "own", True, convicts=("late",)),
    Story("T9", cutoff.t9_half_open, convicts=("late",)),
    Story("T10", servers.t10_frozen_for_a_moment, "own"),
    Story("T10", servers.t10_frozen_for_long, "own", convicts=("kazoo", "sent")),
    Story("T11", processes.t11_wall_clocks_jump, "own", True),
    Story("T11", processes.t11_clocks_that_drift, subjects=(OURS, SLOW), convicts=("slow",)),
    Story("T12", processes.t12_ended_by_force),
    Story("T13", processes.t13_callbacks_that_lock, convicts=("kazoo",)),
    Story("T13", processes.t13_callbacks_that_close, subjects=(OURS, KAZOO)),
    Story("T14", processes.t14_forked_while_holding, convicts=("kazoo",)),
    Story("T15", processes.t15_many_that_come_to_nothing, slice=0.005, convicts=("kazoo",)),
    Story("T16", servers.t16_the_counter_ends, "own", convicts=("kazoo", "end")),
    Story("T16", processes.t16_numbers_that_wrap, subjects=(OURS, *MUTANTS), convicts=("text",)),
    Story("T17", crowds.t17_what_it_costs, convicts=("kazoo",)),
    Story("T18", crowds.t18_a_herd, convicts=("kazoo",)),
    Story("T19", cutoff.t19_whatever_the_network_does, convicts=("late",)),
    Story(
        *("T20", crowds.t20_several_locks_at_once, "long"),
        subjects=(OURS, CONTENT),
        slice=0.01,
        convicts=("content",),
    ),
    Story("T22", commands.t22_a_command_under_a_lock, subjects=(OURS,)),
    Story("mix", crowds.mixed_faults),
    Story("mix", crowds.mixed_faults_of_servers, "own"),
    Story(
        *("mix", crowds.mixed_readers_and_writers),
        subjects=(OURS, PASSING),
        convicts=("passing",),
    ),
    Story("mix", crowds.mixed_permits, subjects=(OURS, COUNTING), convicts=("counting",)),
]


@dataclass(frozen=True)
class Outcome:
    """What came of one story told of one subject."""

    story: str
    number: str
    subject: str
    seed: int
    size: float
    seconds: float
    violations: tuple[Violation, ...]
    folder: str
    skipped: str = ""

    @property
    def rules(self) -> list[str]:
        return sorted({violation.rule for violation in self.violations})

    @property
    def convicted(self) -> bool:
        """Whether it broke a rule; that the story could not be told is none."""
        return bool(set(self.rules) - {"story"})

    def __str__(self) -> str:
        told = "\n".join(f"  {violation}" for violation in self.violations)
        again = f"python -m tests.chaos --only {self.story} --subject {self.subject}"
        again += f" --seed {self.seed} --size {self.size:g}"
        return f"{self.story} of {self.subject}, journals in {self.folder}; again: {again}\n{told}"


def run(story: Story, arena: Arena, subject: Subject, *, seed: int, size: float) -> Outcome:
    """Tell a story and judge it."""
    begun = time.monotonic()
    if story.interposed and interposer() is None:
        return Outcome(
            *(story.name, story.number, subject.name, seed, size, 0.0, (), ""),
            skipped="there is no C compiler",
        )
    stage = Stage(arena, subject, story.name.partition("_")[0], seed=seed, size=size)
    try:
        stage.open()
        story.tell(stage)
    except Stuck:
        pass  # the history has it
    except Exception:
        stage.claim("story", traceback.format_exc(limit=3))
    stage.close()
    seconds = time.monotonic() - begun
    verdict = tuple(stage.verdict)
    if not verdict or subject != OURS:
        shutil.rmtree(stage.folder)
    return Outcome(
        *(story.name, story.number, subject.name, seed, size, seconds, verdict, str(stage.folder))
    )
