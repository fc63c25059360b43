"""`zkcoord task`: submit tasks, see what became of them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli import options
from zkcoord_cli.arguments import read_arguments
from zkcoord_cli.exit_codes import ExitCode
from zkcoord_cli.options import (
    QUEUE,
    SECONDS,
    connected,
    inspected,
    json_option,
    timeout_option,
)
from zkcoord_cli.output import Output, pass_output, schema_name
from zkcoord_cli.taskview import show_task
from zkcoord_cli.taskwait import UNFINISHED, explain, wait_for

if TYPE_CHECKING:
    from zkcoord.errors import ZkcoordError
    from zkcoord.inspector import Inspector
    from zkcoord.queue.handle import Queue
    from zkcoord.queue.ticket import Ticket
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

    args, kwargs = read_arguments(given["arguments"], given["json_args"])
    wait: float | None = given["wait"]
    failure: ZkcoordError | None = None
    with _queue(settings, queue) as handle:
        ticket = _submit(
            handle,
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
            known = ticket.verdict.reason != "unknown"
            why = "asked for a slower pace" if known else "has no news of its load yet"
            output.note(f"queue {queue} {why}: waited {ticket.verdict.pace:.2f} s")
        if wait is not None:
            output.note(f"task {ticket.id} submitted, waiting for its end")
            failure = wait_for(handle, ticket, wait, document)
    if as_json:
        output.json(schema_name("task", "submit"), document)
    if failure is not None:
        raise failure
    if as_json:
        return
    if wait is None:
        output.line(ticket.id)
    else:
        click.echo(json.dumps(document["result"], ensure_ascii=False))


def _submit(handle: Queue, *call: Any, **options: Any) -> Ticket[Any]:
    """Submit; an outcome that is unknown says how to repeat it here."""
    from zkcoord.errors import PublishTimeout

    try:
        return handle.submit_raw(*call, **options)
    except PublishTimeout as error:
        error.hint = (
            "submit it again with this id as --id: while that task lives a repeat is dropped"
        )
        raise


@command.command()
@click.argument("queue")
@click.argument("task_ids", nargs=-1, required=True, metavar="ID…")
@click.option("--reason", default="by hand", metavar="TEXT", help="Stands in the task's history.")
@timeout_option(60.0, READ_TIMEOUT)
@json_option
@connected
@pass_output
def cancel(
    output: Output,
    settings: Settings,
    queue: str,
    task_ids: tuple[str, ...],
    reason: str,
    timeout: float,
    as_json: bool,
) -> int:
    """Ask for the cancellation of tasks that live; status 5 when one does not.

    A task that has not started will not start; one that runs is told to stop. What came of it shows
    in its history: it may have ended before the request was read.

    \b
    zkcoord task cancel mail 01K9V5M0QK8RZ7
    zkcoord task cancel mail 01K9V5M0QK8RZ7 --reason "sent twice"
    """
    import getpass

    from zkcoord.core.records import Control

    with options.open_inspector(settings) as inspector:
        over = _not_live(inspector, queue, task_ids, timeout)
    asked = [task_id for task_id in task_ids if task_id not in over]
    if asked:
        with _queue(settings, queue) as handle:
            for task_id in asked:
                handle.control(
                    Control(action="cancel", id=task_id, reason=reason, who=getpass.getuser())
                )
    if as_json:
        document = {"queue": queue, "asked": asked, "not_live": over}
        output.json(schema_name("task", "cancel"), document)
    elif asked:
        output.note(f"asked for; see it with: zkcoord task show {queue} {asked[0]}")
    for task_id, state in over.items():
        if state is None:
            output.error(
                f"the log of queue {queue} knows no task {task_id!r}",
                "one that was just submitted must first be read by a scheduler",
            )
        else:
            output.error(f"task {task_id} has ended already: {state}")
    return ExitCode.NOT_FOUND if over else ExitCode.OK


def _not_live(
    inspector: Inspector, queue: str, task_ids: tuple[str, ...], timeout: float
) -> dict[str, str | None]:
    """Those of the tasks that have ended, with their state, or None where nothing is known."""
    from zkcoord.errors import NodeMissing
    from zkcoord.queue.administration import describe_queue

    describe_queue(inspector.servers.session, queue)
    over: dict[str, str | None] = {}
    for task_id in task_ids:
        try:
            view = inspector.task(queue, task_id, timeout=timeout).task
        except NodeMissing:
            over[task_id] = None
        else:
            if view.is_terminal:
                over[task_id] = view.state
    return over


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
    show_task(output, told)


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
    from zkcoord.errors import NodeMissing, ResultTimeout

    try:
        view = inspector.task_end(queue, task_id, wait=wait, timeout=timeout).task
    except ResultTimeout as error:
        explain(error, inspector, queue)
        if as_json:
            document = {"queue": queue, "id": task_id, "state": UNFINISHED, "result": None}
            document["error"] = str(error.args[0])
            output.json(schema_name("task", "result"), document)
        raise
    except NodeMissing as error:
        if re.fullmatch(r"[a-z]+/[0-9]+/[0-9]+", task_id):
            error.hint = (
                f"a record without an id is a dead letter: zkcoord dead show {queue} {task_id}"
            )
        raise
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


def _queue(settings: Settings, queue: str) -> Queue:
    from zkcoord.queue.handle import Queue

    return Queue(
        queue,
        kafka=settings.need_kafka(),
        zookeeper=settings.need_zookeeper(),
        namespace=settings.namespace,
        session=settings.session,
    )
