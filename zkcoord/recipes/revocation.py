"""Asking a holder to let go.

Revoking is a request: it is written into the node of the holder, who hears of it when it asked
to with ``on_revoke``, and lets go when it can. Whoever waits for that node looks once more.

A holder with ``on_revoke`` watches its own node: one read after its grant, which nobody waits for.
So it also hears at once when its node is removed, see :mod:`zkcoord.recipes.breaking`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from zkcoord.core.ordering import SHARED, in_order
from zkcoord.errors import (
    CoordinationError,
    EnsembleUnavailable,
    NameRefused,
    NodeMissing,
    NotRevocable,
    SessionLost,
    VersionConflict,
)
from zkcoord.recipes.contenders import (
    Revocation,
    Standing,
    amended,
    read_identity,
    this_process,
)
from zkcoord.recipes.contenders import standing as standing_of
from zkcoord.recipes.lease import Lease, LeaseT
from zkcoord.recipes.steps import PAUSE_S, Course, Pause, Steps, read
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.names import check_name, check_path, join
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import (
    NODE_DELETED,
    GetChildren,
    GetData,
    SetData,
    WatchEvent,
)
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.translate import LinkDropped
from zkcoord.zk.verbs import check_timeout

REASON_LETTERS_MAX = 1000
_HOLDERS_MAX = 1000

OnRevoke = Callable[[Revocation], object]


# --- the holder's side ----------------------------------------------------------------------------


class OwnNode:
    """A holder's watch on its own node, until the node is gone. On the loop.

    Args:
        lease: told when the node is removed.
        on_revoke: called on the dispatcher, once for each revocation.
    """

    def __init__(
        self, link: Link, epoch: Epoch, path: str, lease: Lease, on_revoke: OnRevoke
    ) -> None:
        self._link = link
        self._epoch = epoch
        self._path = path
        self._lease = lease
        self._on_revoke = on_revoke
        self._told: Revocation | None = None

    def look(self) -> None:
        """Read it with a watch."""
        request = GetData(self._path, watch=True)
        self._link.watches.watch(request, self._fired, self._read, epoch=self._epoch)

    def _fired(self, event: WatchEvent | None) -> None:
        if event is not None and event.kind == NODE_DELETED:
            self._lease.removed()
        else:
            self.look()

    def _read(self, result: Any, error: CoordinationError | None) -> None:
        if isinstance(error, NodeMissing):
            self._lease.removed()
        elif isinstance(error, LinkDropped):
            self.look()
        elif isinstance(error, EnsembleUnavailable):
            self._link.timer(PAUSE_S, self.look)
        elif error is None:
            identity = read_identity(result[0])
            revoked = None if identity is None else identity.revoked
            if revoked is not None and revoked != self._told:
                self._told = revoked
                self._link.dispatcher.post(self._tell, revoked)

    def _tell(self, revoked: Revocation) -> None:
        if self._lease.in_use:
            self._on_revoke(revoked)


def listening(
    link: Link, make: Callable[[Epoch, str, int], LeaseT], on_revoke: OnRevoke | None
) -> Callable[[Epoch, str, int], LeaseT]:
    """`make`, so that what it makes hears of revocations when it wants to."""
    if on_revoke is None:
        return make

    def made(epoch: Epoch, path: str, token: int) -> LeaseT:
        lease = make(epoch, path, token)
        lease.looks_after_itself()
        OwnNode(link, epoch, path, lease, on_revoke).look()
        return lease

    return made


# --- asking ---------------------------------------------------------------------------------------


def revoke(
    session: Session,
    name: str,
    reason: str,
    *,
    by: str = "",
    root: str = "/locks",
    timeout: float = 10.0,
) -> list[Standing]:
    """Ask the holder of a lock, or all its readers, to let go. It is theirs to decide.

    Only holders that acquired with ``on_revoke`` hear of it; their function gets a
    :class:`Revocation`. Asking costs a listing, and a read and a write for each holder.

    Args:
        session: whose link is used.
        name: the lock's name.
        reason: told to the holder; 1000 letters at most.
        by: who asks; this process when empty.
        root: folder of the lock.
        timeout: seconds for all of it.

    Returns:
        Those who were asked, 1000 at most; none when all who listen let go meanwhile.

    Raises:
        NodeMissing: nobody holds it.
        NotRevocable: no holder listens.
        EnsembleUnavailable: no answer in time; it may or may not have been asked.
        NameRefused: the name or the reason cannot be.
        SessionClosed, AccessDenied, ConfigError.
    """
    refuse_in_event_loop("revoke()", "await revoke_future(...)")
    return revoke_future(session, name, reason, by=by, root=root, timeout=timeout).wait()


def revoke_future(
    session: Session,
    name: str,
    reason: str,
    *,
    by: str = "",
    root: str = "/locks",
    timeout: float = 10.0,
) -> Promise[list[Standing]]:
    """The same, to be awaited."""
    link = check_session(session).link
    folder = link.absolute(join(check_path(root), check_name(name, "lock name")))
    asked = Revocation(
        check_reason(reason), by or this_process(session.name), round(time.time(), 3)
    )
    course = _revoking(folder, name, asked)
    return Steps(link, course, f"revoke {name}", check_timeout(timeout)).begin()


def holders_of(folder: str) -> Course[list[tuple[Standing, str, bytes, int]]]:
    """Who holds: the head, and the readers behind it while it shares."""
    found: list[tuple[Standing, str, bytes, int]] = []
    try:
        names = yield from read(GetChildren(folder))
    except NodeMissing:
        return found
    for contender in in_order(names)[:_HOLDERS_MAX]:
        if found and contender.kind != SHARED:
            break
        path = join(folder, contender.node)
        try:
            value, stat = yield from read(GetData(path))
        except NodeMissing:
            continue
        one = standing_of(len(found), contender.node, value, stat)
        found.append((one, path, value, stat.version))
        if one.kind != SHARED:
            break
    return found


def _revoking(folder: str, name: str, asked: Revocation) -> Course[list[Standing]]:
    holders = yield from holders_of(folder)
    if not holders:
        raise NodeMissing(f"lock {name}: nobody holds it")
    listening = [one for one in holders if one[0].identity and one[0].identity.revocable]
    if not listening:
        first = holders[0][0]
        raise NotRevocable(
            f"lock {name}: held by {first.identity or first.node}, who does not listen",
            hint="holders listen when they acquire with on_revoke; break_lock does not ask",
        )
    told = []
    for one, path, value, version in listening:
        if (yield from _told(path, value, version, asked)):
            told.append(one)
    return told


def _told(path: str, value: bytes, version: int, asked: Revocation) -> Course[bool]:
    """Write it into a holder's node; False when the holder has let go meanwhile."""
    while True:
        try:
            yield SetData(path, amended(value, revoked=asked), version)
        except NodeMissing:
            return False
        except (VersionConflict, LinkDropped, SessionLost):
            pass  # written twice is as good as once
        except EnsembleUnavailable:
            yield Pause(PAUSE_S)
        else:
            return True
        try:
            value, stat = yield from read(GetData(path))
        except NodeMissing:
            return False
        version = stat.version


def check_reason(reason: str) -> str:
    """A reason, given back.

    Raises:
        NameRefused: it is empty or longer than 1000 letters.
    """
    if not isinstance(reason, str) or not reason.strip() or len(reason) > REASON_LETTERS_MAX:
        raise NameRefused(f"reason: must be a text of 1 to {REASON_LETTERS_MAX} letters")
    return reason
