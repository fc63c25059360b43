"""Waiters of one process that share a node: a bounded number of hand-offs without ZooKeeper.

A *share* is one contender, with one node, one watch and one place in the queue, for several local
waiters. When it is granted they hold one after the other, in the order of asking; a hand-off among
them sends nothing. A share serves `handoffs` + 1 holders and no more; who comes when it is full
begins another, at the end of the queue. So the order of grant is the order of request within the
process, and a share can keep other processes waiting for `handoffs` holds longer than a single
request would, but not for ever. A waiter that joins a share may overtake other processes' waiters
that asked before it, those behind the share's node: that is the price, and why it is off by
default.

All holders of a share have the same token and the same node. The token tells processes apart, not
the holders within one, and a guarded write of a holder that has let go is refused here and not by
ZooKeeper.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

from zkcoord.errors import AcquireTimeout, ConfigError, SessionClosed, SessionLost
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.metrics import Kind, Observation, tell
from zkcoord.recipes.per_link import PerLink
from zkcoord.recipes.waiting import not_granted
from zkcoord.zk.amounts import is_whole
from zkcoord.zk.clock import now
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.loop import Timer
from zkcoord.zk.promise import Promise
from zkcoord.zk.transaction import Transaction

HANDOFFS_MAX = 10_000

Start = Callable[[], Promise[Lease]]
"""Begins a request for a node that waits as long as it takes."""


def check_handoffs(count: object) -> int:
    """A number of local hand-offs, given back.

    Raises:
        ConfigError: it is not a whole number from 0 to 10000.
    """
    if not is_whole(count) or not 0 <= count <= HANDOFFS_MAX:
        raise ConfigError(f"local_handoffs {count!r}: must be 0 to {HANDOFFS_MAX}")
    return count


class SharedLease(Lease):
    """A lease of one of a share's holders."""

    def guard(self, transaction: Transaction) -> Transaction:
        """As for every lease.

        Raises:
            LeaseLost: it was released; its node may live on for the next holder of the share.
        """
        self.check()
        return super().guard(transaction)


class _Member:
    """One local waiter."""

    def __init__(self, share: Share, link: Link, timeout: float | None) -> None:
        self._share = share
        self._link = link
        self._begun = now()
        self._timer: Timer | None = None
        self.promise: Promise[Lease] = Promise(link.dispatcher, undo=Lease.abandon)
        if timeout is not None:
            self._timer = link.timer(timeout, self._expired)
        self.promise.on_done(self._decided)

    def _decided(self) -> None:
        """On whatever thread decided it."""
        if self._timer is not None:
            self._timer.cancel()
        gave_up = self.promise.cancelled()
        error = CancelledError() if gave_up else self.promise.exception()
        kind: Kind = "granted" if error is None else "refused"
        why = "" if error is None else type(error).__name__
        tell(self._link, Observation(kind, self._share.name, now() - self._begun, error=why))
        if error is not None:
            self._link.loop.post(self._share.left, self)

    def _expired(self) -> None:
        self.promise.fail(late(self._share.name, now() - self._begun, trying=False))


def late(name: str, waited: float, *, trying: bool) -> AcquireTimeout:
    """The error of a local waiter that got nothing in time."""
    said = not_granted(waited, trying=trying)
    why = "hold it or wait" if trying else "share its place and the wait"
    text = f"{name}: {said}; others of this process {why}"
    return AcquireTimeout(text, name=name, waited=waited)


class Share:
    """One contender for several local waiters. Guarded by its shares' lock."""

    def __init__(self, shares: Shares, link: Link, name: str, places: int) -> None:
        self.name = name
        self._link = link
        self._lock = shares.lock
        self._places = places
        self._waiting: dict[_Member, None] = {}
        self._request: Promise[Lease] | None = None
        self._node: Lease | None = None
        self.ended = False

    def begin(self, start: Start, timeout: float | None) -> Promise[Lease]:
        """Queue up, with the first waiter. Under the lock."""
        try:
            self._request = start()
            self._request.on_done(lambda: self._link.loop.post(self._decided))
            promise = self.join(timeout)
            assert promise is not None
        except BaseException:  # a signal's handler: nobody is in it
            self.ended = True
            if self._request is not None:
                self._request.give_up()
            raise
        return promise

    def join(self, timeout: float | None) -> Promise[Lease] | None:
        """One waiter more; None when it is full or over. Under the lock."""
        if self.ended or self._places == 0:
            return None
        self._places -= 1
        member = _Member(self, self._link, timeout)
        self._waiting[member] = None
        return member.promise

    def left(self, member: _Member) -> None:
        """A waiter gave up; the last one takes the node along. On the loop."""
        with self._lock:
            self._waiting.pop(member, None)
            empty = not self._waiting and self._node is None and not self.ended
            self.ended = self.ended or empty
        if empty and self._request is not None:
            self._request.give_up()

    def _decided(self) -> None:
        """The node is ours, or cannot be. On the loop."""
        request = self._request
        assert request is not None
        error = None if request.cancelled() else request.exception()
        if request.cancelled() or error is not None:
            self._fail(error)
            return
        with self._lock:
            if self.ended:  # `left` gave the node up already
                return
            self._node = node = request.result()
        node.lost.on_set(self._lost)
        self._next()

    def _next(self) -> None:
        """It is the next one's turn. On the loop."""
        node = self._node
        assert node is not None
        while node.held:
            with self._lock:
                member = next(iter(self._waiting), None)
                if member is None:
                    self.ended = True
                    node.abandon()
                    return
                del self._waiting[member]
            if not member.promise.done():
                lease = node.passed_on(SharedLease, self.name, self._given_back)
                if not member.promise.fulfil(lease):
                    lease.abandon()
                return
        self._fail(None)

    def _given_back(self, _path: str, _epoch: Epoch, done: Callable[[bool], object]) -> None:
        """A holder lets go. From any thread."""
        node = self._node
        assert node is not None
        with self._lock:
            self.ended = not self._waiting
        if not self.ended:
            self._link.loop.post(done, True)
            self._link.loop.post(self._next)
        elif node.held:
            release = node.release_future()
            release.on_done(lambda: done(release.result()))
        else:
            self._link.loop.post(done, False)

    def _lost(self) -> None:
        self._link.loop.post(self._fail, None)

    def _fail(self, error: BaseException | None) -> None:
        """Nobody gets anything any more."""
        with self._lock:
            self.ended = True
            waiting, self._waiting = self._waiting, {}
        for member in waiting:
            kind = SessionClosed if self._link.closed else SessionLost
            member.promise.fail(error or kind(f"{self.name}: the session is over"))


class Shares:
    """The latest share of each folder of a session."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._latest: dict[str, Share] = {}

    def ask(
        self, link: Link, folder: str, name: str, handoffs: int, timeout: float | None, start: Start
    ) -> Promise[Lease] | None:
        """A place in the latest share, or in a new one.

        None for a try when there is no share: it goes its own way.
        """
        with self.lock:
            share = self._latest.get(folder)
            if share is not None and share.ended:
                del self._latest[folder]
                share = None
            if timeout == 0:
                if share is None:
                    return None
                refused: Promise[Lease] = Promise(link.dispatcher)
                refused.fail(late(name, 0.0, trying=True))
                return refused
            promise = None if share is None else share.join(timeout)
            if promise is None:
                share = Share(self, link, name, handoffs + 1)
                promise = share.begin(start, timeout)
                self._latest[folder] = share
            return promise


shares = PerLink(Shares)
