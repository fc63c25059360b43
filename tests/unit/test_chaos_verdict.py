"""When a run of all stories is as it must be, and when it is not."""

from __future__ import annotations

from tests.chaos.catalogue import STORIES, Outcome
from tests.chaos.report import wrong
from tests.chaos.stage import KAZOO, OURS, Subject
from tests.histories.rules import Violation

STORY = next(story for story in STORIES if "late" in story.convicts)
LATE = Subject("late")


def outcome(subject: Subject, *rules: str) -> Outcome:
    violations = tuple(Violation(rule, "what happened") for rule in rules)
    return Outcome(STORY.name, STORY.number, subject.name, 1, 1.0, 2.0, violations, "")


def test_our_lock_must_break_no_rule() -> None:
    assert wrong([(STORY, OURS)], [outcome(OURS)]) == []
    assert len(wrong([(STORY, OURS)], [outcome(OURS, "C1")])) == 1


def test_a_mutant_must_be_convicted_and_not_by_a_program_that_does_not_run() -> None:
    assert wrong([(STORY, LATE)], [outcome(LATE, "C1")]) == []
    assert len(wrong([(STORY, LATE)], [outcome(LATE)])) == 1
    assert len(wrong([(STORY, LATE)], [outcome(LATE, "story")])) == 2
    assert wrong([(STORY, Subject("text"))], [outcome(Subject("text"))]) == []  # not of it


def test_kazoo_must_break_exclusion_liveness_and_leftovers_somewhere() -> None:
    told = [story for story in STORIES if KAZOO in story.subjects]

    def whole(*rules: str) -> list[str]:
        outcomes = [
            Outcome(s.name, s.number, "kazoo", 1, 1.0, 2.0, (), "") for s in told if s is not STORY
        ]
        found = wrong([(STORY, KAZOO)], [*outcomes, outcome(KAZOO, *rules)])
        return [text for text in found if text.startswith("kazoo does not")]

    assert whole("C1", "C4", "C5") == []
    assert len(whole("C1", "C4")) == 1
