"""Named slots, one holder each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

from zkcoord.core import ordering
from zkcoord.core.slots import SLOTS_MAX, Slots, write_slots
from zkcoord.errors import (
    ConfigError,
    CoordinationError,
    EnsembleUnavailable,
    LimitExceeded,
    NodeExists,
    NodeMissing,
    SessionLost,
    VersionConflict,
)
from zkcoord.recipes.contenders import Identity, read_identity
from zkcoord.recipes.folder_view import values, view
from zkcoord.recipes.hold import Hold
from zkcoord.recipes.lasting import SLOTS
from zkcoord.recipes.resizing import write_kept
from zkcoord.recipes.slot import SlotLease, understand
from zkcoord.recipes.slot_acquisition import SlotAcquisition
from zkcoord.recipes.steps import PAUSE_S, Course, Folder, Pause, Steps, read
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.condition import shown, some_of
from zkcoord.zk.names import check_label, check_name, check_path, join
from zkcoord.zk.promise import Promise, ask_and_wait
from zkcoord.zk.requests import Exists
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.translate import LinkDropped
from zkcoord.zk.verbs import check_timeout

_TIMEOUT_S = 10.0

T = TypeVar("T")


class SlotStanding(NamedTuple):
    """One slot of a pool.

    Attributes:
        slot: its name.
        drained: whether it is not given out any more.
        held: whether somebody holds it.
        token: the holder's fencing token, 0 without one.
        session: whose it is, 0 without a holder.
        since: how long it has been held, in seconds by the reader's wall clock.
        identity: what the holder says of itself, None when unreadable or without one.
    """

    slot: str
    drained: bool
    held: bool
    token: int
    session: int
    since: float
    identity: Identity | None


class PoolStanding(NamedTuple):
    """A pool as it was seen.

    Attributes:
        slots: all of them, in order. waiting: how many requests wait.
    """

    slots: tuple[SlotStanding, ...]
    waiting: int


class Pool:
    """Named things of which each has one holder at a time: ``gpu-0``, ``gpu-1``, licences, ports.

    ::

        with Pool(session, "gpus", slots=["gpu-0", "gpu-1"]).hold(timeout=60) as lease:
            run_on(lease.slot, fence=lease.token)

    Slots are given out in the order of request, across all processes. At any moment a slot has at
    most one holder that believes in it, with a fencing token above all before; when its session is
    in doubt the holder stops believing before another can get the slot.

    The slots are kept in ZooKeeper: the first to use a pool stores them, and whoever names others
    is refused. A program that says ``slots=None`` takes what is stored. They can be added and
    drained while the pool is used; who names the slots it was first declared with goes on working.

    An acquire with a free slot is two round trips, a release none that is waited for. A waiter
    watches its predecessor, the first of them the slots. Failed, cancelled and timed-out requests
    leave nothing behind. When the session is lost, held slots are lost and waiting requests fail
    with SessionLost.

    Args:
        session: it lives and dies with this.
        name: the same for all who share the slots; one part of a path.
        slots: their names, up to 1000, each one part of a path; None takes what is stored.
        root: folder of pools below the session's chroot.
        label: what this process calls itself to others; the session's name when empty.

    Raises:
        NameRefused: a name cannot be part of a path, or a label is longer than 1000 bytes.
        ConfigError: no slots, the same twice, or too many.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        slots: Sequence[str] | None = None,
        *,
        root: str = "/pools",
        label: str = "",
    ) -> None:
        self.name = check_name(name, "pool name")
        self.session = check_session(session)
        self._slots = None if slots is None else _names(slots)
        self._label = check_label(label) or session.name
        self._folder = session.link.absolute(join(check_path(root), name))
        self._what = f"pool {name}"

    def __repr__(self) -> str:
        slots = "as stored" if self._slots is None else some_of(self._slots)
        return shown(self, self.name, self.session.link, f"slots {slots}")

    def acquire(self, timeout: float | None = None, *, prefer: str = "") -> SlotLease:
        """Wait for a slot.

        Args:
            timeout: seconds, over everything. None waits until one is granted or the session is
                lost. 0 tries: it writes nothing unless a slot is free and nobody waits, and takes
                at most a second for the network.
            prefer: this one if it is free when it is our turn; nothing waits for it.

        Returns:
            The lease, which must be released. Its `slot` says which one is held.

        Raises:
            AcquireTimeout: none granted in time; names a holder where one is known.
            LimitMismatch: other slots are stored than this program names, or none are and it
                names none.
            NodeForeign: the folder holds something else.
            SessionLost: the session was lost while waiting.
            SessionClosed, SessionFull, AccessDenied, ConfigError.
            RuntimeError: called inside an event loop; use ``async with pool.hold()``, or
                ``await pool.acquire_future()``.
        """
        refuse_in_event_loop(
            "pool.acquire()", "async with pool.hold(), or await pool.acquire_future()"
        )
        return ask_and_wait(lambda: self.acquire_future(timeout, prefer=prefer))

    def acquire_future(
        self, timeout: float | None = None, *, prefer: str = ""
    ) -> Promise[SlotLease]:
        """The same, to be awaited or composed. Cancelling it gives up the request."""
        if timeout is not None:
            check_timeout(timeout)
        if prefer:
            check_name(prefer, "slot name")
        return SlotAcquisition(
            self.session.link,
            self._folder,
            self._what,
            timeout,
            label=self._label,
            slots=self._slots,
            prefer=prefer,
        ).begin()

    def hold(self, timeout: float | None = None, *, prefer: str = "") -> Hold[SlotLease]:
        """Acquire on entering ``with`` or ``async with``, release on leaving.

        Leaving raises LeaseLost when the slot was lost inside, unless another error is on its way.
        """
        return Hold(lambda: self.acquire_future(timeout, prefer=prefer))

    def add(self, *slots: str, timeout: float = _TIMEOUT_S) -> None:
        """Give out these slots too: new ones, or drained ones again. Wakes who waits.

        What was changed stays when nobody uses the pool.

        Raises:
            NodeMissing: nobody has declared slots yet, and this program names none.
            LimitExceeded: more than 1000 slots.
            EnsembleUnavailable, SessionClosed, AccessDenied, NodeForeign, ConfigError, NameRefused.
        """
        refuse_in_event_loop("pool.add()", "await pool.add_future(...)")
        self.add_future(*slots, timeout=timeout).wait()

    def add_future(self, *slots: str, timeout: float = _TIMEOUT_S) -> Promise[None]:
        """The same, to be awaited."""
        names = _names(slots)

        def opened(old: Slots) -> Slots:
            new = old.opened(names)
            if len(new.slots) > SLOTS_MAX:
                raise LimitExceeded(
                    f"{self._what}: a pool has {SLOTS_MAX} slots at most",
                    name=self._what,
                    asked=len(new.slots),
                    limit=SLOTS_MAX,
                )
            return new

        return self._run(self._change(opened), "add", timeout)

    def drain(self, slot: str, timeout: float = _TIMEOUT_S) -> bool:
        """Do not give out this slot any more. Who holds it keeps it.

        Once it has returned nobody gets the slot, whatever was on its way.

        Returns:
            Whether it is free already.

        Raises:
            NodeMissing: the pool has no such slot.
            EnsembleUnavailable, SessionClosed, AccessDenied, NodeForeign, NameRefused.
        """
        refuse_in_event_loop("pool.drain()", "await pool.drain_future(...)")
        return self.drain_future(slot, timeout).wait()

    def drain_future(self, slot: str, timeout: float = _TIMEOUT_S) -> Promise[bool]:
        """The same, to be awaited."""
        check_name(slot, "slot name")

        def without(old: Slots) -> Slots:
            if slot not in old.slots:
                raise NodeMissing(f"{self._what}: there is no slot {slot}")
            return old.without(slot)

        def course() -> Course[bool]:
            yield from self._change(without)
            stat = yield from read(Exists(join(join(self._folder, SLOTS), slot)))
            return stat is None

        return self._run(course(), "drain", timeout)

    def standing(self, timeout: float = _TIMEOUT_S) -> PoolStanding:
        """Who holds which slot, and how many wait. Two or three round trips."""
        refuse_in_event_loop("pool.standing()", "await pool.standing_future()")
        return self.standing_future(timeout).wait()

    def standing_future(self, timeout: float = _TIMEOUT_S) -> Promise[PoolStanding]:
        """The same, to be awaited."""
        return self._run(_standing(self._folder, self._what), "standing", timeout)

    def _run(self, course: Course[T], verb: str, timeout: float) -> Promise[T]:
        what = f"{self._what}: {verb}"
        return Steps(self.session.link, course, what, check_timeout(timeout)).begin()

    def _change(self, change: Callable[[Slots], Slots]) -> Course[None]:
        """Compare and set the folder's value."""
        while True:
            seen = yield from view(self._folder)
            if seen is None:
                if self._slots is None:
                    raise NodeMissing(f"{self._what}: nobody has declared its slots")
                yield Folder(self._folder, container=True)
                continue
            old = understand(self._what, seen.value, None if seen.value else self._slots)
            if isinstance(old, CoordinationError):
                raise old
            new = change(old)
            if seen.value and new.slots == old.slots and new.drained == old.drained:
                return
            version, names = seen.stat.version, seen.names
            try:
                yield from write_kept(self._folder, write_slots(new), version, names)
            except (VersionConflict, NodeExists, LinkDropped, SessionLost):
                continue  # another was faster, or what became of it is not known: look
            except EnsembleUnavailable:
                yield Pause(PAUSE_S)
            else:
                return

    if not TYPE_CHECKING:  # so that type checkers refuse it too

        def __enter__(self) -> NoReturn:
            raise TypeError("a pool is entered through hold(): with pool.hold() as lease")

        def __exit__(self, *_: object) -> None:  # without it Python speaks of another mistake
            pass

        async def __aenter__(self) -> NoReturn:
            raise TypeError("a pool is entered through hold(): async with pool.hold() as lease")

        async def __aexit__(self, *_: object) -> None:
            pass


