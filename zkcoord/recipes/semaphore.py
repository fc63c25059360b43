"""The fair semaphore: so many at a time, with weights."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

from zkcoord.core import ordering, permits
from zkcoord.core.ordering import Contender
from zkcoord.core.permits import PERMITS_MAX, Limit
from zkcoord.errors import ConfigError, NodeForeign, NodeMissing
from zkcoord.recipes.contenders import Identity, check_limit, describe, read_identity
from zkcoord.recipes.folder_view import values, view
from zkcoord.recipes.hold import Hold
from zkcoord.recipes.lasting import KEPT
from zkcoord.recipes.permit import Asked, PermitLease
from zkcoord.recipes.permit_acquisition import PermitAcquisition
from zkcoord.recipes.resizing import Resized, resizing
from zkcoord.recipes.steps import Course, Steps, read
from zkcoord.zk.amounts import is_whole
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.condition import shown
from zkcoord.zk.names import check_label, check_name, check_path, join
from zkcoord.zk.promise import Promise, ask_and_wait
from zkcoord.zk.requests import Delete, Stat
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.verbs import check_timeout

_TIMEOUT_S = 10.0

T = TypeVar("T")


class PermitStanding(NamedTuple):
    """One contender of a semaphore.

    Attributes:
        position: 0 is the first in the queue.
        node: its name in the folder.
        weight: how many permits it holds or asks for.
        holds: whether it holds them.
        token: its czxid, the fencing token it has or will have.
        session: whose it is.
        waited: seconds since its node was created, by the reader's wall clock.
        identity: what it says of itself, None when unreadable.
    """

    position: int
    node: str
    weight: int
    holds: bool
    token: int
    session: int
    waited: float
    identity: Identity | None


class SemaphoreStanding(NamedTuple):
    """A semaphore as it was seen.

    Attributes:
        permits: the limit; 0 when nobody uses the semaphore.
        declared: the limit that its first user named.
        held: the sum of weights that are held. After a forced resize it may be above `permits`
            until enough is released; whoever waits within the old limit counts as holding then.
        waiting: how many requests wait.
        contenders: holders, then waiters, in order.
    """

    permits: int
    declared: int
    held: int
    waiting: int
    contenders: tuple[PermitStanding, ...]


class Semaphore:
    """So many permits, shared by all processes, granted in the order of request.

    ::

        with Semaphore(session, "gpu-jobs", permits=4).hold(weight=2, timeout=60) as lease:
            work(fence=lease.token)

    The limit is kept in ZooKeeper: the first to use a semaphore stores it, and whoever names
    another one is refused, so that two versions of a program cannot work with two limits. A program
    that says ``permits=None`` takes what is stored.

    *Fairness* is strict: a heavy request at the head of the queue is not overtaken by lighter ones
    behind it, so it gets in, and the permits it waits for stay unused until it does.

    *Cost.* An uncontended acquire is one round trip, a release none that is waited for. The first
    waiter watches the holders, at most as many nodes as there are permits; all others watch one
    node. Failed, cancelled and timed-out requests leave nothing behind.

    When the session is lost, held leases are lost and waiting requests fail with SessionLost.

    Args:
        session: it lives and dies with this.
        name: the same for all who share the permits; one part of a path.
        permits: how many, 1 to 1000000; None takes what is stored.
        root: folder of semaphores below the session's chroot.
        label: what this process calls itself to others; the session's name when empty.

    Raises:
        NameRefused: the name cannot be part of a path, or a label is longer than 1000 bytes.
        ConfigError: permits out of range.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        permits: int | None = None,
        *,
        root: str = "/semaphores",
        label: str = "",
    ) -> None:
        self.name = check_name(name, "semaphore name")
        self.session = check_session(session)
        self._permits = None if permits is None else _count(permits, "permits")
        self._label = check_label(label) or session.name
        self._folder = session.link.absolute(join(check_path(root), name))
        self._what = f"semaphore {name}"

    def __repr__(self) -> str:
        permits = "as stored" if self._permits is None else str(self._permits)
        return shown(self, self.name, self.session.link, f"permits {permits}")

    def acquire(self, weight: int = 1, timeout: float | None = None) -> PermitLease:
        """Wait for permits.

        Args:
            weight: how many, all at once.
            timeout: seconds, over everything. None waits until they are granted or the session is
                lost. 0 tries: it writes nothing unless it can win, waits for no holder, and at
                most a second for the network.

        Returns:
            The lease, which must be released. Its `weight` says what it holds, its `token` rises
            in the order of the grants.

        Raises:
            AcquireTimeout: not granted in time; names the first holder where it is known.
            LimitMismatch: another limit is stored than this program names, or none is and it
                names none.
            LimitExceeded: the weight is above the limit, from the start or after a resize.
            NodeForeign: the folder holds something else than a limit, or a recipe of another kind
                uses it.
            SessionLost: the session was lost while waiting.
            SessionClosed: the session is not started, closed, or the parent process's.
            SessionFull: the session holds too many bytes of ephemeral paths.
            AccessDenied: the folder's ACL refuses.
            ConfigError: a weight below 1, a negative or infinite timeout.
            RuntimeError: called inside an event loop; use ``async with semaphore.hold()``, or
                ``await semaphore.acquire_future()``.
        """
        refuse_in_event_loop(
            "semaphore.acquire()",
            "async with semaphore.hold(), or await semaphore.acquire_future()",
        )
        return ask_and_wait(lambda: self.acquire_future(weight, timeout))

    def acquire_future(self, weight: int = 1, timeout: float | None = None) -> Promise[PermitLease]:
        """The same, to be awaited or composed. Cancelling it gives up the request."""
        if timeout is not None:
            check_timeout(timeout)
        asked = Asked(
            self._folder, self._what, describe(self._label), _count(weight, "weight"), self._permits
        )
        return PermitAcquisition(self.session.link, asked, timeout).begin()

    def hold(self, weight: int = 1, timeout: float | None = None) -> Hold[PermitLease]:
        """Acquire on entering ``with`` or ``async with``, release on leaving.

        Leaving raises LeaseLost when the lease was lost inside, unless another error is on its way.
        Inside an event loop only ``async with`` will do; ``with`` raises RuntimeError there.
        """
        return Hold(lambda: self.acquire_future(weight, timeout))

    def resize(self, permits: int, *, force: bool = False, timeout: float = _TIMEOUT_S) -> Resized:
        """Change the limit, for everybody and while it is held.

        More permits wake the head of the queue at once. Fewer are refused when more than that is
        held; once it has returned, no more than `permits` are held. With `force` holders keep what
        they have, and nothing is granted until what is held fits: the surplus drains. Requests
        that weigh more than the new limit fail with LimitExceeded, at the latest when they come to
        the head.

        A limit that was resized stays when nobody uses the semaphore, until `forget`. Programs
        that name the limit it was first declared with go on working.

        Args:
            permits: how many from now on, 1 to 1000000.
            force: see above.
            timeout: seconds for all of it. When it passes in the middle of a lowering, the lower
                limit may stand as if it had been forced.

        Raises:
            LimitExceeded: more is held, and not forced; nothing was changed.
            NodeForeign: the folder holds something else than a limit.
            EnsembleUnavailable: no answer in time. SessionClosed, AccessDenied, ConfigError.
            RuntimeError: called inside an event loop; use ``await semaphore.resize_future(...)``.
        """
        refuse_in_event_loop("semaphore.resize()", "await semaphore.resize_future(...)")
        return self.resize_future(permits, force=force, timeout=timeout).wait()

    def resize_future(
        self, permits: int, *, force: bool = False, timeout: float = _TIMEOUT_S
    ) -> Promise[Resized]:
        """The same, to be awaited."""
        course = resizing(self._folder, self._what, _count(permits, "permits"), force=force)
        return self._run(course, "resize", timeout)

    def forget(self, timeout: float = _TIMEOUT_S) -> None:
        """Do not keep a limit that was resized once nobody uses the semaphore any more.

        The server removes its folder then, after a minute or so, and the next to use it declares a
        limit afresh. Without a resize there is nothing to forget.
        """
        refuse_in_event_loop("semaphore.forget()", "await semaphore.forget_future()")
        self.forget_future(timeout).wait()

    def forget_future(self, timeout: float = _TIMEOUT_S) -> Promise[None]:
        """The same, to be awaited."""
        return self._run(_forgetting(join(self._folder, KEPT)), "forget", timeout)

    def standing(self, limit: int = 1000, timeout: float = _TIMEOUT_S) -> SemaphoreStanding:
        """Who holds how many, and who waits, in order. Two round trips.

        Those who leave meanwhile are left out.

        Args:
            limit: so many contenders are read, from the head.
            timeout: seconds for all of it.

        Raises:
            EnsembleUnavailable, SessionClosed, AccessDenied, NodeForeign.
            RuntimeError: called inside an event loop; use ``await semaphore.standing_future()``.
        """
        refuse_in_event_loop("semaphore.standing()", "await semaphore.standing_future()")
        return self.standing_future(limit, timeout).wait()

    def standing_future(
        self, limit: int = 1000, timeout: float = _TIMEOUT_S
    ) -> Promise[SemaphoreStanding]:
        """The same, to be awaited."""
        course = _standing(self._folder, self._what, check_limit(limit))
        return self._run(course, "standing", timeout)

    def _run(self, course: Course[T], verb: str, timeout: float) -> Promise[T]:
        what = f"{self._what}: {verb}"
        return Steps(self.session.link, course, what, check_timeout(timeout)).begin()

    if not TYPE_CHECKING:  # so that type checkers refuse it too

        def __enter__(self) -> NoReturn:
            raise TypeError("a semaphore is entered through hold(): with semaphore.hold() as lease")

        def __exit__(self, *_: object) -> None:  # without it Python speaks of another mistake
            pass

        async def __aenter__(self) -> NoReturn:
            raise TypeError("a semaphore is entered through hold(): async with semaphore.hold()")

        async def __aexit__(self, *_: object) -> None:
            pass


