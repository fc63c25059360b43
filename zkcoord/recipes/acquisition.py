"""Waiting for something exclusive: the state machine of locks and elections.

The fair lock of the ZooKeeper recipes (Hunt et al., "ZooKeeper: Wait-free coordination for
Internet-scale systems", USENIX ATC 2010, §2.4), with these changes:

- *Getting in* is one flight, and exactly once: see :mod:`zkcoord.recipes.entry`.
- *Hand-off.* A waiter watches its nearest predecessor only. When that was the only one in front at
  the last listing, its end is the grant, without another read: nobody can come in front later.
  Otherwise the queue is listed once more, because those further in front may live on (a waiter
  gave up in the middle).
  A predecessor of the same session tells its successor when it is granted, so in a line of one
  process's waiters no hand-off needs a listing.
- *A try that cannot win writes nothing*: it lists first.
- After a reconnect a waiter asks only whether its predecessor is still there.
- *Readers* of a read-write lock are in front of each other without blocking, and watch the nearest
  writer. They read its value instead of asking whether it exists: a writer that went on as a
  reader says so there, and since it held, nothing else in front blocks.

Everything but `begin` runs on the loop, so nothing is locked. The promise is the point of decision:
who completes it first, grant, deadline, loss or cancellation, wins; the others see that it is done
and clean up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from zkcoord.core import ordering
from zkcoord.core.ordering import Contender, Place
from zkcoord.errors import (
    AcquireTimeout,
    CoordinationError,
    EnsembleUnavailable,
    NodeMissing,
    SessionClosed,
    SessionLost,
)
from zkcoord.recipes.contenders import read_holder, shares
from zkcoord.recipes.entry import Entry, Line
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.lock_delay import MARK, Gate
from zkcoord.recipes.position import OnPosition, Survey, Telling
from zkcoord.zk.clock import now
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.loop import Timer
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import (
    NODE_DELETED,
    WATCH_DATA,
    Exists,
    GetChildren,
    GetData,
    WatchEvent,
)
from zkcoord.zk.translate import LinkDropped

TRY_S = 1.0  # a try waits for the network, not for the holder: this long at most
_LOOK_S = 0.25  # before the deadline: who holds it?
_PAUSE_S = 0.2

LeaseT = TypeVar("LeaseT", bound=Lease)


class Acquisition(Generic[LeaseT]):
    """One request for a lease.

    Args:
        timeout: seconds; None waits until granted, cancelled or the session is lost; 0 tries.
        make: builds the lease from epoch, path and token.
        on_position: told where the request stands, see :mod:`zkcoord.recipes.position`.
        lock_delay: how long the next one is held back after an unclean end, see
            :mod:`zkcoord.recipes.lock_delay`; 0 does without.
    """

    def __init__(
        self,
        link: Link,
        line: Line,
        timeout: float | None,
        make: Callable[[Epoch, str, int], LeaseT],
        *,
        on_position: OnPosition | None = None,
        lock_delay: float = 0.0,
    ) -> None:
        self._link = link
        self._line = line
        self._make = make
        self._trying = timeout == 0
        self._begun = now()
        self._timeout = TRY_S if self._trying else timeout
        self._epoch: Epoch | None = None
        self._entry: Entry | None = None
        self._reads = line.kind == ordering.SHARED
        self._sharing = ""
        self._ahead: list[str] = []
        self._watched = ""
        self._last_in_front = False
        self._holder = ""
        self._timers: list[Timer] = []
        self._telling = None if on_position is None else Telling(link, on_position)
        self._surveyed = ""
        self._gate: Gate | None = None
        if lock_delay:
            self._gate = Gate(link, line.folder, lock_delay, line.name, trying=self._trying)
        self.promise: Promise[LeaseT] = Promise(link.dispatcher, undo=_undo)

    def begin(self) -> Promise[LeaseT]:
        """Queue up. From any thread."""
        self._link.check_open()
        self.promise.on_done(self._decided)
        if self._trying and not self._link.connected:
            self._expired()
            return self.promise
        self._link.with_epoch(self._enter, self._closed)
        # The clock starts once the flight is on its way: cleaning up relies on that order.
        if self._timeout is not None:
            self._timers.append(self._link.timer(self._timeout, self._expired))
            if not self._trying:
                look = max(self._timeout * 3 / 4, self._timeout - _LOOK_S)
                self._timers.append(self._link.timer(look, self._look))
        if self.promise.done():
            self._stop_timers()
        return self.promise

    def _decided(self) -> None:
        """On whatever thread decided it."""
        if self._telling is not None:
            self._telling.end()
        if self.promise.cancelled():
            self._link.loop.post(self._leave)

    def _enter(self, epoch: Epoch) -> None:
        if self.promise.done():
            return
        self._epoch = epoch
        epoch.join(self, self._session_over)
        if self._trying:
            self._peek()
        else:
            self._queue_up(epoch)

    def _queue_up(self, epoch: Epoch) -> None:
        self._entry = Entry(self._link, self._line, epoch, self)
        self._entry.enter()

    # --- a try ------------------------------------------------------------------------------------

    def _peek(self) -> None:
        listing = GetChildren(self._line.folder)
        self._link.call(listing, self._peeked, epoch=self._epoch, verb="children")

    def _peeked(self, names: list[str] | None, error: CoordinationError | None) -> None:
        if self.promise.done():
            return
        if error is not None and not isinstance(error, NodeMissing):
            self._trouble(error, self._peek)
            return
        ahead = [c for c in ordering.in_order(names or ()) if self._blocks(c)]
        if ahead:
            self._ahead = [ahead[0].node]
            if self._reads and len(ahead) == 1:
                request = GetData(self._line.path(ahead[0].node))
                self._link.call(request, self._writer_read, epoch=self._epoch, verb="get")
            else:
                self._refuse()
        elif self._epoch is not None:
            if self._gate is not None and MARK in (names or ()):
                self._gate.peek(self._epoch, self._marked)
            else:
                self._queue_up(self._epoch)

    def _marked(self, free: bool) -> None:
        """Nobody is there, but the last holder ended uncleanly: whether that is long ago."""
        if not free:
            self._expired()
        elif not self.promise.done() and self._epoch is not None:
            self._queue_up(self._epoch)

    def _writer_read(self, result: Any, error: CoordinationError | None) -> None:
        """What the only writer in front says of itself."""
        if self.promise.done():
            return
        if error is not None and not isinstance(error, NodeMissing):
            self._trouble(error, self._peek)
        elif error is None and not shares(result[0]):
            self._refuse()
        elif self._epoch is not None:
            self._sharing = self._ahead[0]
            self._queue_up(self._epoch)

    def _blocks(self, contender: Contender) -> bool:
        return self._line.blocks(contender) and contender.node != self._sharing

    def _refuse(self) -> None:
        """A try cannot win: say who holds it."""
        read_holder(self._link, self._heads(), self._refused)

    def _refused(self, holder: str) -> None:
        self._holder = holder
        self._expired()

    # --- in the line: what the entry reports -----------------------------------------------------

    def wanted(self) -> bool:
        """Whether nothing is decided yet."""
        return not self.promise.done()

    def placed(self, found: Place) -> None:
        """A listing shows where we stand."""
        blocker = ordering.blocker(found, self._blocks)
        if blocker is None:
            self._grant()
            return
        contender, alone = blocker
        head = next(filter(self._blocks, found.ahead))
        self._ahead = [head.node] if alone else [head.node, contender.node]
        if self._trying:
            self._refuse()
        else:
            self._stop_following()
            self._last_in_front = alone
            self._watched = self._line.path(contender.node)
            if self._epoch is not None:
                self._epoch.successors[self._watched] = self._front_is_head
            self._follow_position(found)
            self._ask()

    def _front_is_head(self) -> None:
        """Our predecessor, of the same session, was granted: nobody else is in front."""
        self._last_in_front = True

    def _follow_position(self, found: Place) -> None:
        if self._telling is not None and self._surveyed != found.mine.node:
            self._stop_telling()
            self._surveyed = found.mine.node
            folder, order = self._line.folder, ordering.in_order
            Survey.join(self._link, folder, order, found, self._telling)

    def _stop_telling(self) -> None:
        if self._surveyed:
            Survey.leave(self._link, self._line.folder, self._surveyed)
            self._surveyed = ""

    def _stop_following(self) -> None:
        if self._epoch is not None and self._watched:
            self._epoch.successors.pop(self._watched, None)

    def failed(self, error: CoordinationError) -> None:
        """We cannot get in, or our node was removed."""
        self.promise.fail(error)
        self._leave()

    def _ask(self) -> None:
        """Is the predecessor still there? Say so when it goes."""
        kind = GetData if self._reads else Exists
        request = kind(self._watched, watch=True)
        self._link.watches.watch(request, self._fired, self._asked, epoch=self._epoch)

    def _asked(self, result: Any, error: CoordinationError | None) -> None:
        missing = isinstance(error, NodeMissing)
        if self.promise.done():
            self._unwatch()
        elif error is not None and not missing:
            self._trouble(error, self._ask)
        elif missing or result is None:
            self._unwatch()
            self._front_gone()
        elif self._reads and shares(result[0]):
            self._unwatch()
            self._grant()

    def _unwatch(self) -> None:
        self._link.watches.forget(WATCH_DATA, self._watched, self._fired)

    def _fired(self, event: WatchEvent | None) -> None:
        if self.promise.done():
            return
        if event is not None and event.kind == NODE_DELETED:
            self._front_gone()
        else:
            self._ask()

    def _front_gone(self) -> None:
        if self._last_in_front:
            self._grant()
        elif self._entry is not None:
            self._entry.look()

    def _grant(self) -> None:
        if self._entry is not None:
            self._entry.identify()

    def identified(self, token: int) -> None:
        """Our node's token is known: the lease can be made."""
        epoch, entry = self._epoch, self._entry
        assert epoch is not None
        assert entry is not None
        if epoch.over():
            return  # the end of the session tells everybody
        if self.promise.done():
            self._leave()
            return
        if self._gate is not None and not self._gate.passed:
            self._gate.open(epoch, entry.mine, token, self._gated)
            return
        entry.granted()
        epoch.leave(self)
        self._stop_following()
        self._stop_telling()
        follower = epoch.successors.get(entry.mine)
        if follower is not None and not self._reads:  # other readers may stand in front
            follower()
        lease = self._make(epoch, entry.mine, token)
        if not self.promise.fulfil(lease):
            lease.abandon()
        self._stop_timers()

    def _gated(self, error: CoordinationError | None) -> None:
        if error is not None:
            self.failed(error)
        elif self._gate is not None and self._gate.passed:
            self._grant()
        else:
            self._expired()

    # --- not getting it --------------------------------------------------------------------------

    def _trouble(self, error: CoordinationError, again: Callable[[], None]) -> None:
        if isinstance(error, (SessionLost, SessionClosed)):
            return  # the end of the session tells everybody
        if isinstance(error, LinkDropped):
            again()
        elif isinstance(error, EnsembleUnavailable):
            self._link.timer(_PAUSE_S, again)
        else:
            self.failed(error)

    def _look(self) -> None:
        """The deadline is near: learn who holds it, for the error's text."""
        if not self.promise.done() and self._ahead:
            read_holder(self._link, self._heads(), self._looked)

    def _looked(self, holder: str) -> None:
        self._holder = holder

    def _heads(self) -> list[str]:
        return [self._line.path(node) for node in self._ahead]

    def _expired(self) -> None:
        if self.promise.done():
            return
        waited = now() - self._begun
        name = self._line.name
        text = f"{name}: not granted within {waited:.2f} s"
        if self._trying and self._holder:
            text = f"{name} is held by {self._holder}"
        elif self._holder:
            text += f", held by {self._holder}"
        elif self._gate is not None and (self._gate.held_back or self._trying):
            text += ", held back: its last holder did not release it"
        elif not self._link.connected:
            text += f"; no link to ZooKeeper: {self._link.why_down}"
        self.promise.fail(AcquireTimeout(text, name=name, waited=waited, holder=self._holder))
        self._link.loop.post(self._leave)

    def _closed(self) -> None:
        self.promise.fail(SessionClosed(f"{self._line.name}: the session is closed"))
        self._stop_timers()

    def _session_over(self) -> None:
        if self._epoch is not None:
            kind = SessionClosed if self._link.closed else SessionLost
            self.promise.fail(kind(f"{self._line.name}: the session is over, {self._epoch.reason}"))
        self._stop_telling()
        self._stop_timers()

    def _leave(self) -> None:
        """Leave nothing behind: no timer, no watch, no node."""
        self._stop_timers()
        self._stop_telling()
        self._link.forget_epoch(self._enter)
        if self._epoch is not None:
            self._epoch.leave(self)
        if self._watched:
            self._stop_following()
            self._unwatch()
        if self._entry is not None and not (self._gate and self._gate.leave(self._entry)):
            self._entry.leave()

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


def _undo(lease: Lease) -> None:
    lease.abandon()
