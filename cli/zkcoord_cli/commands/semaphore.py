"""`zkcoord semaphore`: how many permits there are, who holds how many, who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zkcoord_cli.formats import counted, duration
from zkcoord_cli.options import inspected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name
from zkcoord_cli.watching import present, watch_option

if TYPE_CHECKING:
    from zkcoord.inspector import Inspector, SemaphoreView


@click.group(name="semaphore")
def command() -> None:
    """See who holds how many permits and who waits; change how many there are."""


@command.command(name="list")
@watch_option
@json_option
@inspected
@pass_output
def list_(output: Output, inspector: Inspector, watch: bool, as_json: bool) -> None:
    """List semaphores: permits, how many are held, how many requests wait.

    \b
    zkcoord semaphore list
    zkcoord semaphore list --watch --json
    """
    schema = schema_name("semaphore", "list")
    present(output, schema, inspector.semaphores, _list, _gist, watch=watch, as_json=as_json)


def _list(output: Output, views: list[SemaphoreView]) -> None:
    output.table(
        ("SEMAPHORE", "PERMITS", "HELD", "HOLDERS", "WAITING"),
        [
            (view.name, view.permits or None, view.held, len(view.holders), view.waiting)
            for view in views
        ],
        right=("PERMITS", "HELD", "HOLDERS", "WAITING"),
        empty="nobody uses any semaphore",
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
    """Show a semaphore: who holds how many permits, and who waits for how many, in order.

    \b
    zkcoord semaphore show gpus
    zkcoord semaphore show gpus --watch --json
    """

    def look() -> SemaphoreView:
        return inspector.semaphore(name)

    schema = schema_name("semaphore", "show")
    present(output, schema, look, _show, _gist, watch=watch, as_json=as_json)


def _gist(view: SemaphoreView) -> object:
    """What of a semaphore is a change worth telling."""
    holders = [one.token for one in view.holders]
    return view.name, view.permits, view.problem, holders, [one.token for one in view.waiters]


def _show(output: Output, view: SemaphoreView) -> None:
    if not view.permits:
        output.line(f"semaphore {view.name}: nobody uses it")
        return
    output.line(
        f"held: {view.held} of {counted(view.permits, 'permit')}; "
        f"waiting: {counted(view.waiting, 'request')}"
    )
    if view.declared != view.permits:
        output.line(f"resized: its first user named {view.declared}")
    output.table(
        ("PLACE", "PERMITS", "NAME", "HOST", "PID", "SINCE", "TOKEN"),
        [
            (
                f"waits, {one.place} ahead" if one.place else "holds",
                one.weight,
                one.name,
                one.host or None,
                one.pid or None,
                duration(one.age),
                one.token,
            )
            for one in (*view.holders, *view.waiters)
        ],
        right=("PERMITS", "PID", "SINCE", "TOKEN"),
    )


@command.command()
@click.argument("name")
@click.argument("permits", type=click.IntRange(1, 1_000_000))
@click.option(
    "--force",
    is_flag=True,
    help="Also below what is held: who holds keeps it, nobody gets more until it fits.",
)
@json_option
@inspected
@pass_output
def resize(
    output: Output, inspector: Inspector, name: str, permits: int, force: bool, as_json: bool
) -> None:
    """Change how many permits there are, for everybody and while they are held.

    It stays when nobody uses the semaphore; programs that name the number they first declared go
    on working. A name that nobody uses is a new semaphore then, which a note on stderr says.

    \b
    zkcoord semaphore resize gpus 8
    zkcoord semaphore resize gpus 2 --force --json
    """
    from zkcoord.recipes import Semaphore

    unused = not inspector.semaphore(name).permits
    done = Semaphore(inspector.servers.session, name).resize(permits, force=force)
    if as_json:
        document = {"name": name, **done._asdict(), "new": unused}
        output.json(schema_name("semaphore", "resize"), document)
    if unused:
        output.note(f"semaphore {name} is new, nobody has used that name: "
                    f"{counted(done.permits, 'permit')}; if it was a slip: "
                    f"zkcoord semaphore forget {name}")  # fmt: skip
    elif not as_json:
        output.note(f"semaphore {name}: {counted(done.permits, 'permit')}, before {done.before}; "
                    f"{done.held} are held")  # fmt: skip


@command.command()
@click.argument("name")
@json_option
@inspected
@pass_output
def forget(output: Output, inspector: Inspector, name: str, as_json: bool) -> None:
    """Do not keep a number that was resized, once nobody uses the semaphore any more.

    ZooKeeper forgets the semaphore a minute or so later, and the next to use it declares a number.

    \b
    zkcoord semaphore forget gpus
    zkcoord semaphore forget gpus --json
    """
    from zkcoord.recipes import Semaphore

    Semaphore(inspector.servers.session, name).forget()
    if as_json:
        output.json(schema_name("semaphore", "forget"), {"name": name})
    else:
        output.note(f"semaphore {name} is not kept once nobody uses it")