def _count(number: object, what: str) -> int:
    if not is_whole(number) or not 0 < number <= PERMITS_MAX:
        raise ConfigError(f"{what} {number!r}: must be a whole number from 1 to {PERMITS_MAX}")
    return number


def _forgetting(path: str) -> Course[None]:
    with suppress(NodeMissing):
        yield from read(Delete(path))


def _standing(folder: str, name: str, limit: int) -> Course[SemaphoreStanding]:
    seen = yield from view(folder)
    if seen is None:
        return SemaphoreStanding(0, 0, 0, 0, ())
    try:
        stored = permits.read_limit(seen.value) or Limit(0)
    except ValueError as error:
        raise NodeForeign(f"{name}: the folder's value is not a limit: {error}") from error
    queue = [one for one in ordering.in_order(seen.names) if permits.weight_of(one)]
    holding = len(permits.holders(queue, stored.reach))
    shown = queue[:limit]
    found = yield from values(join(folder, one.node) for one in shown)
    return SemaphoreStanding(
        permits=stored.permits,
        declared=stored.declared or stored.permits,
        held=sum(map(permits.weight_of, queue[:holding])),
        waiting=len(queue) - holding,
        contenders=tuple(
            _contender(index, one, index < holding, *value)
            for index, (one, value) in enumerate(zip(shown, found, strict=True))
            if value is not None
        ),
    )


def _contender(
    position: int, one: Contender, holds: bool, data: bytes, stat: Stat
) -> PermitStanding:
    return PermitStanding(
        position=position,
        node=one.node,
        weight=permits.weight_of(one),
        holds=holds,
        token=stat.czxid,
        session=stat.owner,
        waited=max(0.0, time.time() - stat.ctime / 1000),
        identity=read_identity(data),
    )
