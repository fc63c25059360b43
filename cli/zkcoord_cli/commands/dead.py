"""`zkcoord dead`: what could not be done, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli.options import inspected, json_option, timeout_option
from zkcoord_cli.output import Output, pass_output, schema_name

if TYPE_CHECKING:
    from zkcoord.inspector import DeadView, Inspector

COUNTED_MAX = 1000
READ_TIMEOUT = "How long the letters may take to read."


@click.group(name="dead")
def command() -> None:
    """Look at dead letters: what could not be done, and why."""


@command.command(name="list")
@click.argument("queue")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, help="At most so many.")
@click.option("--reason", metavar="WORD", help="Only those with this reason.")
@click.option("--task", metavar="NAME", help="Only those of this task.")
@timeout_option(30.0, READ_TIMEOUT)
@json_option
@inspected
@pass_output
def list_(
    output: Output,
    inspector: Inspector,
    queue: str,
    limit: int,
    reason: str | None,
    task: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    """List the newest dead letters of a queue, newest first.

    \b
    zkcoord dead list mail
    zkcoord dead list mail --reason malformed --json
    """
    letters = inspector.dead_letters(queue, limit=limit, reason=reason, task=task, timeout=timeout)
    if as_json:
        items = [_as_json(letter) for letter in letters]
        output.json(schema_name("dead", "list"), {"queue": queue, "items": items})
        return
    if not letters and (reason or task):
        output.note(_none_such(inspector, queue, reason, task, timeout))
        return
    _table(output, queue, letters)


def _table(output: Output, queue: str, letters: list[DeadView]) -> None:
    from zkcoord_cli.formats import ago

    output.table(
        ("LETTER", "ID", "REASON", "TASK", "TRIES", "AGE", "ERROR"),
        [
            (
                letter.fact,
                letter.id or letter.source,
                letter.reason,
                letter.task,
                letter.attempts,
                ago(letter.died),
                letter.error[:80],
            )
            for letter in letters
        ],
        right=("TRIES", "AGE"),
        empty=f"queue {queue} has no dead letters",
    )


@command.command()
@click.argument("queue")
@click.argument("which", metavar="ID|LETTER")
@click.option("--raw", is_flag=True, help="Print the original value's bytes and nothing else.")
@timeout_option(60.0, READ_TIMEOUT)
@json_option
@inspected
@pass_output
def show(
    output: Output,
    inspector: Inspector,
    queue: str,
    which: str,
    raw: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Show one dead letter with its original bytes, by task id or by its own.

    A record without an id goes by where it stood: CLASS/PARTITION/OFFSET.

    \b
    zkcoord dead show mail 812.0
    zkcoord dead show mail 01K9V5 --raw > body.json
    """
    from zkcoord_cli.formats import moment, text_of

    letter = inspector.dead_letter(queue, which, timeout=timeout)
    if raw:
        output.raw(letter.value or b"")
        return
    if as_json:
        output.json(schema_name("dead", "show"), {"queue": queue, **_as_json(letter)})
        return
    output.fields(
        [
            ("id", letter.id or letter.source),
            ("task", letter.task),
            ("reason", letter.reason),
            ("error", letter.error),
            ("attempts", letter.attempts),
            ("submitted", moment(letter.submitted)),
            ("given up", moment(letter.died)),
            ("record was", letter.source),
            ("letter", f"{letter.fact}, in the topic at {letter.where}"),
            ("key", text_of(letter.key)),
            *((f"header {name}", text_of(value)) for name, value in letter.headers),
            ("value", text_of(letter.value)),
        ]
    )
    if letter.sha256:
        output.note(f"cut: the value had {letter.size} bytes, sha256 {letter.sha256}")


def _none_such(
    inspector: Inspector, queue: str, reason: str | None, task: str | None, timeout: float
) -> str:
    """That nothing fits the filter, and what there is instead."""
    from collections import Counter

    asked = [f"with reason {reason!r}"] if reason else []
    asked += [f"of task {task!r}"] if task else []
    text = f"queue {queue} has no dead letter {' '.join(asked)}"
    others = inspector.dead_letters(queue, limit=COUNTED_MAX, timeout=timeout)
    if not others:
        return f"{text}, and no other"
    most = "at least " if len(others) == COUNTED_MAX else ""
    reasons = Counter(letter.reason for letter in others).most_common()
    return f"{text}; it has {most}{len(others)}: " + ", ".join(f"{r} {n}" for r, n in reasons)


def _as_json(letter: DeadView) -> dict[str, Any]:
    """The letter with bytes as base64, beside their text where they are UTF-8."""
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(letter)
    try:
        document["text"] = None if letter.value is None else letter.value.decode()
    except UnicodeDecodeError:
        document["text"] = None
    return document
