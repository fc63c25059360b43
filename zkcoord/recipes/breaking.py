"""Taking a lock away from its holder, with a record of who did it and why.

An operator's last resort: the holder's node is removed, whatever the holder does. A node's name is
never used again, so only the holder that was meant can be hit, not the next one; the removal and
the record of it are one transaction.

A holder that lives hears of it: at once when it has held for a third of its session's timeout or
acquired with ``on_revoke``, otherwise when that third has passed, see :mod:`zkcoord.recipes.vigil`.
The next one may be granted before, and a holder that hangs or is cut off hears nothing until it is
back. So break what can be fenced, or is known to be dead.
"""

from __future__ import annotations

import re
import secrets
import time

import msgspec

from zkcoord.core.ordering import distance
from zkcoord.errors import (
    EnsembleUnavailable,
    NodeMissing,
    SessionLost,
    VersionConflict,
)
from zkcoord.recipes.contenders import FolderReading, Identity, check_limit, this_process
from zkcoord.recipes.revocation import check_reason, holders_of
from zkcoord.recipes.steps import PAUSE_S, Course, Folder, Pause, Steps, read
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.names import check_name, check_path, join
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import SEQUENTIAL, Create, Delete, GetChildren, Multi
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.translate import LinkDropped
from zkcoord.zk.verbs import check_timeout

AUDIT_FOLDER = "/audit/broken"
AUDIT_RECORDS_MAX = 1000

_RECORD = re.compile(r"broken-[0-9a-f]{16}-(-?[0-9]{9,10})")


