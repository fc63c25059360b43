"""Watching: `--watch` looks again and again; `watch` and `observe` are told of each change."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import click

from zkcoord_cli.options import SECONDS
from zkcoord_cli.output import Output
from zkcoord_cli.streams import check_reader

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

EVERY_S = 1.0
TICK_S = 0.2
WAITING_MAX = 1000


class Watcher(Protocol):
    """Someone who watches, and calls back."""

    @property
    def error(self) -> BaseException | None:
        """Why it ended by itself."""

    def close(self) -> None:
        """No more calls."""


def for_option(function: F) -> F:
    """`--for`, passed as `seconds`."""
    return click.option(
        "--for",
        "seconds",
        type=SECONDS,
        metavar="SECONDS",
        show_default="until interrupted",
        help="Stop after this.",
    )(function)


def told(watch: Callable[[Callable[[T], object]], Watcher], seconds: float | None) -> Iterator[T]:
    """What a watcher is told, as it comes, for so many seconds or until interrupted.

    The watcher is held up while nobody takes what it has told.

    Args:
        watch: begins to watch, given what to call.
        seconds: None for ever.
    """
    waiting: queue.Queue[T] = queue.Queue(WAITING_MAX)
    until = None if seconds is None else time.monotonic() + seconds
    watcher = watch(waiting.put)
    try:
        while until is None or time.monotonic() < until:
            try:
                yield waiting.get(timeout=TICK_S)
            except queue.Empty:
                check_reader()
                if watcher.error is not None:
                    raise watcher.error from None
    finally:
        watcher.close()
        while not waiting.empty():  # who was held up can go on
            waiting.get_nowait()


def watch_option(function: F) -> F:
    """`--watch`, passed as `watch`."""
    return click.option(
        "--watch",
        is_flag=True,
        help="Look again every second until interrupted; with --json one object a line, "
        "whenever it changed.",
    )(function)


def present(
    output: Output,
    schema: str,
    look: Callable[[], T],
    show: Callable[[Output, T], None],
    gist: Callable[[Any], object],
    *,
    watch: bool,
    as_json: bool,
) -> None:
    """Show what a command looks at: once, or with `watch` until interrupted; also as JSON.

    Watching on a terminal the screen is drawn anew each time. Elsewhere, and as JSON, something is
    printed only when the gist changed: ages alone are no change. An outage ends it only when it is
    there from the beginning.

    Args:
        output: where to.
        schema: name of the JSON object. A list becomes its ``items``.
        look: reads it.
        show: prints it for people.
        gist: what of it, or of each of a list, counts as a change.
        watch: look again every second.
        as_json: print the object.
    """
    if not watch:
        seen = look()
        if as_json:
            output.json(schema, _document(seen))
        else:
            show(output, seen)
        return
    last: object = object()
    screen = not as_json and sys.stdout.isatty()
    for seen in looks(output, look, every=EVERY_S):
        now = list(map(gist, seen)) if isinstance(seen, list) else gist(seen)
        if screen:
            click.clear()
            show(output, seen)
        elif now != last:
            if as_json:
                output.json_line(schema, _document(seen))
            else:
                show(output, seen)
            sys.stdout.flush()
        last = now


def looks(
    output: Output, look: Callable[[], T], *, every: float, until: float | None = None
) -> Iterator[T]:
    """Look again and again, also through outages, unless they are there from the beginning.

    Args:
        output: each outage is said there, once.
        look: may raise EnsembleUnavailable or SessionLost.
        every: seconds between looks.
        until: on the monotonic clock: an outage later than that is raised.
    """
    from zkcoord.errors import EnsembleUnavailable, SessionLost

    yield look()
    said = False
    while True:
        now = time.monotonic()
        time.sleep(every if until is None else max(0.0, min(every, until - now)))
        check_reader()
        try:
            seen = look()
        except (EnsembleUnavailable, SessionLost) as error:
            if until is not None and time.monotonic() >= until:
                raise
            if not said:
                output.warn(f"{error.args[0]}; looking again")
            said = True
        else:
            said = False
            yield seen


def _document(seen: object) -> dict[str, Any]:
    import msgspec

    found = msgspec.to_builtins(seen)
    return {"items": found} if isinstance(seen, list) else found
