"""What a lease's own node says, kept up to date."""

from __future__ import annotations

from collections.abc import Callable

from zkcoord.errors import CoordinationError, NodeMissing, VersionConflict
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Exists, SetData, Stat
from zkcoord.zk.translate import LinkDropped
from zkcoord.zk.verbs import check_timeout, late


class Publication:
    """Writes values to one ephemeral node of ours, one at a time; of those that wait the last wins.

    The node is known by its czxid, so nothing is ever written over a later one of the same name for
    good: whoever finds another node there, or none, has lost the lease.

    Args:
        path: absolute. token: the node's czxid.
        what: verb and name, for messages.
        over: the error when the lease is over, else None.
        removed: called when the node is found to be gone.
    """

    def __init__(
        self,
        link: Link,
        epoch: Epoch,
        path: str,
        token: int,
        what: str,
        over: Callable[[], CoordinationError | None],
        removed: Callable[[], object],
    ) -> None:
        self._link = link
        self._epoch = epoch
        self._path = path
        self._token = token
        self._what = what
        self._over = over
        self._removed = removed
        self._version = 0
        self._data: bytes | None = None  # what is being sent
        self._next: bytes | None = None
        self._served: list[Promise[None]] = []
        self._waiting: list[Promise[None]] = []

    def publish(self, data: bytes, timeout: float) -> Promise[None]:
        """Done when this value, or a later one, stands in the node. From any thread."""
        promise: Promise[None] = Promise(self._link.dispatcher)
        error = late(self._link, self._what, check_timeout(timeout), harmless=False)
        timer = self._link.timer(timeout, promise.fail, error)
        promise.on_done(timer.cancel)
        self._link.loop.post(self._queue, data, promise)
        return promise

    def last_word(self, data: bytes) -> None:
        """Write this before the node is removed, if nothing else is on its way. Does not wait."""
        if self._data is None:
            request = SetData(self._path, data, self._version)
            self._link.call(request, _ignore, epoch=self._epoch, verb="update")

    def _queue(self, data: bytes, promise: Promise[None]) -> None:
        self._next = data
        self._waiting.append(promise)
        if self._data is None:
            self._send_next()

    def _send_next(self) -> None:
        self._data, self._next = self._next, None
        self._served, self._waiting = self._waiting, []
        if self._data is not None:
            self._send()

    def _send(self) -> None:
        over = self._over()
        if over is not None:
            self._settle(over)
        elif self._data is not None:
            request = SetData(self._path, self._data, self._version)
            self._link.call(request, self._replied, epoch=self._epoch, verb="update")

    def _replied(self, stat: Stat | None, error: CoordinationError | None) -> None:
        if stat is not None and stat.czxid == self._token:
            self._version = stat.version
            self._settle(None)
        elif stat is not None:  # somebody removed our node and another has the name
            self._lost()
        elif isinstance(error, LinkDropped):
            self._send()
        elif isinstance(error, (VersionConflict, NodeMissing)):
            self._look()
        else:
            self._settle(error)

    def _look(self) -> None:
        """Is it still our node? Its data may be our own write's, whose reply was lost."""
        self._link.call(Exists(self._path), self._looked, epoch=self._epoch, verb="update")

    def _looked(self, stat: Stat | None, error: CoordinationError | None) -> None:
        if isinstance(error, LinkDropped):
            self._look()
        elif error is not None:
            self._settle(error)
        elif stat is None or stat.czxid != self._token:
            self._lost()
        else:
            self._version = stat.version
            self._send()

    def _lost(self) -> None:
        self._removed()
        self._settle(self._over())

    def _settle(self, error: CoordinationError | None) -> None:
        for promise in self._served:
            if error is None:
                promise.fulfil(None)
            else:
                promise.fail(error)
        self._send_next()


def _ignore(_stat: Stat | None, _error: CoordinationError | None) -> None:
    """The node goes anyway."""
