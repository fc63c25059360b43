"""`zkcoord queue`: create, list and show queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli import options
from zkcoord_cli.exit_codes import ExitCode
from zkcoord_cli.options import QUEUE, SECONDS, connected, inspected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name

if TYPE_CHECKING:
    from zkcoord.config import QueueConfig
    from zkcoord.inspector import Inspector, QueueView
    from zkcoord.settings import Settings

CLASSES = ("critical", "high", "normal", "low")
FIELDS = {
    "budget": "budget_s",
    "floor": "floor",
    "reserved": "reserved_slots",
    "overflow": "overflow",
}


@click.group(name="queue")
def command() -> None:
    """Create, list and show queues."""


@command.command()
@click.argument("name", type=QUEUE)
@click.option("--partitions", type=click.IntRange(1, 256), default=1, help="Of each class's topic.")
@click.option(
    "--inboxes", type=click.IntRange(1, 10_000), default=16, help="Agents at a time; grows."
)
@click.option(
    "--replication",
    type=click.IntRange(1, 9),
    show_default="3 or the number of brokers",
    help="Copies of each topic.",
)
@click.option(
    "--class",
    "classes",
    multiple=True,
    metavar="CLASS:KEY=VALUE[,…]",
    help="Of one class: budget (seconds), floor, reserved (slots), overflow (wait, reject).",
)
@click.option(
    "--task-timeout", type=SECONDS, default=300.0, metavar="SECONDS", help="Of one attempt."
)
@click.option("--attempts", type=click.IntRange(1, 1000), default=5, help="Before a task is dead.")
@json_option
@connected
@pass_output
def create(
    output: Output,
    /,
    settings: Settings,
    name: str,
    classes: tuple[str, ...],
    as_json: bool,
    **numbers: Any,
) -> None:
    """Create a queue: its topics, then its description. Safe to repeat.

    A queue that is there keeps its settings; what is missing of it is created.

    \b
    zkcoord queue create mail
    zkcoord queue create mail --class critical:reserved=2 --class low:overflow=reject,floor=0
    """
    from zkcoord.queue.administration import QueueDescription, config_path, create_queue
    from zkcoord.queue.topics import KINDS

    wanted = QueueDescription(
        queue=name,
        namespace=settings.namespace,
        partitions=numbers["partitions"],
        inboxes=numbers["inboxes"],
        config=_config(classes, numbers["task_timeout"], numbers["attempts"]),
    )
    with options.open_inspector(settings) as inspector:
        servers = inspector.servers
        present = set(servers.admin.describe(wanted.topics.all))
        existed = servers.session.nodes.exists(config_path(name)) is not None
        standing = create_queue(
            servers.session, servers.admin, wanted, replication=numbers["replication"]
        )
    created = [topic for topic in standing.topics.all if topic not in present]
    kept = existed and standing != wanted
    if as_json:
        output.json(
            schema_name("queue", "create"),
            {"queue": name, "existed": existed, "topics_created": created, "settings_kept": kept},
        )
        return
    if not created and existed:
        output.line(f"queue {name} is there already, with all {len(KINDS)} topics")
    else:
        done = "completed" if existed else "created"
        output.line(f"queue {name} {done}: {len(created)} of {len(KINDS)} topics were missing")
    if kept:
        output.warn(
            "it keeps the settings that it was created with; those given now have no effect"
        )
    output.note(f"next: zkcoord scheduler run {name}")


@command.command(name="list")
@json_option
@inspected
@pass_output
def list_(output: Output, inspector: Inspector, as_json: bool) -> None:
    """List queues: verdict, fill, depth, oldest task, rates, leader.

    \b
    zkcoord queue list
    zkcoord queue list --json
    """
    import msgspec

    views = inspector.queues()
    if as_json:
        output.json(schema_name("queue", "list"), {"items": msgspec.to_builtins(views)})
        return
    output.table(
        (
            "QUEUE",
            "VERDICT",
            "FILL",
            "DEPTH",
            "OLDEST",
            "IN/S",
            "OUT/S",
            "BUSY",
            "AGENTS",
            "LEADER",
        ),
        [
            (
                view.name,
                *(_figures(view) if view.leader else ("unknown", *(None,) * 6)),
                view.agents,
                view.leader.name if view.leader else "none",
            )
            for view in views
        ],
        right=("FILL", "DEPTH", "OLDEST", "IN/S", "OUT/S", "BUSY", "AGENTS"),
        empty="there is no queue; create one: zkcoord queue create NAME",
    )
    _warn(output, views)


@command.command()
@click.argument("name")
@json_option
@inspected
@pass_output
def show(output: Output, inspector: Inspector, name: str, as_json: bool) -> None:
    """Show one queue: each class, the schedulers, the agents and the topics.

    \b
    zkcoord queue show mail
    zkcoord queue show mail --json
    """
    import msgspec

    from zkcoord_cli.formats import duration, rate, share

    detail = inspector.queue(name)
    if as_json:
        output.json(schema_name("queue", "show"), msgspec.to_builtins(detail))
        return
    queue = detail.queue
    leader = f"{queue.leader.name}, term {queue.leader.token}" if queue.leader else "none"
    output.fields(
        [
            ("queue", queue.name + (" (paused)" if queue.paused else "")),
            ("leader", leader),
            ("standbys", ", ".join(one.name for one in queue.standbys) or "none"),
            ("slots", f"{queue.busy} of {queue.slots} busy, {queue.agents} agents"),
            ("pressure", _pressure(queue)),
        ]
    )
    output.line()
    output.table(
        (
            "CLASS",
            "VERDICT",
            "FILL",
            "DEPTH",
            "OLDEST",
            "IN/S",
            "OUT/S",
            "UNREAD",
            "BUDGET",
            "FLOOR",
        ),
        [
            (
                one.priority,
                _verdict(one.verdict, one.pace, one.retry_after),
                share(one.fill),
                one.depth,
                duration(one.oldest),
                rate(one.rate_in),
                rate(one.rate_out),
                one.unread,
                duration(one.budget),
                share(one.floor),
            )
            for one in queue.classes
        ],
        right=("FILL", "DEPTH", "OLDEST", "IN/S", "OUT/S", "UNREAD", "BUDGET", "FLOOR"),
    )
    output.line()
    output.table(
        ("TOPIC", "PARTITIONS", "RECORDS"),
        [(topic.name, topic.partitions, topic.records) for topic in detail.topics],
        right=("PARTITIONS", "RECORDS"),
    )
    _warn(output, [queue])


@command.command()
@click.argument("name")
@click.option("--log", is_flag=True, help="Also the log behind the checkpoint: histories go.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("--yes", is_flag=True, help="Needed with --log.")
@json_option
@inspected
@pass_output
def trim(
    output: Output,
    inspector: Inspector,
    name: str,
    log: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Delete records that the queue's leader has consumed, where it may not do so itself.

    What has not been read stays, always. With --log the histories of ended tasks go too.

    \b
    zkcoord queue trim mail --dry-run
    zkcoord queue trim mail --log --yes
    """
    from zkcoord.queue import operating
    from zkcoord.queue.administration import describe_queue

    if log and not (yes or dry_run):
        output.error("--log deletes the histories of ended tasks", "repeat it with --yes")
        return ExitCode.REFUSED
    servers = inspector.servers
    topics = describe_queue(servers.session, name).topics
    what = operating.removable(servers.kafka, servers.admin, topics, log=log)
    if not dry_run:
        operating.trim(servers.admin, what)
    items = [
        {"topic": topic, "partition": partition, "from": span.beginning, "to": span.end}
        for (topic, partition), span in what.items()
    ]
    if as_json:
        output.json(
            schema_name("queue", "trim"), {"queue": name, "done": not dry_run, "items": items}
        )
        return ExitCode.OK
    output.table(
        ("TOPIC", "PARTITION", "FROM", "TO"),
        [tuple(item.values()) for item in items],
        right=("PARTITION", "FROM", "TO"),
        empty="nothing to delete",
    )
    if dry_run and items:
        output.note("nothing was deleted: this was a dry run")
    return ExitCode.OK


