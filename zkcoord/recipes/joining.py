"""Claiming a name: the state machine of memberships."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from zkcoord.core.ordering import encode_request, encode_session
from zkcoord.errors import (
    CoordinationError,
    EnsembleUnavailable,
    NodeExists,
    NodeMissing,
    SessionClosed,
    SessionLost,
)
from zkcoord.recipes.lease import Lease
from zkcoord.zk.call import Call
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.names import parent
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import EPHEMERAL, Create, Exists, Stat
from zkcoord.zk.translate import LinkDropped, definite
from zkcoord.zk.verbs import late

_PAUSE_S = 0.2

LeaseT = TypeVar("LeaseT", bound=Lease)


class Joining(Generic[LeaseT]):
    """Create one named ephemeral node, exactly once.

    An unknown outcome is resolved by creating again: whatever the server answers then is ordered
    behind the first one, so a look tells whether the node is there, and its owner whose it is.
    A session claims a name only once at a time, so its own node is this request's. Who asks again
    after giving up waits until it is known that nothing is left of the first request.

    Args:
        path: absolute. unique: add session and request to the name, so that it is never taken.
        timeout: seconds; None goes on until joined, refused or the session is lost.
        make: builds the lease from epoch, path and token.
    """

    def __init__(
        self,
        link: Link,
        path: str,
        data: bytes,
        timeout: float | None,
        make: Callable[[Epoch, str, int], LeaseT],
        *,
        unique: bool = False,
    ) -> None:
        self._link = link
        self._path = path
        self._data = data
        self._timeout = timeout
        self._make = make
        self._unique = unique
        self._epoch: Epoch | None = None
        self._room = 0
        self._uncertain = False
        self._refused: CoordinationError | None = None
        self._call: Call | None = None
        self._gone: Promise[bool] | None = None  # once it is given up: nothing is left of it
        self.promise: Promise[LeaseT] = Promise(link.dispatcher, undo=_undo)
        self._timer = None if timeout is None else link.timer(timeout, self._expired)

    def begin(self) -> Promise[LeaseT]:
        """Join. From any thread."""
        self._link.check_open()
        try:
            self.promise.on_done(self._decided)
            self._link.loop.post(self._begin)
        except BaseException:  # a signal's handler: nobody will ever have this promise
            self.promise.give_up()
            raise
        return self.promise

    def _begin(self) -> None:
        self._link.with_epoch(self._enter, self._closed)

    def _closed(self) -> None:
        self._fail(SessionClosed(f"join {self._name}: the session is closed"))

    @property
    def _name(self) -> str:
        return self._link.relative(self._path)

    def _enter(self, epoch: Epoch) -> None:
        if self.promise.done():
            return
        if self._unique:
            self._path = (
                f"{self._path}.{encode_session(epoch.id)}.{encode_request(epoch.request())}"
            )
        if self._path in epoch.claims:
            leaving = epoch.claims[self._path]
            if leaving is None:
                self._fail(NodeExists(f"join {self._name}: this session has joined already"))
            else:
                leaving.on_done(lambda: self._link.loop.post(self._begin))
            return
        room = len(self._path.encode())
        try:
            epoch.reserve(self._path, room)
        except CoordinationError as error:
            self._fail(error)
            return
        epoch.claims[self._path] = None
        self._room = room
        self._epoch = epoch
        self._send()

    def _send(self) -> None:
        request = Create(self._path, self._data, EPHEMERAL)
        self._call = self._link.call(request, self._replied, epoch=self._epoch, verb="join")

    def _replied(self, result: Any, error: CoordinationError | None) -> None:
        self._call = None
        if error is None:
            self._joined(result[1].czxid)
        elif isinstance(error, LinkDropped):
            self._uncertain = self._uncertain or error.sent
            self._again()
        elif self._uncertain and definite(error):
            self._refused = error
            self._look()
        elif isinstance(error, NodeMissing):
            self._link.ensure(parent(self._path), self._ensured)
        elif isinstance(error, EnsembleUnavailable):
            self._link.timer(_PAUSE_S, self._again)
        else:
            self._fail(error)

    def _look(self) -> None:
        self._link.call(Exists(self._path), self._looked, epoch=self._epoch, verb="join")

    def _again(self) -> None:
        if self.promise.done() and not self._uncertain:
            self._give_back()
        else:
            self._send()

    def _ensured(self, error: CoordinationError | None) -> None:
        if error is None or isinstance(error, LinkDropped):
            self._again()
        else:
            self._fail(error)

    def _looked(self, stat: Stat | None, error: CoordinationError | None) -> None:
        assert self._epoch is not None
        if isinstance(error, LinkDropped):
            self._look()
        elif isinstance(error, EnsembleUnavailable):
            self._link.timer(_PAUSE_S, self._look)
        elif error is not None:
            self._fail(error)
        elif stat is None:
            self._not_there()
        elif stat.owner == self._epoch.id:
            self._joined(stat.czxid)
        else:
            self._fail(NodeExists(f"join {self._name}: the name is taken"))

    def _not_there(self) -> None:
        """It was not created, and what came in the way is over or is not."""
        refused = self._refused
        assert refused is not None
        self._uncertain = False
        if self.promise.done():
            self._give_back()
        elif isinstance(refused, NodeMissing):
            self._link.ensure(parent(self._path), self._ensured)
        elif isinstance(refused, NodeExists):
            self._again()
        else:
            self._fail(refused)

    def _joined(self, token: int) -> None:
        epoch = self._epoch
        assert epoch is not None
        if self._timer is not None:
            self._timer.cancel()
        epoch.hold(self._path, self._room)
        self._room = 0
        if epoch.over() or self._link.closed:
            kind = SessionClosed if self._link.closed else SessionLost
            self.promise.fail(kind(f"join {self._name}: the session is over"))
            self._let_go()
            return
        if self._gone is not None:
            epoch.claims[self._path] = None  # the lease takes it over
        lease = self._make(epoch, self._path, token)
        if not self.promise.fulfil(lease):
            lease.leave(quiet=True)
        self._let_go()

    def _fail(self, error: CoordinationError) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.promise.fail(error)
        self._give_back()

    def _give_back(self) -> None:
        """Nothing was created."""
        if self._epoch is not None and self._room:
            self._epoch.unreserve(self._room)
            self._epoch.claims.pop(self._path, None)
            self._room = 0
            self._let_go()

    def _let_go(self) -> None:
        """Who asked again for the name may go on."""
        if self._gone is not None:
            self._gone.fulfil(True)

    def _decided(self) -> None:
        """On whatever thread decided it."""
        if self.promise.cancelled():
            self._link.loop.post(self._given_up)

    def _given_up(self) -> None:
        """Nobody waits for it any more, and what becomes of it is not known yet."""
        if self._timer is not None:
            self._timer.cancel()
        self._link.forget_epoch(self._enter)
        if self._call is not None:
            self._call.abandoned = True
        if self._epoch is not None and self._room and self._gone is None:
            self._gone = Promise(self._link.dispatcher)
            self._epoch.claims[self._path] = self._gone

    def _expired(self) -> None:
        assert self._timeout is not None
        harmless = self._call is None or not self._call.sent
        error = late(self._link, f"join {self._name}", self._timeout, harmless)
        error.hint = "" if harmless else "if it was joined after all, it is given back"
        if self.promise.fail(error):
            self._given_up()


def _undo(lease: Lease) -> None:
    lease.leave(quiet=True)
