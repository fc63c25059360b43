"""`--watch`: look again and again, and show what changed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from zkcoord_cli.output import Output

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

EVERY_S = 1.0


def watch_option(function: F) -> F:
    """`--watch`, passed as `watch`."""
    return click.option(
        "--watch",
        is_flag=True,
        help="Look again every second until interrupted; with --json one object a line, "
        "whenever it changed.",
    )(function)


def watching(
    output: Output,
    look: Callable[[], T],
    show: Callable[[T], None],
    as_json: Callable[[T], tuple[str, dict[str, Any]]] | None,
    gist: Callable[[T], object],
) -> None:
    """Look until interrupted.

    On a terminal the screen is drawn anew each time. Elsewhere, and as JSON, something is printed
    only when the gist changed: ages alone are no change.

    Args:
        output: where to.
        look: reads it.
        show: prints it for people.
        as_json: its schema and object; None prints for people.
        gist: what of it counts as a change.
    """
    last: object = object()
    screen = as_json is None and sys.stdout.isatty()
    while True:
        seen = look()
        now = gist(seen)
        if screen:
            click.clear()
            show(seen)
        elif now != last:
            if as_json is None:
                show(seen)
            else:
                output.json_line(*as_json(seen))
            sys.stdout.flush()
        last = now
        time.sleep(EVERY_S)
