"""What caches hold, and what they tell of changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from zkcoord.zk.loop import Worker
from zkcoord.zk.requests import Stat


class Cached(NamedTuple):
    """A node as a cache holds it.

    Attributes:
        data: its value.
        stat: with its versions; `czxid` tells one life of a path from the next.
    """

    data: bytes
    stat: Stat


class NodeAdded(NamedTuple):
    """A node is there that was not, or a new one in place of one that was removed."""

    path: str
    node: Cached


class NodeChanged(NamedTuple):
    """A node has a new value. Of values that follow one another quickly only the last is told."""

    path: str
    node: Cached
    before: Cached


class NodeRemoved(NamedTuple):
    """A node is gone; `before` is what was known of it."""

    path: str
    before: Cached


NodeDiff = NodeAdded | NodeChanged | NodeRemoved


def difference(path: str, before: Cached | None, after: Cached | None) -> list[NodeDiff]:
    """What leads from one state of a path to another."""
    if before is None:
        return [] if after is None else [NodeAdded(path, after)]
    if after is None:
        return [NodeRemoved(path, before)]
    if before.stat.czxid != after.stat.czxid:
        return [NodeRemoved(path, before), NodeAdded(path, after)]
    if before.stat.mzxid != after.stat.mzxid:
        return [NodeChanged(path, after, before)]
    return []


def in_sequence(changes: dict[str, tuple[Cached | None, Cached | None]]) -> list[NodeDiff]:
    """The diffs of many paths: removals first, from below; then the others, from above."""
    diffs = [one for path in sorted(changes) for one in difference(path, *changes[path])]
    removed = [one for one in diffs if isinstance(one, NodeRemoved)]
    return [*reversed(removed), *(one for one in diffs if not isinstance(one, NodeRemoved))]


class Telling:
    """Tells a user's callback of changes, on the dispatcher.

    What is not told yet is kept once for each path, as what it was and what it is, so a callback
    that is slow is told less and no queue grows.
    """

    def __init__(self, dispatcher: Worker, callback: Callable[[NodeDiff], object] | None) -> None:
        self._dispatcher = dispatcher
        self._callback = callback
        self._lock = threading.Lock()
        self._changes: dict[str, tuple[Cached | None, Cached | None]] = {}
        self._closed = False

    def note(self, path: str, before: Cached | None, after: Cached | None) -> None:
        """A path has another state now."""
        if self._callback is None:
            return
        with self._lock:
            idle = not self._changes
            known = self._changes.get(path)
            self._changes[path] = (before if known is None else known[0], after)
        if idle:
            self._dispatcher.post(self._tell)

    def close(self) -> None:
        """Nothing more is told."""
        self._closed = True

    def _tell(self) -> None:
        with self._lock:
            changes, self._changes = self._changes, {}
        for diff in in_sequence(changes):
            if self._closed or self._callback is None:
                return
            self._callback(diff)
