"""Holding one lock several times over: who holds, how deep, and what may be asked on top.

The owner of a hold is the asyncio task that asked for it, or else the thread. It is known to the
lock object, so all who are to find their own hold again must use the same object.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

from zkcoord.errors import ConfigError, NotOwner, ReentryRefused
from zkcoord.recipes.lease import GiveBack, Lease
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.loop import Worker
from zkcoord.zk.promise import Promise
from zkcoord.zk.transaction import Transaction

DEPTH_MAX = 64

_thread = threading.local()


class _ThreadMark:
    """Stands for one thread; unlike a thread's number it is never used again."""


def owner() -> object:
    """Who runs: the asyncio task, else the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is not None:
        return task
    mark = getattr(_thread, "mark", None)
    if mark is None:
        mark = _thread.mark = _ThreadMark()
    return mark


class ReentrantLease(Lease):
    """A lease that its owner may hold several times; the last release gives it back.

    Only the owner can release it. Releasing an inner hold returns False: the outer one goes on.
    """

    counted = True

    def __init__(
        self,
        tenure: Tenure,
        link: Link,
        epoch: Epoch,
        *,
        path: str,
        name: str,
        token: int,
        give_back: GiveBack | None = None,
    ) -> None:
        super().__init__(link, epoch, path=path, name=name, token=token, give_back=give_back)
        self.depth = 1
        self._tenure = tenure

    @property
    def in_use(self) -> bool:
        """Whether the owner holds any lease on its node."""
        return any(lease.held for lease in self._tenure.leases)

    def removed(self) -> None:
        """Their node was found to be gone. On the loop."""
        for lease in self._tenure.leases:
            super(ReentrantLease, lease).removed()

    def release_future(self) -> Promise[bool]:
        """As for every lease, once for each time it was acquired: another undoes an outer hold.

        After the last one a further call has no effect.

        Raises:
            NotOwner: called by another thread or task than the one that acquired it.
        """
        if self.depth > 0 and owner() is not self._tenure.owner:
            raise NotOwner(
                f"{self.name}: held by another thread or asyncio task",
                hint="release a reentrant lock where it was acquired",
            )
        return self._leave_once()

    def guard(self, transaction: Transaction) -> Transaction:
        """As for every lease.

        Raises:
            LeaseLost: it was released; a writer's node may live on for its reader.
        """
        if self.depth == 0:
            self.check()
        return super().guard(transaction)

    def abandon(self) -> None:
        """Whoever calls."""
        if not self._over() and not self._reason:
            self._leave_once()
        else:
            self._tenure.left(self)

    def beside(self, give_back: GiveBack) -> ReentrantLease:
        """Another lease on the same node."""
        return ReentrantLease(
            self._tenure,
            self._link,
            self._epoch,
            path=self._absolute,
            name=self.name,
            token=self.token,
            give_back=give_back,
        )

    def _leave_once(self) -> Promise[bool]:
        if self._tenure.left(self):
            return super().release_future()
        self.check()
        still: Promise[bool] = Promise(self._link.dispatcher)
        still.fulfil(False)
        return still


class Tenure:
    """What one owner has of one lock.

    Attributes:
        exclusive, shared: its leases. beside: makes the shared one while the exclusive one is held.
    """

    def __init__(self, tenures: Tenures, who: object) -> None:
        self._tenures = tenures
        self.owner = who
        self.exclusive: ReentrantLease | None = None
        self.shared: ReentrantLease | None = None
        self.beside: Callable[[], ReentrantLease] | None = None

    @property
    def leases(self) -> list[ReentrantLease]:
        """Those it has."""
        return [lease for lease in (self.exclusive, self.shared) if lease is not None]

    def again(self, *, shared: bool) -> ReentrantLease:
        """One more hold. Under the tenures' lock."""
        held = self.exclusive or self.shared
        name = self._tenures.name
        if held is None:
            raise ReentryRefused(
                f"{name}: the same thread or task waits for it already",
                hint="await the first request before making another",
            )
        lease = self.shared if shared else self.exclusive
        if lease is not None:
            lease.check()
            if lease.depth >= self._tenures.depth_max:
                raise ReentryRefused(
                    f"{name}: held {lease.depth} times by one thread or task, the bound",
                    hint="look for a recursion that never ends, or raise depth_max",
                )
            lease.depth += 1
            return lease
        if self.exclusive is None or self.beside is None:
            raise ReentryRefused(
                f"{name}: a reader cannot become the writer: two who try wait for each other",
                hint="release the read lease first, or write from the start",
            )
        self.exclusive.check()
        self.shared = self.beside()
        return self.shared

    def left(self, lease: ReentrantLease) -> bool:
        """One hold less; whether that was the last of the lease."""
        with self._tenures.lock:
            if lease.depth > 1:
                lease.depth -= 1
                return False
            lease.depth = 0
            if self.exclusive is lease:
                self.exclusive = None
            if self.shared is lease:
                self.shared = None
            self._tenures.tidy(self)
            return True


class Tenures:
    """All owners of one lock object.

    Args:
        name: for messages.
        depth_max: how often one owner may hold one lease, 1 to 1000000.

    Raises:
        ConfigError: `depth_max` is out of range.
    """

    def __init__(self, name: str, depth_max: int) -> None:
        if not isinstance(depth_max, int) or not 1 <= depth_max <= 1_000_000:
            raise ConfigError(f"depth_max {depth_max!r}: must be a whole number from 1 to 1000000")
        self.name = name
        self.depth_max = depth_max
        self.lock = threading.RLock()
        self._by_owner: dict[object, Tenure] = {}

    def ask(
        self, start: Callable[[Tenure], Promise[Lease]], dispatcher: Worker, *, shared: bool = False
    ) -> Promise[Lease]:
        """A lease for whoever calls: one more hold of what it has, or what `start` gets.

        Raises:
            ReentryRefused: it could never be granted.
            LeaseLost: the outer hold is lost and not released yet.
        """
        who = owner()
        lease: Lease | None = None
        try:
            with self.lock:
                tenure = self._by_owner.get(who)
                if tenure is None:
                    tenure = self._by_owner[who] = Tenure(self, who)
                else:
                    again: Promise[Lease] = Promise(dispatcher, undo=Lease.abandon)
                    lease = tenure.again(shared=shared)
                    again.fulfil(lease)
            if lease is not None:
                return again
        except BaseException:  # a signal's handler: nobody has the lease
            if lease is not None:
                lease.abandon()
            raise
        return self._begin(start, tenure)

    def _begin(self, start: Callable[[Tenure], Promise[Lease]], tenure: Tenure) -> Promise[Lease]:
        promise: Promise[Lease] | None = None
        try:
            promise = start(tenure)
            promise.on_done(partial(self._decided, tenure, promise))
        except BaseException:
            if promise is not None:
                promise.give_up()
            self.tidy(tenure)
            raise
        return promise

    def mine(self) -> Tenure | None:
        """What the caller has."""
        return self._by_owner.get(owner())

    def tidy(self, tenure: Tenure) -> None:
        """Forget a tenure that holds nothing."""
        with self.lock:
            empty = tenure.exclusive is None and tenure.shared is None
            if empty and self._by_owner.get(tenure.owner) is tenure:
                del self._by_owner[tenure.owner]

    def _decided(self, tenure: Tenure, promise: Promise[Lease]) -> None:
        if promise.cancelled() or promise.exception() is not None:
            self.tidy(tenure)