def _figures(view: QueueView) -> tuple[object, ...]:
    """What the leader published; without a leader it is of the past, and not shown."""
    from zkcoord_cli.formats import duration, rate, share

    return (
        view.verdict + (" paused" if view.paused else ""),
        share(max((c.fill for c in view.classes), default=0.0)),
        view.depth,
        duration(view.oldest),
        rate(sum(c.rate_in for c in view.classes)),
        rate(sum(c.rate_out for c in view.classes)),
        f"{view.busy}/{view.slots}",
    )


def _pressure(queue: QueueView) -> str:
    from zkcoord_cli.formats import duration

    if queue.pressure_age is None:
        return "never published"
    return f"published {duration(queue.pressure_age)} ago in term {queue.pressure_term}"


def _verdict(verdict: str, pace: float, retry_after: float) -> str:
    from zkcoord_cli.formats import duration

    if verdict == "slow" and pace:
        return f"slow, {duration(pace)} apart"
    if verdict == "reject" and retry_after:
        return f"reject, retry in {duration(retry_after)}"
    return verdict


def _warn(output: Output, queues: list[QueueView]) -> None:
    from zkcoord_cli.formats import duration

    for queue in queues:
        if queue.problem:
            output.warn(queue.problem)
        elif queue.leader is None:
            output.warn(f"{queue.name} has no leader: zkcoord scheduler run {queue.name}")
        elif queue.pressure_age is None or queue.pressure_age > 30:
            age = "never" if queue.pressure_age is None else f"{duration(queue.pressure_age)} ago"
            output.warn(f"{queue.name}: pressure was last published {age}; figures may be old")
        if queue.leader and not queue.agents:
            output.warn(f"{queue.name} has no agents: zkcoord agent run {queue.name} --handlers …")


def _config(classes: tuple[str, ...], task_timeout: float, attempts: int) -> QueueConfig:
    """The queue's configuration from the command line; UsageError for what cannot be read."""
    from dataclasses import replace

    from zkcoord.config import QueueConfig, RetryPolicy, default_classes

    changed = list(default_classes())
    for text in classes:
        name, _, pairs = text.partition(":")
        if name not in CLASSES or not pairs:
            raise click.UsageError(
                f"--class {text}: write CLASS:KEY=VALUE, CLASS is one of {CLASSES}"
            )
        place = CLASSES.index(name)
        changed[place] = replace(
            changed[place], **dict(_pair(text, pair) for pair in pairs.split(","))
        )
    return QueueConfig(
        classes=(changed[0], changed[1], changed[2], changed[3]),
        retry=RetryPolicy(attempts=attempts),
        timeout_s=task_timeout,
    )


def _pair(text: str, pair: str) -> tuple[str, Any]:
    key, _, value = pair.partition("=")
    if key not in FIELDS or not value:
        raise click.UsageError(
            f"--class {text}: '{pair}' is no KEY=VALUE with KEY in {tuple(FIELDS)}"
        )
    if key == "overflow":
        return FIELDS[key], value
    try:
        return FIELDS[key], int(value) if key == "reserved" else float(value)
    except ValueError:
        raise click.UsageError(f"--class {text}: '{value}' is no number") from None
