"""`zkcoord election`: who leads, who stands by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zkcoord_cli.options import inspected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name

if TYPE_CHECKING:
    from zkcoord.inspector import Inspector


@click.group(name="election")
def command() -> None:
    """Show who leads an election and who stands by."""


@command.command(name="list")
@json_option
@inspected
@pass_output
def list_(output: Output, inspector: Inspector, as_json: bool) -> None:
    """List elections with their leaders; those of queues are named queue/NAME.

    \b
    zkcoord election list
    zkcoord election list --json
    """
    import msgspec

    from zkcoord_cli.formats import duration

    views = inspector.elections()
    if as_json:
        output.json(schema_name("election", "list"), {"items": msgspec.to_builtins(views)})
        return
    rows = [
        (
            view.name,
            view.leader.name if view.leader else None,
            view.leader.token if view.leader else None,
            duration(view.leader.age) if view.leader else None,
            len(view.standbys),
        )
        for view in views
    ]
    output.table(
        ("NAME", "LEADER", "TERM", "SINCE", "STANDBYS"),
        rows,
        right=("TERM", "SINCE", "STANDBYS"),
        empty="nobody has stood in any election",
    )


@command.command()
@click.argument("name")
@json_option
@inspected
@pass_output
def show(output: Output, inspector: Inspector, name: str, as_json: bool) -> None:
    """Show the leader of an election, its term, and who stands by, in order.

    \b
    zkcoord election show queue/mail      the schedulers of queue mail
    zkcoord election show nightly --json
    """
    import msgspec

    from zkcoord_cli.formats import duration

    view = inspector.election(name)
    if as_json:
        output.json(schema_name("election", "show"), msgspec.to_builtins(view))
        return
    standing = [view.leader, *view.standbys] if view.leader else []
    output.table(
        ("ROLE", "NAME", "TERM", "SINCE", "SESSION"),
        [
            (
                "standby" if one.place else "leader",
                one.name,
                None if one.place else one.token,
                duration(one.age),
                one.session,
            )
            for one in standing
        ],
        right=("TERM", "SINCE"),
        empty=f"election {name} has no leader and nobody stands by",
    )
