"""`zkcoord node`: znodes as they are, below the connect string's path."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli.formats import ago, json_data, moment, text_of
from zkcoord_cli.options import inspected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name
from zkcoord_cli.watching import Watcher, for_option, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkcoord.inspector import Inspector, NodeView
    from zkcoord.zk import Stat

    Change = tuple[bytes | None, Stat | None]

TREE_TIMEOUT_S = 30.0


@click.group(name="node")
def command() -> None:
    """Look at znodes; read, write and watch one. Paths are below the connect string's path."""


@command.command()
@click.argument("path", default="/")
@click.option("--depth", type=click.IntRange(0, 64), default=3, help="Levels below PATH.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, help="Nodes in all.")
@json_option
@inspected
@pass_output
def tree(
    output: Output, inspector: Inspector, path: str, depth: int, limit: int, as_json: bool
) -> None:
    """Show a node and what lies below it, without values.

    \b
    zkcoord node tree /locks
    zkcoord node tree / --depth 8 --json
    """
    nodes, cut = inspector.tree(path, depth=depth, limit=limit, timeout=TREE_TIMEOUT_S)
    if as_json:
        output.json(schema_name("node", "tree"), {"items": list(map(_shown, nodes)), "cut": cut})
        return
    start = path.rstrip("/").count("/")
    output.table(
        ("NODE", "BYTES", "VERSION", "CHILDREN", "SESSION", "CHANGED"),
        [
            (
                "  " * (one.path.rstrip("/").count("/") - start)
                + (one.path if one.path == path else one.path.rpartition("/")[2])
                + (" (denied)" if one.denied else ""),
                one.size,
                one.version,
                one.children,
                one.session or None,
                ago(one.changed),
            )
            for one in nodes
        ],
        right=("BYTES", "VERSION", "CHILDREN", "CHANGED"),
    )
    denied = sum(one.denied for one in nodes)
    if denied:
        output.note(f"{denied} denied: no permission to read")
    if cut:
        output.note(f"more than {limit} nodes: raise --limit, or look at a part")


@command.command()
@click.argument("path")
@click.option("--raw", is_flag=True, help="The value alone, byte for byte.")
@json_option
@inspected
@pass_output
def get(output: Output, inspector: Inspector, path: str, raw: bool, as_json: bool) -> None:
    """Show a node's value, version, owner and times.

    \b
    zkcoord node get /queues/mail/config
    zkcoord node get /queues/mail/pressure --raw | jq .
    """
    view = inspector.node(path)
    if raw:
        output.raw(view.data or b"")
    elif as_json:
        output.json(schema_name("node", "get"), _shown(view))
    else:
        output.fields(
            [
                ("path", view.path),
                ("value", text_of(view.data)),
                ("bytes", view.size),
                ("version", view.version),
                ("children", view.children),
                ("session", view.session or "none, it stays"),
                ("czxid", view.czxid),
                ("mzxid", view.mzxid),
                ("created", moment(view.created)),
                ("changed", moment(view.changed)),
            ]
        )


@command.command(name="set")
@click.argument("path")
@click.argument("value", required=False)
@click.option(
    "--version",
    type=click.IntRange(0),
    metavar="N",
    show_default="whatever it is",
    help="Only while the node has this version.",
)
@click.option("--create", is_flag=True, help="Create the node, and those above it, when missing.")
@json_option
@inspected
@pass_output
def set_(
    output: Output,
    inspector: Inspector,
    path: str,
    value: str | None,
    version: int | None,
    create: bool,
    as_json: bool,
) -> None:
    """Replace a node's value; without VALUE it is read from standard input.

    Nodes that zkcoord made are its own: writing to them can stop whoever relies on them.

    \b
    zkcoord node set /flags/dark-mode on --create
    zkcoord node set /flags/dark-mode off --version 3
    """
    from zkcoord.errors import NodeExists, NodeMissing

    data = _read_input() if value is None else value.encode()
    nodes = inspector.servers.session.nodes
    try:
        written = nodes.set(path, data, -1 if version is None else version).version
    except NodeMissing as error:
        if not create or version is not None:
            error.hint = error.hint or ("create it: --create" if version is None else "")
            raise
        try:
            written = nodes.create(path, data, makepath=True).version
        except NodeExists:  # somebody else did just now
            written = nodes.set(path, data).version
    if as_json:
        output.json(schema_name("node", "set"), {"path": path, "version": written})
    else:
        output.note(f"{path}: version {written}, {len(data)} bytes")


def _read_input() -> bytes:
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise click.UsageError(f"standard input cannot be read: {error.strerror}") from None


@command.command()
@click.argument("path")
@for_option
@json_option
@inspected
@pass_output
def watch(
    output: Output, inspector: Inspector, path: str, seconds: float | None, as_json: bool
) -> None:
    """Print a node's value now and whenever it changes; goes on across reconnects.

    Changes that follow one another quickly may be seen as one. With --json one object a line.

    \b
    zkcoord node watch /queues/mail/pressure
    zkcoord node watch /flags/dark-mode --for 1h --json
    """
    nodes = inspector.servers.session.nodes

    def begin(tell: Callable[[Change], object]) -> Watcher:
        return nodes.watch(path, lambda data, stat: tell((data, stat)))

    for data, stat in told(begin, seconds):
        _print_change(output, path, data, stat, as_json)


def _print_change(
    output: Output, path: str, data: bytes | None, stat: Stat | None, as_json: bool
) -> None:
    from zkcoord.inspector import nodes

    view = None if stat is None else nodes.view(path, stat, data)
    if as_json:
        shown = None if view is None else _shown(view)
        output.json_line(schema_name("node", "watch"), {"at": time.time(), "node": shown})
    elif view is None:
        output.line(f"{moment(time.time())}  missing")
    else:
        output.line(f"{moment(view.changed)}  version {view.version}  {text_of(data)}")


def _shown(view: NodeView) -> dict[str, Any]:
    """For JSON: the value as text where it is text, else as base64."""
    import msgspec

    shown: dict[str, Any] = msgspec.to_builtins(view)
    del shown["data"]
    return shown if view.data is None else {**shown, **json_data(view.data)}
