"""A request with one deadline: how it begins, ends, and leaves nothing behind.

The promise is the point of decision: who completes it first, grant, deadline, loss or cancellation,
wins; the others see that it is done and clean up. Everything but `begin` runs on the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Generic, TypeVar

from zkcoord.core import ordering
from zkcoord.errors import (
    AcquireTimeout,
    CoordinationError,
    SessionClosed,
    SessionLost,
)
from zkcoord.recipes.contenders import read_holder
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.metrics import Kind, Observation, tell
from zkcoord.recipes.retrying import ask_again
from zkcoord.zk.clock import now
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.loop import Timer
from zkcoord.zk.promise import Promise

TRY_S = 1.0  # a try waits for the network, not for the holder: this long at most
_LOOK_S = 0.25  # before the deadline: who holds it?

LeaseT = TypeVar("LeaseT", bound=Lease)


class Waiting(Generic[LeaseT]):
    """One request for a lease, of whatever kind.

    Args:
        name: for messages. what: what is not granted in time, for messages.
        timeout: seconds; None waits until granted, cancelled or the session is lost; 0 tries.
    """

    def __init__(self, link: Link, name: str, what: str, timeout: float | None) -> None:
        self._link = link
        self._name = name
        self._what = what
        self._trying = timeout == 0
        self._timeout = TRY_S if self._trying else timeout
        self._begun = now()
        self._epoch: Epoch | None = None
        self._heads: list[str] = []  # nodes, absolute, whose first living one is named in errors
        self._holder = ""
        self._timer: Timer | None = None
        self.promise: Promise[LeaseT] = Promise(link.dispatcher, undo=_undo)

    def begin(self) -> Promise[LeaseT]:
        """Begin. From any thread."""
        self._link.check_open()
        try:
            self.promise.on_done(self._decided)
            self._start()
        except BaseException:  # a signal's handler: nobody will ever have this promise
            self.promise.give_up()
            raise
        return self.promise

    def _start(self) -> None:
        if self._trying and not self._link.connected:
            self._expired()
            return
        self._link.with_epoch(self._opened, self._closed)
        # The clock starts once the flight is on its way: cleaning up relies on that order.
        if self._timeout is not None:
            self._arm(self._timeout)
        if self.promise.done():
            self._stop_timer()

    def wanted(self) -> bool:
        """Whether nothing is decided yet."""
        return not self.promise.done()

    def failed(self, error: CoordinationError) -> None:
        """It cannot be had."""
        self.promise.fail(error)
        self._leave()

    # --- what a kind of request does --------------------------------------------------------------

    def _enter(self, epoch: Epoch) -> None:
        """A session lives: ask."""
        raise NotImplementedError

    def _tidy(self) -> None:
        """Nothing is wanted any more: take back what was asked, also when asked again."""
        raise NotImplementedError

    def _cost(self) -> tuple[int, int]:
        """For observers: how many stood in front at first, and the requests sent for it alone."""
        return 0, 0

    # --- for its use ------------------------------------------------------------------------------

    def _done(self, lease: LeaseT) -> None:
        """It is granted."""
        if self._epoch is not None:
            self._epoch.leave(self)
        if not self.promise.fulfil(lease):
            lease.abandon()
        self._stop_timer()

    def _went_alone(self, path: str) -> bool:
        """Whether our own node is there still, as far as the end of this one tells.

        Nodes of one session go in one instant when somebody ends it from elsewhere.
        """
        epoch, contender = self._epoch, ordering.parse(path.rpartition("/")[2])
        if epoch is None or contender is None or path in epoch.leaving:
            return True
        return contender.owner != ordering.encode_session(epoch.id)

    def _refuse(self) -> None:
        """A try cannot win: say who holds it."""
        read_holder(self._link, self._heads, self._refused)

    def _trouble(self, error: CoordinationError, again: Callable[[], None]) -> None:
        """A request failed: ask again where that may help."""
        ask_again(self._link, error, again, self.failed)

    # --- inside -----------------------------------------------------------------------------------

    def _decided(self) -> None:
        """On whatever thread decided it."""
        gave_up = self.promise.cancelled()
        error = CancelledError() if gave_up else self.promise.exception()
        if self._link.observers:
            kind: Kind = "granted" if error is None else "refused"
            why = "" if error is None else type(error).__name__
            seen = Observation(kind, self._name, now() - self._begun, *self._cost(), why)
            tell(self._link, seen)
        if gave_up:
            self._link.loop.post(self._leave)

    def _opened(self, epoch: Epoch) -> None:
        if self.wanted():
            self._epoch = epoch
            epoch.join(self, self._session_over)
            self._enter(epoch)

    def _refused(self, holder: str) -> None:
        self._holder = holder
        self._expired()

    def _arm(self, timeout: float) -> None:
        """One timer for two moments: a look at the holder, and the deadline soon after."""
        deadline = now() + timeout
        if self._trying:
            self._timer = self._link.loop.call_at(deadline, self._expired)
        else:
            look = max(deadline - timeout / 4, deadline - _LOOK_S)
            self._timer = self._link.loop.call_at(look, self._look_at_holder, deadline)

    def _look_at_holder(self, deadline: float) -> None:
        """The deadline is near: learn who holds, for the error's text."""
        if self.wanted():
            self._timer = self._link.loop.call_at(deadline, self._expired)
            if self._heads:
                read_holder(self._link, self._heads, self._looked)

    def _looked(self, holder: str) -> None:
        self._holder = holder

    def _expired(self) -> None:
        if not self.wanted():
            return
        waited = now() - self._begun
        error = AcquireTimeout(
            self._late(waited), name=self._name, waited=waited, holder=self._holder
        )
        self.promise.fail(error)
        self._link.loop.post(self._leave)

    def _late(self, waited: float) -> str:
        """What to say when it was not granted in time."""
        text = f"{self._what} {not_granted(waited, trying=self._trying)}"
        if self._holder:
            text += f", held by {self._holder}"
        elif not self._link.connected:
            text += f"; no link to ZooKeeper: {self._link.why_down}"
        return text

    def _closed(self) -> None:
        self.promise.fail(SessionClosed(f"{self._name}: the session is closed"))
        self._stop_timer()

    def _session_over(self) -> None:
        if self._epoch is not None:
            kind = SessionClosed if self._link.closed else SessionLost
            self.promise.fail(kind(f"{self._name}: the session is over, {self._epoch.reason}"))
        self._stop_timer()

    def _leave(self) -> None:
        """Leave nothing behind: no timer, no watch, no node."""
        self._stop_timer()
        self._link.forget_epoch(self._opened)
        if self._epoch is not None:
            self._epoch.leave(self)
        self._tidy()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def not_granted(waited: float, *, trying: bool) -> str:
    """That it did not come in time; a try has none."""
    if trying:
        return "not to be had now"
    digits = 2 if waited < 1 else 1 if waited < 10 else 0
    return f"not granted within {waited:.{digits}f} s"


def _undo(lease: Lease) -> None:
    lease.abandon()
