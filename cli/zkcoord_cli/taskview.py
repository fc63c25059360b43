"""A task and its history for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkcoord_cli.formats import duration, moment

if TYPE_CHECKING:
    from zkcoord.inspector import TaskHistory, TaskView
    from zkcoord_cli.output import Output


def show_task(output: Output, told: TaskHistory) -> None:
    """Print what is known of a task, and what happened to it."""
    view = told.task
    output.fields(_facts_of(view))
    output.line()
    first = told.facts[0].at if told.facts else 0.0
    output.table(
        ("AT", "AFTER", "WHAT", "TRY", "DETAIL"),
        [
            (moment(f.at), duration(f.at - first), f.what, f.attempt or None, f.detail[:200])
            for f in told.facts
        ],
        right=("AFTER", "TRY"),
        empty="the log was trimmed behind everything that happened to it",
    )
    if not told.complete:
        output.note("the log was trimmed behind the beginning of its history")


def _facts_of(view: TaskView) -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = [
        ("id", view.id),
        ("task", view.task or None),
        ("state", view.state),
        ("class", view.priority or None),
        ("attempt", view.attempt),
        ("submitted", moment(view.submitted)),
    ]
    if view.tenant:
        pairs.append(("tenant", view.tenant))
    if view.requires:
        pairs.append(("requires", ", ".join(view.requires)))
    if view.state in ("waiting", "retrying"):
        pairs.append(("not before", moment(view.due)))
    if view.expires_at:
        pairs.append(("deadline", moment(view.expires_at)))
    if view.reason:
        pairs.append(("reason", view.reason))
    if view.error:
        pairs.append(("error", view.error))
    if view.result is not None:
        pairs.append(("result", view.result[:2000]))
    return pairs
