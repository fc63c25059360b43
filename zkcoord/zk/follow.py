"""Following a znode: its data or its children, now and after every change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkcoord.errors import (
    CoordinationError,
    EnsembleUnavailable,
    NodeMissing,
    SessionClosed,
    SessionLost,
)
from zkcoord.zk.link import Link
from zkcoord.zk.requests import (
    WATCH_CHILDREN,
    WATCH_DATA,
    Exists,
    GetChildren,
    GetData,
    Stat,
    WatchEvent,
)
from zkcoord.zk.translate import LinkDropped

_PAUSE_S = 0.5

Emit = Callable[[Any, CoordinationError | None], object]


class Follower:
    """Reads a node with a watch, again whenever it fires: across reconnects and lost sessions.

    Runs on the loop. ``emit(result, None)`` after each read: ``(data, Stat)`` or a list of names,
    None while the node is not there. ``emit(None, error)`` once, when it can go on no longer.
    Changes that follow one another quickly may be seen as one; the last state is always seen.

    Args:
        path: absolute. children: follow the children, else the data.
        missing_ends: do not wait for a missing node to appear: emit None once and stop.
    """

    def __init__(
        self, link: Link, path: str, emit: Emit, *, children: bool, missing_ends: bool = False
    ) -> None:
        self._link = link
        self._path = path
        self._emit = emit
        self._children = children
        self._missing_ends = missing_ends
        self.closed = False

    def start(self) -> None:
        """Read for the first time."""
        if self.closed:
            return
        read = (GetChildren if self._children else GetData)(self._path, watch=True)
        self._link.watches.watch(read, self._fired, self._read)

    def close(self) -> None:
        """No more news; the watch is removed. On the loop."""
        self.closed = True
        if self._children:
            self._link.watches.forget(WATCH_CHILDREN, self._path, self._fired)
        self._link.watches.forget(WATCH_DATA, self._path, self._fired)

    def _fired(self, _event: WatchEvent | None) -> None:
        self.start()

    def _read(self, result: Any, error: CoordinationError | None) -> None:
        if self.closed:
            self.close()  # the watch of this very read
        elif error is None:
            self._emit(result, None)
        elif isinstance(error, NodeMissing):
            if self._missing_ends:
                self.closed = True
                self._emit(None, None)
            else:
                exists = Exists(self._path, watch=True)
                self._link.watches.watch(exists, self._fired, self._looked)
        else:
            self._trouble(error)

    def _looked(self, stat: Stat | None, error: CoordinationError | None) -> None:
        if self.closed:
            self.close()
        elif error is not None:
            self._trouble(error)
        elif stat is None:
            self._emit(None, None)
        else:
            self._link.watches.forget(WATCH_DATA, self._path, self._fired)
            self.start()

    def _trouble(self, error: CoordinationError) -> None:
        if self._link.closed or isinstance(error, SessionClosed):
            self.closed = True
            self._emit(None, error)
        elif isinstance(error, (LinkDropped, SessionLost)):
            self.start()
        elif isinstance(error, EnsembleUnavailable):
            self._link.timer(_PAUSE_S, self.start)
        else:
            self.closed = True
            self._emit(None, error)
