"""The live view of the demo: on a terminal a table that moves, elsewhere a line a second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from zkcoord.core.records import Priority
from zkcoord_cli.demo.tail import View

EVENTS_SHOWN = 8


def picture(view: View, lives: Sequence[tuple[str, bool]], events: Sequence[str]) -> RenderableType:
    """What the view looks like: a pure function of what is known."""
    table = Table(title="zkcoord demo", title_justify="left", expand=False)
    for column in ("class", "waiting", "running", "ended"):
        table.add_column(column, justify="left" if column == "class" else "right")
    for priority in Priority:
        waiting, running, ended = view.classes[priority]
        table.add_row(priority.name, str(waiting), str(running), str(ended))
    processes = Text("processes  ")
    for name, alive in lives:
        processes.append(name + " ", style="green" if alive else "red strike")
    states = "  ".join(f"{state} {count}" for state, count in sorted(view.ended.items())) or "-"
    repeated = "  ".join(f"{why} {count}" for why, count in sorted(view.repeated.items())) or "-"
    return Group(
        table,
        Text(f"ended      {states}"),
        Text(f"repeated   {repeated}"),
        Text(f"terms      {len(view.terms)}"),
        processes,
        *(Text(line, style="dim") for line in events[-EVENTS_SHOWN:]),
    )


class Screen:
    """Shows the demo's progress on `console`, which writes to stderr."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._said_at = 0.0
        self._began = time.monotonic()
        self.events: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, event: str) -> None:
        """Something happened."""
        line = f"{time.monotonic() - self._began:6.1f} s  {event}"
        self.events.append(line)
        if self._live is None:
            self._console.print(line)

    def show(self, view: View, lives: Sequence[tuple[str, bool]]) -> None:
        """Draw anew; without a terminal, a line a second."""
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(picture(view, lives, self.events), refresh=True)
        elif time.monotonic() - self._said_at >= 1.0:
            self._said_at = time.monotonic()
            self.say(
                f"accepted {view.accepted}, running {view.running}, "
                f"ended {sum(view.ended.values())}"
            )