def _names(slots: Sequence[str]) -> tuple[str, ...]:
    if isinstance(slots, str):
        raise ConfigError(f"slots {slots!r}: must be several names, not one text")
    if not isinstance(slots, Iterable):
        raise TypeError(f"slots {slots!r}: must be several names, such as a list of texts")
    names = tuple(check_name(slot, "slot name") for slot in slots)
    if not 0 < len(names) <= SLOTS_MAX:
        raise ConfigError(f"slots: {len(names)} names, 1 to {SLOTS_MAX} are possible")
    if len(set(names)) != len(names):
        twice = next(name for name, times in Counter(names).items() if times > 1)
        raise ConfigError(f"slots: {twice!r} is named twice")
    return names


def _standing(folder: str, name: str) -> Course[PoolStanding]:
    seen = yield from view(folder)
    if seen is None or not seen.value:
        return PoolStanding((), 0)
    stored = understand(name, seen.value, None)
    if isinstance(stored, CoordinationError):
        raise stored
    paths = [join(join(folder, SLOTS), slot) for slot in stored.slots]
    found = yield from values(paths)
    standings = []
    for slot, value in zip(stored.slots, found, strict=True):
        drained = slot in stored.drained
        if value is None:
            standings.append(SlotStanding(slot, drained, False, 0, 0, 0.0, None))
            continue
        data, stat = value
        since = max(0.0, time.time() - stat.ctime / 1000)
        who = read_identity(data)
        standings.append(SlotStanding(slot, drained, True, stat.czxid, stat.owner, since, who))
    return PoolStanding(tuple(standings), len(ordering.in_order(seen.names)))
