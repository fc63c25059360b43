"""`zkcoord task`: submit tasks, see what became of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli.exit_codes import ExitCode
from zkcoord_cli.options import QUEUE, SECONDS, connected, inspected, json_option, timeout_option
from zkcoord_cli.output import Output, pass_output, schema_name

if TYPE_CHECKING:
    from zkcoord.inspector import Inspector, TaskHistory, TaskView
    from zkcoord.queue.handle import Queue
    from zkcoord.settings import Settings

CLASSES = ("critical", "high", "normal", "low")
STATES = (
    "pending",
    "running",
    "waiting",
    "retrying",
    "cancelled",
    "dead",
    "failed",
    "rejected",
    "succeeded",
)
READ_TIMEOUT = "How long the log may take to read."


@click.group(name="task")
def command() -> None:
    """Submit tasks; see their state, history and results."""


@command.command()
@click.argument("queue", type=QUEUE)
@click.argument("task")
@click.argument("arguments", nargs=-1, metavar="[KEY=TEXT | KEY:=JSON]…")
@click.option("--json-args", metavar="JSON", help="Arguments as one JSON array or object.")
@click.option("--priority", type=click.Choice(CLASSES, case_sensitive=False), default="normal")
@click.option("--deadline", type=SECONDS, metavar="SECONDS", help="It is dead if not done by then.")
@click.option("--delay", type=SECONDS, metavar="SECONDS", help="It does not start earlier.")
@click.option("--attempt-timeout", type=SECONDS, metavar="SECONDS", help="Limit of one attempt.")
@click.option("--attempts", type=click.IntRange(1, 1000), help="How many it gets.")
@click.option("--requires", multiple=True, metavar="NAME", help="Capability its agent must have.")
@click.option("--tenant", metavar="NAME", help="On whose behalf.")
@click.option("--id", "task_id", metavar="ID", help="Its id; repeats are dropped while it lives.")
@click.option("--wait", type=SECONDS, metavar="SECONDS", help="Wait for its end, print the result.")
@json_option
@connected
@pass_output
def submit(
    output: Output, /, settings: Settings, queue: str, task: str, as_json: bool, **given: Any
) -> None:
    """Submit a task; prints its id, or its result with --wait.

    KEY=TEXT gives a text, KEY:=JSON any JSON value. When the queue is slow, this waits the pace it
    asks for; when it refuses, the exit status is 10 and the message says when to try again.

    \b
    zkcoord task submit mail mail.send to=a@example.org copies:=2
    zkcoord task submit mail report --json-args '[2026, "may"]' --priority high --wait 60
    """
    from zkcoord.core.records import Priority

    args, kwargs = _arguments(given["arguments"], given["json_args"])
    wait: float | None = given["wait"]
    with _queue(settings, queue) as handle:
        ticket = handle.submit_raw(
            task,
            args,
            kwargs,
            priority=Priority[given["priority"].upper()],
            deadline=given["deadline"],
            delay=given["delay"],
            timeout=given["attempt_timeout"],
            attempts=given["attempts"],
            requires=given["requires"],
            tenant=given["tenant"],
            id=given["task_id"],
            result=wait is not None,
        )
        document: dict[str, Any] = {
            "queue": queue,
            "id": ticket.id,
            "verdict": ticket.verdict.kind,
            "pace": ticket.verdict.pace,
        }
        if ticket.verdict.pace:
            output.note(
                f"queue {queue} asked for a slower pace: waited {ticket.verdict.pace:.2f} s"
            )
        if wait is not None:
            output.note(f"task {ticket.id} submitted, waiting for its end")
            document["result"] = ticket.result(timeout=wait)
            document["state"] = "succeeded"
    if as_json:
        output.json(schema_name("task", "submit"), document)
    elif wait is None:
        output.line(ticket.id)
    else:
        click.echo(json.dumps(document["result"], ensure_ascii=False))


@command.command()
@click.argument("queue")
@click.argument("task_ids", nargs=-1, required=True, metavar="ID…")
@click.option("--reason", default="by hand", metavar="TEXT", help="Stands in the task's history.")
@json_option
@connected
@pass_output
def cancel(
    output: Output,
    settings: Settings,
    queue: str,
    task_ids: tuple[str, ...],
    reason: str,
    as_json: bool,
) -> None:
    """Ask for the cancellation of tasks.

    A task that has not started will not start; one that runs is told to stop. What came of it shows
    in its history: it may have ended before the request was read.

    \b
    zkcoord task cancel mail 01K9V5M0QK8RZ7
    zkcoord task cancel mail 01K9V5M0QK8RZ7 --reason "sent twice"
    """
    import getpass

    from zkcoord.core.records import Control

    with _queue(settings, queue) as handle:
        for task_id in task_ids:
            handle.control(
                Control(action="cancel", id=task_id, reason=reason, who=getpass.getuser())
            )
    if as_json:
        output.json(schema_name("task", "cancel"), {"queue": queue, "asked": list(task_ids)})
    else:
        output.note(f"asked for; see it with: zkcoord task show {queue} {task_ids[0]}")


@command.command()
@click.argument("queue")
@click.argument("task_id", metavar="ID")
@timeout_option(60.0, READ_TIMEOUT)
@json_option
@inspected
@pass_output
def show(
    output: Output, inspector: Inspector, queue: str, task_id: str, timeout: float, as_json: bool
) -> None:
    """Show a task's state and its history, as the queue's log has it.

    \b
    zkcoord task show mail 01K9V5M0QK8RZ7
    zkcoord task show mail 01K9V5M0QK8RZ7 --json
    """
    import msgspec

    told = inspector.task(queue, task_id, timeout=timeout)
    if as_json:
        output.json(schema_name("task", "show"), {"queue": queue, **msgspec.to_builtins(told)})
        return
    _show(output, told)


@command.command()
@click.argument("queue")
@click.argument("task_id", metavar="ID")
@click.option(
    "--wait", type=SECONDS, default=0.0, metavar="SECONDS", help="Wait so long for its end."
)
@timeout_option(60.0, READ_TIMEOUT)
@json_option
@inspected
@pass_output
def result(
    output: Output,
    inspector: Inspector,
    queue: str,
    task_id: str,
    wait: float,
    timeout: float,
    as_json: bool,
) -> int:
    """Print the result of a task, as JSON; the exit status is 9 without success, 6 when not yet.

    \b
    zkcoord task result mail 01K9V5M0QK8RZ7
    zkcoord task result mail 01K9V5M0QK8RZ7 --wait 60
    """
    view = inspector.task_end(queue, task_id, wait=wait, timeout=timeout).task
    if as_json:
        value = json.loads(view.result) if view.result is not None else None
        output.json(
            schema_name("task", "result"),
            {
                "queue": queue,
                "id": view.id,
                "state": view.state,
                "attempt": view.attempt,
                "reason": view.reason,
                "error": view.error,
                "result": value,
            },
        )
    elif view.result is not None:
        click.echo(view.result)
    if view.state == "succeeded":
        return 0
    output.error(
        f"task {view.id} is {view.state}: {view.reason or view.error}",
        f"see its history: zkcoord task show {queue} {view.id}",
    )
    return ExitCode.TASK_FAILED


@command.command(name="list")
@click.argument("queue")
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only these.")
@click.option("--task", metavar="NAME", help="Only tasks of this name.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=50, help="At most so many.")
@timeout_option(60.0, READ_TIMEOUT)
@json_option
@inspected
@pass_output
def list_(
    output: Output,
    inspector: Inspector,
    queue: str,
    states: tuple[str, ...],
    task: str | None,
    limit: int,
    timeout: float,
    as_json: bool,
) -> None:
    """List the tasks that the queue's log still knows, latest change first.

    \b
    zkcoord task list mail --state running --state retrying
    zkcoord task list mail --task mail.send --limit 1000 --json
    """
    import msgspec

    from zkcoord_cli.formats import ago

    known, dropped = inspector.tasks(queue, timeout=timeout)
    views = [
        view
        for view in reversed(known)
        if (not states or view.state in states) and task in (None, view.task)
    ]
    left_out = max(0, len(views) - limit)
    views = views[:limit]
    if as_json:
        document = {"queue": queue, "items": msgspec.to_builtins(views), "left_out": left_out}
        output.json(schema_name("task", "list"), document)
        return
    output.table(
        ("ID", "STATE", "CLASS", "TASK", "AGE", "TRY", "INBOX", "WHY"),
        [
            (
                view.id,
                view.state,
                view.priority,
                view.task,
                ago(view.submitted),
                view.attempt,
                view.partition,
                (view.reason or view.error)[:60],
            )
            for view in views
        ],
        right=("AGE", "TRY", "INBOX"),
        empty=f"the log of queue {queue} knows no such task",
    )
    if left_out:
        output.note(f"{left_out} more; see them with --limit {left_out + limit}")
    if dropped:
        output.warn(f"{dropped} older tasks did not fit into memory and are not counted")


def _show(output: Output, told: TaskHistory) -> None:
    from zkcoord_cli.formats import duration, moment

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
    from zkcoord_cli.formats import moment

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


def _queue(settings: Settings, queue: str) -> Queue:
    from zkcoord.queue.handle import Queue

    return Queue(
        queue,
        kafka=settings.need_kafka(),
        zookeeper=settings.need_zookeeper(),
        namespace=settings.namespace,
        session=settings.session,
    )


def _arguments(
    pairs: tuple[str, ...], json_args: str | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments; UsageError for what cannot be read."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if json_args is not None:
        match _json(json_args, "--json-args"):
            case list(items):
                args = tuple(items)
            case dict(members):
                kwargs = members
            case _:
                raise click.UsageError("--json-args: must be a JSON array or object")
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.removesuffix(":"):
            raise click.UsageError(f"{pair!r}: write KEY=TEXT or KEY:=JSON")
        name = key.removesuffix(":")
        if name in kwargs:
            raise click.UsageError(f"{name!r} is given twice")
        kwargs[name] = _json(text, pair) if key.endswith(":") else text
    return args, kwargs


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{where}: is not JSON: {error}") from None