class BrokenLock(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `break_lock` writes down.

    Attributes:
        name, root: the lock. token: the fencing token of who had it.
        holder: who that was, None when unreadable. session: its session.
        reason: why. by: who broke it. at: when, wall clock of their host.
    """

    name: str
    root: str
    token: int
    holder: Identity | None
    session: int
    reason: str
    by: str
    at: float


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BrokenLock).decode


def break_lock(
    session: Session,
    name: str,
    token: int,
    reason: str,
    *,
    by: str = "",
    root: str = "/locks",
    timeout: float = 10.0,
) -> BrokenLock:
    """Take a lock away from who holds it with this token, and write down that it was done.

    The holder is not stopped, but told: its `lost` is set, with the reason ``removed``, at once
    when it has held for a third of its session's timeout or acquired with ``on_revoke``, else when
    that third has passed; one that is cut off hears nothing before it is back. The next in line is
    granted at once, or after its lock delay. Removal and record are one transaction; the 1000
    latest records are kept below ``/audit/broken``.

    Args:
        session: whose link is used.
        name: the lock's name.
        token: the fencing token of the holder that is meant, as `contenders` shows it.
        reason: for the record; 1000 letters at most.
        by: who does it; this process when empty.
        root: folder of the lock.
        timeout: seconds for all of it.

    Returns:
        The record.

    Raises:
        NodeMissing: nobody holds it.
        VersionConflict: somebody else holds it by now; nobody was harmed.
        EnsembleUnavailable: no answer in time; it may or may not have been broken.
        NameRefused: the name or the reason cannot be.
        TypeError: the token is no whole number.
        SessionClosed, AccessDenied, ConfigError.
    """
    refuse_in_event_loop("break_lock()", "await break_lock_future(...)")
    done = break_lock_future(session, name, token, reason, by=by, root=root, timeout=timeout)
    return done.wait()


def break_lock_future(
    session: Session,
    name: str,
    token: int,
    reason: str,
    *,
    by: str = "",
    root: str = "/locks",
    timeout: float = 10.0,
) -> Promise[BrokenLock]:
    """The same, to be awaited."""
    link = check_session(session).link
    folder = link.absolute(join(check_path(root), check_name(name, "lock name")))
    if type(token) is not int:
        kind = type(token).__name__
        raise TypeError(f"token {token!r}: must be a whole number (int), not {kind}")
    record = BrokenLock(
        name, root, token, None, 0, check_reason(reason), by or this_process(session.name), 0.0
    )
    course = _breaking(folder, link.absolute(AUDIT_FOLDER), record)
    return Steps(link, course, f"break {name}", check_timeout(timeout)).begin()


def _breaking(folder: str, audit: str, record: BrokenLock) -> Course[BrokenLock]:
    name = record.name
    holders = yield from holders_of(folder)
    if not holders:
        raise NodeMissing(f"lock {name}: nobody holds it")
    meant = [(one, path) for one, path, *_ in holders if one.token == record.token]
    if not meant:
        one = holders[0][0]
        raise VersionConflict(
            f"lock {name}: token {record.token} does not hold it, but {one.identity} "
            f"with token {one.token}"
        )
    one, path = meant[0]
    record = msgspec.structs.replace(
        record, holder=one.identity, session=one.session, at=round(time.time(), 3)
    )
    mark = f"broken-{secrets.token_hex(8)}-"
    while True:
        yield from _made(audit)
        create = Create(join(audit, mark), _encode(record), SEQUENTIAL)
        try:
            yield Multi((create, Delete(path)))
        except NodeMissing:
            # Perhaps by ourselves, in a transaction whose reply was lost: what failed now was
            # ordered after it, so its record can be seen.
            names = yield from read(GetChildren(audit))
            if not any(node.startswith(mark) for node in names):
                raise VersionConflict(f"lock {name}: token {record.token} has let go") from None
        except (LinkDropped, SessionLost):
            continue
        except EnsembleUnavailable:
            yield Pause(PAUSE_S)
            continue
        yield from _trimmed(audit)
        return record


def _made(audit: str) -> Course[None]:
    while True:
        try:
            yield Folder(audit)
        except (LinkDropped, SessionLost):
            continue
        except EnsembleUnavailable:
            yield Pause(PAUSE_S)
            continue
        return


def _trimmed(audit: str) -> Course[None]:
    """The oldest records go. What fails here is done by the next who breaks a lock."""
    try:
        names = yield GetChildren(audit)
        for node in latest_records(names)[AUDIT_RECORDS_MAX:]:
            yield Delete(join(audit, node))
    except (NodeMissing, LinkDropped, SessionLost, EnsembleUnavailable):
        return


def latest_records(names: list[str]) -> list[str]:
    """The records among a folder's children, latest first, across the sequence's wrap."""
    numbered = [(int(found[1]), node) for node in names if (found := _RECORD.fullmatch(node))]
    if not numbered:
        return []
    pivot = numbered[0][0]
    numbered.sort(key=lambda item: distance(pivot, item[0]), reverse=True)
    return [node for _, node in numbered]


def broken_locks(session: Session, *, limit: int = 100, timeout: float = 10.0) -> list[BrokenLock]:
    """The records of locks that were broken, latest first.

    Args:
        session: whose link is used.
        limit: so many at most.
        timeout: seconds for all of it.

    Raises:
        EnsembleUnavailable, SessionLost, SessionClosed, AccessDenied, ConfigError.
    """
    refuse_in_event_loop("broken_locks()", "await broken_locks_future(...)")
    return broken_locks_future(session, limit=limit, timeout=timeout).wait()


def broken_locks_future(
    session: Session, *, limit: int = 100, timeout: float = 10.0
) -> Promise[list[BrokenLock]]:
    """The same, to be awaited."""
    folder = check_session(session).link.absolute(AUDIT_FOLDER)

    def pick(names: list[str]) -> list[str]:
        return latest_records(names)[:limit]

    check_limit(limit)
    reading = FolderReading(session.link, folder, pick, timeout, "broken locks")
    return reading.promise.then(lambda found: _records([value for _, value, _ in found]))


def _records(values: list[bytes]) -> list[BrokenLock]:
    records = []
    for value in values:
        try:
            records.append(_decode(value))
        except msgspec.MsgspecError:
            continue  # not ours
    return records
