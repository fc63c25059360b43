"""One member of a group."""

from __future__ import annotations

from zkcoord.errors import CoordinationError, NameRefused, NodeMissing, VersionConflict
from zkcoord.recipes.lease import Lease
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Exists, SetData, Stat
from zkcoord.zk.translate import LinkDropped
from zkcoord.zk.verbs import check_timeout, late

_TIMEOUT_S = 10.0


class Member(Lease):
    """A place in a group: a lease. `token` is the incarnation; release it to leave.

    When the session is lost, or somebody removes the node, the place is lost: `lost` is set and
    `check` raises. :meth:`~zkcoord.recipes.membership.Membership.keep` joins again by itself.
    """

    def __init__(self, link: Link, epoch: Epoch, *, path: str, name: str, token: int) -> None:
        super().__init__(link, epoch, path=path, name=name, token=token)
        self._version = 0
        self._data: bytes | None = None  # what is being sent
        self._next: bytes | None = None
        self._served: list[Promise[None]] = []
        self._waiting: list[Promise[None]] = []

    def update(self, data: bytes, timeout: float = _TIMEOUT_S) -> None:
        """Publish new data. Of updates that follow one another quickly only the last is sent.

        Raises:
            LeaseLost: no member any more; noticed here when somebody removed the node.
            EnsembleUnavailable: no answer in time; it may still be published.
            NameRefused: larger than the session's `value_bytes_max`.
        """
        refuse_in_event_loop("member.update()", "await member.update_future(...)")
        self.update_future(data, timeout).wait()

    def update_future(self, data: bytes, timeout: float = _TIMEOUT_S) -> Promise[None]:
        """The same, to be awaited."""
        self.check()
        if len(data) > self._link.config.value_bytes_max:
            raise NameRefused(f"{self.name}: {len(data)} bytes of data are too many")
        promise: Promise[None] = Promise(self._link.dispatcher)
        error = late(self._link, f"update {self.name}", check_timeout(timeout), harmless=False)
        timer = self._link.timer(timeout, promise.fail, error)
        promise.on_done(timer.cancel)
        self._link.loop.post(self._queue, data, promise)
        return promise

    def release_future(self) -> Promise[bool]:
        """Leave; done when the node's removal is confirmed or the session over."""
        release = super().release_future()
        claims = self._epoch.claims
        if claims.get(self._absolute, self) is None:  # who joins again waits for the removal
            claims[self._absolute] = release
            release.on_done(lambda: claims.pop(self._absolute, None))
        return release

    def removed(self) -> None:
        """Its node was found to be gone. On the loop."""
        super().removed()
        self._epoch.claims.pop(self._absolute, None)

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
        if self._reason:
            self._settle(self._error(self._reason))
        elif self._data is not None:
            request = SetData(self._absolute, self._data, self._version)
            self._link.call(request, self._replied, epoch=self._epoch, verb="update")

    def _replied(self, stat: Stat | None, error: CoordinationError | None) -> None:
        if stat is not None and stat.czxid == self.token:
            self._version = stat.version
            self._settle(None)
        elif stat is not None:  # somebody removed our node and another has the name
            self.removed()
            self._settle(self._error(self._reason))
        elif isinstance(error, LinkDropped):
            self._send()
        elif isinstance(error, (VersionConflict, NodeMissing)):
            self._look()
        else:
            self._settle(error)

    def _look(self) -> None:
        """Is it still our node? Its data may be our own write's, whose reply was lost."""
        self._link.call(Exists(self._absolute), self._looked, epoch=self._epoch, verb="update")

    def _looked(self, stat: Stat | None, error: CoordinationError | None) -> None:
        if isinstance(error, LinkDropped):
            self._look()
        elif error is not None:
            self._settle(error)
        elif stat is None or stat.czxid != self.token:
            self.removed()
            self._settle(self._error(self._reason))
        else:
            self._version = stat.version
            self._send()

    def _settle(self, error: CoordinationError | None) -> None:
        for promise in self._served:
            if error is None:
                promise.fulfil(None)
            else:
                promise.fail(error)
        self._send_next()
