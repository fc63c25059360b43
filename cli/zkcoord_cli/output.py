"""The one gate for everything the command line prints.

Data goes to stdout: a table (drawn by rich on a terminal, plain aligned text otherwise) or one JSON
object that names its schema. Talk (notes, warnings, errors, progress) goes to stderr. Colour is off
when the stream is no terminal, `NO_COLOR` is set, `TERM` is `dumb`, or `--no-color` was given.
Control characters in names and bodies are shown escaped: a producer cannot write to a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Literal

import click

from zkcoord_cli.problems import PROBLEMS

if TYPE_CHECKING:
    from rich.console import Console

_GAP = "  "
FOLD_FROM = 18
"""Text in a column of a table is not folded more narrowly than this."""


def safe(value: object) -> str:
    """`value` as one line of text without control characters; None becomes ``-``."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def talk(text: str, *, color: bool | None = None) -> None:
    """A line on stderr. Where it cannot be written it is dropped: data and status still count."""
    with suppress(OSError):
        click.echo(text, err=True, color=color)


def schema_name(noun: str, verb: str, version: int = 1) -> str:
    """The name that a JSON object carries, such as ``zkcoord.queue.list/1``."""
    return f"zkcoord.{noun}.{verb}/{version}"


class Output:
    """Where a command puts what it has to say. Click passes it as the context's object.

    Args:
        color: False turns colour off; None asks the stream and the environment.
        verbose: number of `-v` given: 1 shows progress of waits, 2 the library's log.
    """

    def __init__(self, *, color: bool | None = None, verbose: int = 0) -> None:
        self._color = color
        self.verbose = verbose

    # --- data: stdout -----------------------------------------------------------------------

    def json(self, schema: str, payload: Mapping[str, Any]) -> None:
        """One JSON object on stdout; indented on a terminal, one line elsewhere."""
        document = {"schema": schema, **payload}
        indent = 2 if _is_terminal(sys.stdout) else None
        click.echo(json.dumps(document, indent=indent, ensure_ascii=False, default=_plain))

    def json_line(self, schema: str, payload: Mapping[str, Any]) -> None:
        """One JSON object of many, on a line of its own, at once."""
        click.echo(json.dumps({"schema": schema, **payload}, ensure_ascii=False, default=_plain))
        sys.stdout.flush()

    def line(self, text: str = "") -> None:
        """One line on stdout."""
        click.echo(safe(text))

    def raw(self, data: bytes) -> None:
        """Bytes as they are, for a reader that asked for them."""
        click.echo(data, nl=False)

    def fields(self, pairs: Sequence[tuple[str, object]]) -> None:
        """Names and values, one a line, aligned."""
        width = max((len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            label = self._style(name.ljust(width), sys.stdout, dim=True)
            click.echo(f"{label}{_GAP}{safe(value)}", color=self.colored(sys.stdout))

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        right: Collection[str] = (),
        empty: str = "",
    ) -> None:
        """A table; `right` names columns with numbers; `empty` is said when there are no rows."""
        if not rows:
            if empty:
                self.note(empty)
            return
        cells = [[safe(value) for value in row] for row in rows]
        if _is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb":
            self._rich_table(columns, cells, right)
        else:
            _plain_table(columns, cells, right)

    # --- talk: stderr -----------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Something worth knowing, on stderr."""
        talk(safe(text))

    def warn(self, text: str) -> None:
        """A warning, on stderr."""
        self._talk("warning: ", "yellow", text)

    def error(self, text: str, hint: str = "", kind: str = "") -> None:
        """An error and what to do about it, on stderr; further lines of `text` are details.

        A command that prints JSON says it when it ends, as JSON; `kind` is the error's class.
        """
        if PROBLEMS.as_json:
            PROBLEMS.add(text, hint, kind)
            return
        first, *details = text.splitlines() or [""]
        self._talk("error: ", "red", first)
        for line in details:
            self._talk("  ", "white", line)
        if hint:
            self._talk("  try: ", "cyan", hint)

    def console(self) -> Console:
        """A rich console on stderr, for progress and live views. Imports rich on first use."""
        from rich.console import Console

        return Console(stderr=True, no_color=not self.colored(sys.stderr), highlight=False)

    def colored(self, stream: IO[Any]) -> bool:
        """Whether colour may be used on `stream`."""
        if self._color is not None:
            return self._color
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            return False
        return _is_terminal(stream)

    # --- within -----------------------------------------------------------------------------

    def _talk(self, label: str, color: str, text: str) -> None:
        head = self._style(label, sys.stderr, fg=color, bold=True)
        talk(f"{head}{safe(text)}", color=self.colored(sys.stderr))

    def _style(self, text: str, stream: IO[Any], **style: Any) -> str:
        return click.style(text, **style) if self.colored(stream) else text

    def _rich_table(
        self, columns: Sequence[str], cells: Sequence[Sequence[str]], right: Collection[str]
    ) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        colored = self.colored(sys.stdout)
        console = Console(no_color=not colored, highlight=False)
        if _least_width(columns, cells, right) > console.width:
            self._records(columns, cells)
            return
        header = "bold" if colored else ""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style=header)
        for name in columns:
            number = name in right
            justify: Literal["right", "left"] = "right" if number else "left"
            table.add_column(name, justify=justify, no_wrap=number, overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)

    def _records(self, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
        """Rows one below the other, for a terminal in which they would not fit beside."""
        for number, row in enumerate(cells):
            if number:
                self.line()
            self.fields(list(zip(columns, row, strict=True)))


pass_output = click.make_pass_decorator(Output, ensure=True)


def _is_terminal(stream: IO[Any]) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def _least_width(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: Collection[str]
) -> int:
    """Letters that a table needs when numbers stay whole and text is folded, but not too much."""
    from rich.cells import cell_len

    width = 3 * len(columns) - 1
    for i, name in enumerate(columns):
        longest = max(cell_len(row[i]) for row in cells)
        width += max(cell_len(name), longest if name in right else min(longest, FOLD_FROM))
    return width


def _plain_table(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: Collection[str]
) -> None:
    lines = [list(columns), *(list(row) for row in cells)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        parts = [
            text.rjust(width) if name in right else text.ljust(width)
            for text, width, name in zip(line, widths, columns, strict=True)
        ]
        click.echo(_GAP.join(parts).rstrip())


def _plain(value: object) -> object:
    """JSON form of what the standard encoder does not know."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, (set, frozenset, tuple)):
        return sorted(value) if isinstance(value, (set, frozenset)) else list(value)
    return str(value)
