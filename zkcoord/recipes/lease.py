"""What every grant is: a lease that can be lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from zkcoord.core import ordering
from zkcoord.errors import LeaseLost, SessionClosed
from zkcoord.recipes.metrics import Observation, tell
from zkcoord.recipes.vigil import Vigil
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.callbacks import check_function
from zkcoord.zk.clock import now
from zkcoord.zk.epoch import Epoch, LostSignal
from zkcoord.zk.link import Link
from zkcoord.zk.promise import Promise
from zkcoord.zk.transaction import Transaction, check_transaction
from zkcoord.zk.verbs import check_timeout

_HINT = "stop the protected work; another may hold it already"

LeaseT = TypeVar("LeaseT", bound="Lease")

GiveBack = Callable[[str, Epoch, Callable[[bool], object]], None]
"""Gives a node up, from any thread: path, session, and what to call on the loop in the end."""


class Lease:
    """A grant, believed until `valid_until` and no longer. Given by ``lock.acquire``.

    `valid_until` moves on while the server answers: it is the send time of the last acknowledged
    request plus the negotiated session timeout minus a margin, so the server cannot have given the
    grant to another before. When it passes, `lost` is set, during a partition and not after it.

    When somebody removes the node by hand, `lost` is set as well: at once where it had been held
    for a third of the session's timeout, otherwise when that time has passed.

    No clock covers a process that is paused between `check` and its next write. For that pass
    `token` along with the write and let the receiver refuse smaller ones.

    Use it in ``with`` or ``async with`` to release it at the end; leaving raises LeaseLost when it
    was lost inside, unless another error is on its way.

    Attributes:
        name: what is held.
        token: fencing token: the node's czxid. It rises with every grant, for ever.
        path: the node, below the session's chroot.
        since: when it was granted, on CLOCK_BOOTTIME.
        lost: set when the lease is lost (not when it is released).
    """

    counted = False  # internal: whether each release counts

    def __init__(
        self,
        link: Link,
        epoch: Epoch,
        *,
        path: str,
        name: str,
        token: int,
        give_back: GiveBack | None = None,
    ) -> None:
        self.name = name
        self.token = token
        self.path = link.relative(path)
        self.since = now()
        self.lost = LostSignal(link.dispatcher, epoch.over)
        self._absolute = path
        self._link = link
        self._epoch = epoch
        self._give_back = give_back or link.discard
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._reason = ""
        self._release: Promise[bool] | None = None
        epoch.join(self, self._session_over)
        self._watch_over()

    def __repr__(self) -> str:
        if self._reason:
            state = "released" if self._reason == "released" else f"lost: {self._reason}"
        else:
            state = "lost: session" if self._over() else f"valid for {self.valid_for():.1f} s"
        return f"<{type(self).__name__} {self.name!r}, token {self.token}, {state}>"

    # --- is it still ours? -----------------------------------------------------------------------

    @property
    def valid_until(self) -> float:
        """Until when it can be believed, on CLOCK_BOOTTIME; 0 once it is over."""
        return 0.0 if self._reason else self._epoch.valid_until

    def valid_for(self) -> float:
        """Seconds it can be believed from now on if no server answers; 0 once it is over."""
        if self._reason or self._over():
            return 0.0
        return max(0.0, self._epoch.valid_until - now())

    @property
    def held(self) -> bool:
        """Whether it is ours: neither released nor lost."""
        return not self._reason and not self._over()

    @property
    def in_use(self) -> bool:
        """Internal: whether its node is still held by somebody."""
        return self.held

    def check(self) -> None:
        """Return quietly while it is ours.

        Raises:
            LeaseLost: with reason ``session``, ``removed`` or ``released``.
            SessionClosed: in a forked child.
        """
        if os.getpid() != self._pid:
            raise SessionClosed(f"{self.name}: this lease belongs to the parent process")
        if self._reason:
            raise self._error(self._reason)
        if self._over():
            raise self._error("session")

    def on_lost(self, fn: Callable[[], object]) -> None:
        """Call `fn()` on the session's dispatcher thread when it is lost; soon, when it is."""
        self.lost.add_callback(check_function(fn, "fn"))

    def guard(self, transaction: Transaction) -> Transaction:
        """Let the transaction succeed only while this lease's node is there.

        True fencing for what is kept in ZooKeeper: the check and the writes are one.

        Raises:
            LeaseLost: it was released. (One that was lost makes the transaction fail, with
                NodeMissing.)
        """
        self._refuse_released()
        return check_transaction(transaction).check(self.path)

    def _refuse_released(self) -> None:
        if self._reason == "released":
            raise self._error("released")

    # --- letting go ------------------------------------------------------------------------------

    def release(self, timeout: float = 0.0) -> bool:
        """Give it back. From now on `check` raises; a second call has no further effect.

        The lease of a reentrant lock counts instead: each call undoes one acquire and returns
        False, until the last gives the lock back. Only then has a further call no effect.

        The node's removal is sent at once and repeated in the background until it is confirmed or
        the session is over; what this session asks for next is ordered after it.

        Args:
            timeout: seconds to wait for the confirmation.

        Returns:
            Whether the removal is confirmed.

        Raises:
            LeaseLost: it was lost before, so what it protected may not have been protected.
            SessionClosed: in a forked child.
            RuntimeError: asked to wait inside an event loop; use ``await lease.release_future()``.
        """
        if timeout != 0 and (timeout := check_timeout(timeout)) > 0:
            refuse_in_event_loop("lease.release(timeout)", "await lease.release_future()")
        promise = self.release_future()
        if timeout > 0:
            try:
                return promise.result(timeout)
            except TimeoutError:
                return False
        return promise.done() and promise.result()

    def release_future(self) -> Promise[bool]:
        """Give it back; done when the removal is confirmed (True) or the session over (False)."""
        if os.getpid() != self._pid:
            raise SessionClosed(f"{self.name}: this lease belongs to the parent process")
        release: Promise[bool] | None = None
        try:
            with self._lock:
                if self._release is not None:
                    return self._release
                if self._reason or self._over():
                    raise self._error(self._reason or "session")  # noqa: TRY301
                release = Promise(self._link.dispatcher)
                self._release, self._reason = release, "released"
            self.lost.stop_clock()
            if self._link.observers:
                tell(self._link, Observation("released", self.name, now() - self.since))
            self._give_back(self._absolute, self._epoch, release.fulfil)  # somebody waits for it
        except BaseException:
            if release is not None and self._release is release:
                self._give_back_surely(release)
            raise
        self.looks_after_itself()
        self._epoch.leave(self)
        return release

    def _give_back_surely(self, release: Promise[bool]) -> None:
        """A signal's handler raised: whether the removal is sent is not known.

        A place in a queue can be removed twice, its name never comes again.
        """
        if self._give_back == self._link.discard and ordering.parse(self.path.split("/")[-1]):
            discard, post = self._link.discard, self._link.loop.post
            post(discard, self._absolute, self._epoch, release.fulfil)
            post(self.looks_after_itself)
            post(self._epoch.leave, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave(quiet=kind is not None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave(quiet=kind is not None)

    def leave(self, *, quiet: bool) -> None:
        """Internal: release without waiting; with `quiet` a lost lease is no error."""
        try:
            self.release()
        except LeaseLost:
            if not quiet:
                raise

    def passed_on(self, kind: type[LeaseT], name: str, give_back: GiveBack) -> LeaseT:
        """Internal: another lease on the same node, for whoever is next."""
        return kind(
            self._link,
            self._epoch,
            path=self._absolute,
            name=name,
            token=self.token,
            give_back=give_back,
        )

    def abandon(self) -> None:
        """Internal: nobody got it, or nobody wants it any more."""
        self.leave(quiet=True)

    # --- losing it --------------------------------------------------------------------------------

    def removed(self) -> None:
        """Internal: its node was found to be gone. On the loop."""
        self._lose("removed")
        self._epoch.leave(self)
        self._epoch.free(self._absolute)

    @property
    def _nodes(self) -> tuple[str, ...]:
        """Absolute paths of what must be there."""
        return (self._absolute,)

    def _watch_over(self) -> None:
        Vigil.of(self._link, self._epoch).add(self, self._nodes)

    def looks_after_itself(self) -> None:
        """Internal: whoever made it watches the node."""
        Vigil.of(self._link, self._epoch).drop(self, self._nodes)

    def _session_over(self) -> None:
        self._lose("session")

    def _lose(self, reason: str) -> None:
        with self._lock:
            if self._reason:
                return
            self._reason = reason
        self.looks_after_itself()
        tell(self._link, Observation("lost", self.name, now() - self.since))
        self.lost.set()

    def _over(self) -> bool:
        return self._reason != "released" and self._epoch.over()

    def _error(self, reason: str) -> LeaseLost:
        texts = {
            "released": "was released",
            "removed": "is lost: its node was removed",
            "session": f"is lost: the session is over, {self._epoch.reason or 'no answer came'}",
        }
        return LeaseLost(
            f"{self.name}: the lease {texts[reason]}",
            name=self.name,
            token=self.token,
            reason=reason,
        )
