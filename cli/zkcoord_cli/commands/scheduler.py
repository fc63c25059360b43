"""`zkcoord scheduler`: run a scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zkcoord_cli.options import QUEUE, SECONDS, connected
from zkcoord_cli.output import Output, pass_output

if TYPE_CHECKING:
    from zkcoord.settings import Settings


@click.group(name="scheduler")
def command() -> None:
    """Run a scheduler for one or more queues."""


@command.command()
@click.argument("queues", nargs=-1, required=True, type=QUEUE, metavar="QUEUE…")
@click.option("--name", metavar="NAME", show_default="host:pid", help="How logs name it.")
@click.option(
    "--history", type=SECONDS, default=3600.0, metavar="SECONDS", help="How long the log is kept."
)
@click.option("--trim/--no-trim", default=True, help="Delete what was consumed; needs the right.")
@connected
@pass_output
def run(
    output: Output,
    settings: Settings,
    queues: tuple[str, ...],
    name: str | None,
    history: float,
    trim: bool,
) -> None:
    """Run a scheduler until SIGTERM or Ctrl-C; then it resigns and the next one takes over.

    Run at least two with the same queues: one leads, the others stand by.

    \b
    zkcoord scheduler run mail
    zkcoord scheduler run mail reports --name blue-1
    """
    from zkcoord.config import SchedulerConfig
    from zkcoord.queue.scheduler import Scheduler
    from zkcoord_cli.servicelog import configure

    configure(output.verbose)
    scheduler = Scheduler(
        *queues,
        kafka=settings.need_kafka(),
        zookeeper=settings.need_zookeeper(),
        config=SchedulerConfig(history_s=history, trim=trim),
        session=settings.session,
        name=name,
    )
    output.note(f"scheduler {scheduler.name} starts for {', '.join(queues)}; Ctrl-C to stop")
    scheduler.run()
