"""`zkcoord agent`: run an agent; list agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zkcoord_cli.options import inspected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name

if TYPE_CHECKING:
    from zkcoord.inspector import Inspector


@click.group(name="agent")
def command() -> None:
    """Run an agent; list the agents of a queue."""


@command.command(name="list")
@click.argument("queue", required=False)
@json_option
@inspected
@pass_output
def list_(output: Output, inspector: Inspector, queue: str | None, as_json: bool) -> None:
    """List the agents of one queue, or of all.

    \b
    zkcoord agent list
    zkcoord agent list mail --json
    """
    import msgspec

    from zkcoord_cli.formats import duration

    views = inspector.agents(queue)
    if as_json:
        output.json(schema_name("agent", "list"), {"items": msgspec.to_builtins(views)})
        return
    output.table(
        ("QUEUE", "AGENT", "HOST", "PID", "SLOTS", "INBOX", "SINCE", "CAPABILITIES", "TASKS"),
        [
            (
                view.queue,
                view.name + (" draining" if view.draining else ""),
                view.host,
                view.pid,
                view.slots,
                view.partition,
                duration(view.age),
                ",".join(view.capabilities) or None,
                ",".join(view.tasks),
            )
            for view in views
        ],
        right=("PID", "SLOTS", "INBOX", "SINCE"),
        empty="there are no agents; run one: zkcoord agent run QUEUE --handlers app:queue",
    )
