"""`zkcoord pool`: named slots, who has which, which are given out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli.formats import counted, duration
from zkcoord_cli.options import inspected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name
from zkcoord_cli.watching import present, watch_option

if TYPE_CHECKING:
    from zkcoord.inspector import Inspector, PoolView, SlotView


@click.group(name="pool")
def command() -> None:
    """See who has which slot of a pool; add slots, drain them."""


@command.command(name="list")
@watch_option
@json_option
@inspected
@pass_output
def list_(output: Output, inspector: Inspector, watch: bool, as_json: bool) -> None:
    """List pools: slots, how many are held and drained, how many requests wait.

    \b
    zkcoord pool list
    zkcoord pool list --watch --json
    """
    schema = schema_name("pool", "list")
    present(output, schema, inspector.pools, _list, _gist, watch=watch, as_json=as_json)


def _list(output: Output, views: list[PoolView]) -> None:
    output.table(
        ("POOL", "SLOTS", "HELD", "DRAINED", "WAITING"),
        [
            (
                view.name,
                len(view.slots),
                sum(slot.holder is not None for slot in view.slots),
                sum(slot.drained for slot in view.slots),
                view.waiting,
            )
            for view in views
        ],
        right=("SLOTS", "HELD", "DRAINED", "WAITING"),
        empty="nobody uses any pool",
    )
    for view in views:
        if view.problem:
            output.warn(view.problem)


@command.command()
@click.argument("name")
@watch_option
@json_option
@inspected
@pass_output
def show(output: Output, inspector: Inspector, name: str, watch: bool, as_json: bool) -> None:
    """Show the slots of a pool, who has each, and how many requests wait.

    \b
    zkcoord pool show gpus
    zkcoord pool show gpus --watch --json
    """

    def look() -> PoolView:
        return inspector.pool(name)

    schema = schema_name("pool", "show")
    present(output, schema, look, _show, _gist, watch=watch, as_json=as_json)


def _gist(view: PoolView) -> object:
    """What of a pool is a change worth telling."""
    slots = [(one.slot, one.drained, one.holder and one.holder.token) for one in view.slots]
    return view.name, view.problem, view.waiting, slots


def _show(output: Output, view: PoolView) -> None:
    if not view.slots:
        output.line(f"pool {view.name}: nobody uses it")
        return
    output.line(f"waiting: {counted(view.waiting, 'request')}")
    output.table(
        ("SLOT", "STATE", "NAME", "HOST", "PID", "SINCE", "TOKEN"),
        [_row(slot) for slot in view.slots],
        right=("PID", "SINCE", "TOKEN"),
    )


def _row(one: SlotView) -> tuple[Any, ...]:
    state = "free" if one.holder is None else "held"
    if one.drained:
        state = "drained" if one.holder is None else "held, drains"
    if (who := one.holder) is None:
        return one.slot, state, None, None, None, None, None
    return (
        one.slot, state, who.name, who.host or None, who.pid or None, duration(who.age), who.token,
    )  # fmt: skip


@command.command()
@click.argument("name")
@click.argument("slots", nargs=-1, required=True)
@json_option
@inspected
@pass_output
def add(
    output: Output, inspector: Inspector, name: str, slots: tuple[str, ...], as_json: bool
) -> None:
    """Give out more slots: new ones, or drained ones again.

    \b
    zkcoord pool add gpus gpu-4 gpu-5
    zkcoord pool add gpus gpu-0 --json
    """
    from zkcoord.recipes import Pool

    Pool(inspector.servers.session, name).add(*slots)
    if as_json:
        output.json(schema_name("pool", "add"), {"name": name, "slots": list(slots)})
    else:
        output.note(f"pool {name} gives out {', '.join(slots)}")


@command.command()
@click.argument("name")
@click.argument("slot")
@json_option
@inspected
@pass_output
def drain(output: Output, inspector: Inspector, name: str, slot: str, as_json: bool) -> None:
    """Do not give out a slot any more. Who holds it keeps it.

    \b
    zkcoord pool drain gpus gpu-1
    zkcoord pool drain gpus gpu-1 --json      says whether it is free already
    """
    from zkcoord.recipes import Pool

    free = Pool(inspector.servers.session, name).drain(slot)
    if as_json:
        payload = {"name": name, "slot": slot, "free": free}
        output.json(schema_name("pool", "drain"), payload)
    else:
        state = "and is free" if free else "but is still held"
        output.note(f"pool {name}: {slot} is not given out any more, {state}")
