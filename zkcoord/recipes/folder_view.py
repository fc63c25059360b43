"""Reading a folder's value, its children and their values, as courses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from zkcoord.errors import CoordinationError, EnsembleUnavailable, NodeMissing, SessionLost
from zkcoord.recipes.steps import PAUSE_S, Course, Flight, Pause
from zkcoord.zk.requests import GetChildren, GetData, Request, Stat
from zkcoord.zk.translate import LinkDropped

_CHUNK = 500


class View(NamedTuple):
    """A folder's children, and its value as read right behind them."""

    names: list[str]
    value: bytes
    stat: Stat


def view(folder: str) -> Course[View | None]:
    """Listing and value in one flight; None where there is no folder."""
    names, found = yield from _all(GetChildren(folder), GetData(folder))
    return None if names is None or found is None else View(names, *found)


def values(paths: Iterable[str]) -> Course[list[tuple[bytes, Stat] | None]]:
    """Value and Stat of nodes, five hundred to a flight; None for those that are missing."""
    requests = [GetData(path) for path in paths]
    found: list[tuple[bytes, Stat] | None] = []
    for start in range(0, len(requests), _CHUNK):
        found += yield from _all(*requests[start : start + _CHUNK])
    return found


def _all(*requests: Request) -> Course[list[Any]]:
    """Reads in one flight, until all are answered; None for what is missing."""
    while True:
        results = yield Flight(*requests)
        errors = [
            one
            for one in results
            if isinstance(one, CoordinationError) and not isinstance(one, NodeMissing)
        ]
        if not errors:
            return [None if isinstance(one, NodeMissing) else one for one in results]
        if isinstance(errors[0], (LinkDropped, SessionLost)):
            continue
        if not isinstance(errors[0], EnsembleUnavailable):
            raise errors[0]
        yield Pause(PAUSE_S)
