"""Watching over the nodes of leases: whose node is removed by hand, loses its lease soon.

A lease costs nothing for it until it has been held for a third of the session's timeout; then its
node is asked for once, with a watch. So a holder hears of the removal at once, or a third of the
timeout after the grant when it came before that. Short holds stay as cheap as they are.

After a dropped link, and after a change of the node's value, the node is asked for again when
another third has passed: a bounded number at a time, so that a session with ten thousand leases
does not ask for all of them in the moment in which its link is back.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Protocol

from zkcoord.errors import CoordinationError, EnsembleUnavailable
from zkcoord.zk.clock import now
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.requests import NODE_DELETED, WATCH_DATA, Exists, Stat, WatchEvent
from zkcoord.zk.translate import LinkDropped

_SHARE = 1 / 3
_BATCH = 200
_TICK_S = 0.05

_making = threading.Lock()


class Watched(Protocol):
    """A lease."""

    token: int

    def removed(self) -> None:
        """Its node was found to be gone. On the loop."""


class Vigil:
    """Who is watched over in one session. `add`, `drop` from any thread, the rest on the loop."""

    def __init__(self, link: Link, epoch: Epoch) -> None:
        self._link = link
        self._epoch = epoch
        self._grace = epoch.timeout * _SHARE
        self._lock = threading.Lock()
        self._leases: dict[str, list[Watched]] = {}
        self._due: dict[str, float] = {}  # in this order
        self._asked: set[str] = set()
        self._eager: set[str] = set()
        self._armed = False

    @staticmethod
    def of(link: Link, epoch: Epoch) -> Vigil:
        """The session's."""
        if epoch.vigil is None:
            with _making:
                if epoch.vigil is None:
                    epoch.vigil = Vigil(link, epoch)
        vigil: Vigil = epoch.vigil
        return vigil

    def add(self, lease: Watched, paths: tuple[str, ...], *, eager: bool = False) -> None:
        """Watch over these nodes, absolute; with `eager` from now on and not after a while."""
        with self._lock:
            for path in paths:
                self._leases.setdefault(path, []).append(lease)
                if eager:
                    self._eager.add(path)
                    self._link.loop.post(self._begin, path)
                elif path not in self._asked:
                    self._due.setdefault(path, now() + self._grace)
            self._arm()

    def drop(self, lease: Watched, paths: tuple[str, ...]) -> None:
        """The lease is over, or looks after itself. No effect when it was dropped before."""
        with self._lock:
            for path in paths:
                leases = self._leases.get(path)
                if leases is None or lease not in leases:
                    continue
                leases.remove(lease)
                if not leases:
                    del self._leases[path]
                    self._due.pop(path, None)
                    self._eager.discard(path)

    def _arm(self, seconds: float | None = None) -> None:
        """Sweep once, later. Under the lock."""
        if self._due and not self._armed:
            self._armed = True
            self._link.timer(self._grace if seconds is None else seconds, self._sweep)

    def _sweep(self) -> None:
        if self._epoch.over() or self._link.closed:
            return
        paths: list[str] = []
        with self._lock:
            self._armed = False
            moment, wait = now(), _TICK_S
            for path, due in self._due.items():
                if due > moment or not self._link.connected:
                    wait = max(due - moment, _TICK_S) if self._link.connected else self._grace
                    break
                if len(paths) == _BATCH:
                    break
                paths.append(path)
            for path in paths:
                del self._due[path]
            self._asked.update(paths)
            self._arm(wait)
        for path in paths:
            self._ask(path)

    def _begin(self, path: str) -> None:
        with self._lock:
            new = path in self._leases and path not in self._asked
            if new:
                self._due.pop(path, None)
                self._asked.add(path)
        if new:
            self._ask(path)

    def _ask(self, path: str) -> None:
        fire = partial(self._fired, path)
        request = Exists(path, watch=True)
        reply = partial(self._told, path, fire)
        self._link.watches.watch(request, fire, reply, epoch=self._epoch)

    def _told(
        self,
        path: str,
        fire: partial[None],
        stat: Stat | None,
        error: CoordinationError | None,
    ) -> None:
        if isinstance(error, EnsembleUnavailable):
            self._again(path, soon=isinstance(error, LinkDropped))
        elif error is None and self._lose(path, stat):
            self._link.watches.forget(WATCH_DATA, path, fire)

    def _fired(self, path: str, event: WatchEvent | None) -> None:
        if event is not None and event.kind == NODE_DELETED:
            self._lose(path, None)
        else:
            self._again(path, soon=True)

    def _again(self, path: str, *, soon: bool) -> None:
        with self._lock:
            self._asked.discard(path)
            if path not in self._leases:
                return
            if not soon or path not in self._eager:
                self._due[path] = now() + self._grace
                self._arm()
                return
        self._begin(path)

    def _lose(self, path: str, stat: Stat | None) -> bool:
        """Whether the node is gone: there is none, or another one of the same name."""
        with self._lock:
            leases = list(self._leases.get(path, ()))
            gone = stat is None or any(lease.token != stat.czxid for lease in leases)
            if gone:
                self._asked.discard(path)
        if gone and not (self._epoch.over() or self._link.closed):
            for lease in leases:
                if stat is None or lease.token != stat.czxid:
                    lease.removed()
        return gone
