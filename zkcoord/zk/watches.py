"""The local side of ZooKeeper's watches: one-shot ones, and persistent ones on whole trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zkcoord.errors import CoordinationError, EnsembleUnavailable
from zkcoord.zk.call import Call, Reply
from zkcoord.zk.requests import (
    CHILDREN_CHANGED,
    NODE_DELETED,
    WATCH_BELOW,
    WATCH_CHILDREN,
    WATCH_DATA,
    AddWatch,
    Exists,
    GetChildren,
    GetData,
    RemoveWatches,
    WatchEvent,
)

if TYPE_CHECKING:
    from zkcoord.zk.epoch import Epoch
    from zkcoord.zk.link import Link

Fire = Callable[[WatchEvent | None], object]


class WatchTable:
    """Who wants to hear of which path. Everything runs on the loop.

    A watch is entered when its reply comes: an event that comes before belongs to an earlier one.
    When the link drops all watches fire with None: what was missed is not known, look again.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._fires: dict[tuple[int, str], dict[Fire, None]] = {}
        self._coming: dict[tuple[int, str], int] = {}
        self._owed: set[tuple[int, str]] = set()  # taken back while another was coming
        self._below: dict[str, dict[Fire, None]] = {}

    def __len__(self) -> int:
        one_shot = sum(len(fires) for fires in self._fires.values())
        return one_shot + sum(len(fires) for fires in self._below.values())

    def watch(
        self,
        request: Exists | GetData | GetChildren,
        fire: Fire,
        on_reply: Reply,
        *,
        epoch: Epoch | None = None,
    ) -> None:
        """Send a read that sets a watch; `fire` is called once, unless the read fails."""
        kind = WATCH_CHILDREN if isinstance(request, GetChildren) else WATCH_DATA
        key = (kind, request.path)
        self._coming[key] = self._coming.get(key, 0) + 1

        def enter(error: CoordinationError | None) -> None:
            left = self._coming[key] - 1
            if left:
                self._coming[key] = left
            else:
                del self._coming[key]
            if error is None:
                self._fires.setdefault(key, {})[fire] = None
            elif left or key in self._fires:
                return
            elif key in self._owed and not isinstance(error, EnsembleUnavailable):
                self._link.call(RemoveWatches(request.path, kind), _ignore, verb="unwatch")
            self._owed.discard(key)

        what = f"watch {self._link.relative(request.path)}"
        session = None if epoch is None else epoch.id
        self._link.submit(Call(request, on_reply, what, session=session, watch=enter))

    def forget(self, kind: int, path: str, fire: Fire) -> None:
        """Take a watch back, and the server's with it when it was the last on the path."""
        key = (kind, path)
        fires = self._fires.get(key)
        if fires is None or fires.pop(fire, 0) == 0:
            return
        if not fires:
            del self._fires[key]
            if key in self._coming:
                self._owed.add(key)
            else:
                self._link.call(RemoveWatches(path, kind), _ignore, verb="unwatch")

    def watch_below(self, path: str, fire: Fire, on_reply: Reply) -> None:
        """Hear of everything that happens to a node and below it, until the link drops.

        From the reply on `fire` is called for each event, and with None when the link drops: watch
        again then.
        """

        def enter(error: CoordinationError | None) -> None:
            if error is None:
                self._below.setdefault(path, {})[fire] = None

        what = f"watch {self._link.relative(path)} and below"
        self._link.submit(Call(AddWatch(path), on_reply, what, watch=enter))

    def forget_below(self, path: str, fire: Fire) -> None:
        """Take such a watch back, and the server's with it when it was the last on the path."""
        fires = self._below.get(path)
        if fires is None or fires.pop(fire, 0) == 0 or fires:
            return
        del self._below[path]
        self._link.call(RemoveWatches(path, WATCH_BELOW), _ignore, verb="unwatch")

    def fire(self, event: WatchEvent) -> None:
        """An event came."""
        if self._below:
            for path, fires in tuple(self._below.items()):
                if event.path == path or event.path.startswith("/" if path == "/" else path + "/"):
                    for fire in tuple(fires):
                        fire(event)
        if event.kind != CHILDREN_CHANGED:
            self._fire((WATCH_DATA, event.path), event)
        if event.kind in {CHILDREN_CHANGED, NODE_DELETED}:
            self._fire((WATCH_CHILDREN, event.path), event)

    def reset(self) -> None:
        """The link dropped."""
        fires, self._fires = self._fires, {}
        below, self._below = self._below, {}
        for group in (*fires.values(), *below.values()):
            for fire in group:
                fire(None)

    def _fire(self, key: tuple[int, str], event: WatchEvent) -> None:
        for fire in self._fires.pop(key, ()):
            fire(event)


def _ignore(_result: Any, _error: CoordinationError | None) -> None:
    """Nothing to do: a watch that was not there is as good as removed."""
