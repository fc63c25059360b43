"""What a run of all stories came to: whether it is as it must be, and the table for the page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.chaos.catalogue import STORIES, Outcome, Story
from tests.chaos.stage import KAZOO, OURS, SUBJECTS, Subject

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "checked-histories.md"
BEGIN, END = "<!-- table: python -m tests.chaos --page -->", "<!-- end of table -->"
KAZOO_MUST_BREAK = {"C1", "C4", "C5"}


def wrong(tasks: Iterable[tuple[Story, Subject]], outcomes: list[Outcome]) -> list[str]:
    """What is not as it must be."""
    found = [
        f"{outcome.story}: our lock breaks {' '.join(outcome.rules)}"
        for outcome in outcomes
        if outcome.subject == OURS.name and outcome.violations
    ]
    found += [
        f"{outcome.story} could not be told of {outcome.subject}: {outcome}"
        for outcome in outcomes
        if "story" in outcome.rules
    ]
    by_key = {(outcome.story, outcome.subject): outcome for outcome in outcomes}
    for story, subject in tasks:
        outcome = by_key[story.name, subject.name]
        if subject.name in story.convicts and not (outcome.convicted or outcome.skipped):
            found.append(f"{story.name}: {subject.name} gets away with it")
    kazoo = [outcome for outcome in outcomes if outcome.subject == KAZOO.name]
    if len(kazoo) == sum(KAZOO in story.subjects for story in STORIES):
        broken = {rule for outcome in kazoo for rule in outcome.rules}
        if KAZOO_MUST_BREAK - broken:
            found.append(f"kazoo does not break {KAZOO_MUST_BREAK - broken}")
    return found


def beside(before: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """An earlier result with the outcomes of a later one."""
    outcomes = {(o["story"], o["subject"]): o for o in before["outcomes"] + result["outcomes"]}
    return before | {
        "seconds": before["seconds"] + result["seconds"],
        "apart": before.get("apart", 0) + len(result["outcomes"]),
        "outcomes": sorted(outcomes.values(), key=lambda o: str(o["story"])),
    }


def table(result: dict[str, Any]) -> str:
    """Stories down, subjects across; which rules were broken."""
    cells = {(o["story"], o["subject"]): o for o in result["outcomes"]}
    subjects = [s.name for s in SUBJECTS if any(key[1] == s.name for key in cells)]
    lines = [f"| | story | {' | '.join(subjects)} |", "|---|---|" + "---|" * len(subjects)]
    for story in STORIES:
        if any(key[0] == story.name for key in cells):
            row = [_cell(cells.get((story.name, subject))) for subject in subjects]
            lines.append(f"| {story.number} | {story.about} | {' | '.join(row)} |")
    return "\n".join(lines)


def _cell(outcome: dict[str, Any] | None) -> str:
    if outcome is None or outcome["skipped"]:
        return ""
    return " ".join(f"**{rule}**" for rule in outcome["rules"]) or "holds"


def write_page(path: Path) -> None:
    """Put the table of a run into the page."""
    result = json.loads(path.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    told = len(result["outcomes"])
    note = f"{told} stories in {result['seconds'] / 60:.0f} minutes, seed {result['seed']}."
    if apart := result.get("apart"):
        note += f" {apart} of them were told after the others, on their own."
    PAGE.write_text(f"{head}{BEGIN}\n{table(result)}\n\n{note}\n{END}{tail}", encoding="utf-8")
