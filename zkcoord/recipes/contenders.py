"""Who holds and who waits: what contenders say of themselves, and reading it back."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from zkcoord.core.ordering import SHARED, in_order, parse
from zkcoord.errors import ConfigError, CoordinationError, NodeMissing, SessionLost
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.link import Link
from zkcoord.zk.names import check_name, check_path, join
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import GetChildren, GetData, Stat
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.translate import LinkDropped
from zkcoord.zk.verbs import check_timeout, late


class Revocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody asks a holder to let go.

    Attributes:
        reason: why. by: who asks, as they call themselves.
        at: when, wall clock of their host.
        to: of an election: the candidate that is to lead, by its label or its session id; empty
            when whoever is next will do.
    """

    reason: str
    by: str = ""
    at: float = 0.0
    to: str | int = ""


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a contender's node, JSON.

    Attributes:
        host, pid: the process; empty and 0 for contenders of other libraries.
        name: what it calls itself; of other libraries' contenders the text they wrote.
        since: when it asked, wall clock of its host.
        data: what it published, base64 in the JSON.
        shared: a writer that went on as a reader.
        revocable: it listens to :func:`~zkcoord.recipes.revocation.revoke`.
        revoked: it was asked to let go.
    """

    host: str
    pid: int
    name: str = ""
    since: float = 0.0
    data: bytes = b""
    shared: bool = False
    revocable: bool = False
    revoked: Revocation | None = None

    def __str__(self) -> str:
        if not self.host:
            return self.name
        process = f"pid {self.pid} on {self.host}"
        return f"{self.name} ({process})" if self.name else process


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Identity).decode
_TEXT_LETTERS = 200
_HOST = socket.gethostname()


def describe(name: str, data: bytes = b"", *, revocable: bool = False) -> bytes:
    """This process as the value of a node."""
    since = round(time.time(), 3)
    return _encode(Identity(_HOST, os.getpid(), name, since, data, revocable=revocable))


def this_process(name: str) -> str:
    """This process in words."""
    return str(Identity(_HOST, os.getpid(), name))


def amended(value: bytes, **changes: object) -> bytes:
    """The value with other fields.

    Raises:
        ValueError: it is not one of ours.
    """
    return _encode(msgspec.structs.replace(_decode(value), **changes))


def shares(value: bytes) -> bool:
    """Whether a writer's node says that it went on as a reader."""
    if b'"shared"' not in value:
        return False
    identity = read_identity(value)
    return identity is not None and identity.shared


def read_identity(value: bytes) -> Identity | None:
    """The inverse of :func:`describe`; of what something else wrote, the text.

    kazoo writes what its user called the contender, Curator the host's address. None when it is
    no text that can be shown.
    """
    try:
        return _decode(value)
    except msgspec.MsgspecError:
        pass
    try:
        text = value.decode().strip()[:_TEXT_LETTERS]
    except UnicodeDecodeError:
        return None
    return Identity("", 0, text) if text and text.isprintable() else None


class Standing(NamedTuple):
    """One contender as seen by `contenders`.

    Attributes:
        position: 0 holds, 1 is next.
        node: its name in the folder. kind: ``x`` for exclusive, ``r`` for readers.
        token: its czxid, the fencing token it has or will have.
        session: whose it is.
        waited: seconds since its node was created, by the reader's wall clock.
        identity: what it says of itself, None when unreadable.
    """

    position: int
    node: str
    kind: str
    token: int
    session: int
    waited: float
    identity: Identity | None


def contenders(
    session: Session, name: str, *, root: str = "/locks", limit: int = 1000, timeout: float = 10.0
) -> list[Standing]:
    """Holder and waiters of a lock or an election, in order.

    One listing, then all values in one flight. Those who leave meanwhile are left out.

    Args:
        session: whose link is used.
        name: the lock's name.
        root: ``/locks`` or ``/elections``.
        limit: values of so many are read, from the head.
        timeout: seconds for all of it.

    Raises:
        EnsembleUnavailable, SessionLost, SessionClosed, AccessDenied, NameRefused.
        ConfigError: a limit below 1.
    """
    refuse_in_event_loop("contenders()", "await contenders_future(...)")
    return contenders_future(session, name, root=root, limit=limit, timeout=timeout).wait()


def contenders_future(
    session: Session, name: str, *, root: str = "/locks", limit: int = 1000, timeout: float = 10.0
) -> Promise[list[Standing]]:
    """The same, to be awaited."""
    link = check_session(session).link
    folder = link.absolute(join(check_path(root), check_name(name)))
    check_limit(limit)

    def pick(names: list[str]) -> list[str]:
        return [contender.node for contender in in_order(names)[:limit]]

    reading = FolderReading(link, folder, pick, timeout, "contenders")
    return reading.promise.then(
        lambda found: [standing(index, *item) for index, item in enumerate(found)]
    )


def check_limit(limit: int) -> int:
    """How many are to be told of, given back.

    Raises:
        ConfigError: it is no whole number, or below 1.
    """
    given: object = limit
    if type(given) is not int or given < 1:
        raise ConfigError(f"limit {given!r}: must be a whole number of 1 or more")
    return limit


class FolderReading:
    """All wanted children of a folder with their values: one listing, then one flight of reads.

    Args:
        pick: chooses and orders the children to read.
        what: for messages.
    """

    def __init__(
        self,
        link: Link,
        folder: str,
        pick: Callable[[list[str]], list[str]],
        timeout: float,
        what: str,
    ) -> None:
        link.check_open()
        self._link = link
        self._folder = folder
        self._pick = pick
        self._timeout = timeout
        self._what = what
        self._left = 0
        self._found: dict[str, tuple[bytes, Stat] | None] = {}
        self.promise: Promise[list[tuple[str, bytes, Stat]]] = Promise(link.dispatcher)
        self._timer = link.timer(check_timeout(timeout), self._expired)
        self._list()

    def _list(self) -> None:
        self._link.call(GetChildren(self._folder), self._listed, verb="children")

    def _listed(self, names: list[str] | None, error: CoordinationError | None) -> None:
        if self.promise.done():
            return
        if isinstance(error, (LinkDropped, SessionLost)) and not self._link.closed:
            self._list()
        elif error is not None and not isinstance(error, NodeMissing):
            self._fail(error)
        else:
            self._found = dict.fromkeys(self._pick(names or []))
            self._left = len(self._found)
            for name in self._found:
                self._read(name)
            if not self._found:
                self._finish()

    def _read(self, name: str) -> None:
        def read(result: Any, error: CoordinationError | None) -> None:
            if self.promise.done():
                return
            if isinstance(error, (LinkDropped, SessionLost)) and not self._link.closed:
                self._read(name)
                return
            if error is not None and not isinstance(error, NodeMissing):
                self._fail(error)
                return
            self._found[name] = result
            self._left -= 1
            if self._left == 0:
                self._finish()

        self._link.call(GetData(join(self._folder, name)), read, verb="get")

    def _finish(self) -> None:
        self._timer.cancel()
        self.promise.fulfil(
            [(name, *value) for name, value in self._found.items() if value is not None]
        )

    def _fail(self, error: CoordinationError) -> None:
        self._timer.cancel()
        self.promise.fail(error)

    def _expired(self) -> None:
        what = f"{self._what} {self._link.relative(self._folder)}"
        self.promise.fail(late(self._link, what, self._timeout, harmless=True))


def standing(position: int, node: str, data: bytes, stat: Stat) -> Standing:
    """What a node's name, value and Stat say of its contender."""
    contender, identity = parse(node), read_identity(data)
    kind = contender.kind if contender is not None else ""
    return Standing(
        position=position,
        node=node,
        kind=SHARED if identity is not None and identity.shared else kind,
        token=stat.czxid,
        session=stat.owner,
        waited=max(0.0, time.time() - stat.ctime / 1000),
        identity=identity,
    )


def read_holder(link: Link, paths: list[str], done: Callable[[str], object]) -> None:
    """Describe the first of these nodes that is still there; "" when none is. On the loop."""
    if not paths:
        done("")
        return

    def read(result: Any, error: CoordinationError | None) -> None:
        if isinstance(error, NodeMissing):
            read_holder(link, paths[1:], done)
        elif error is not None:
            done("")
        else:
            identity = read_identity(result[0])
            done(str(identity) if identity else paths[0].rpartition("/")[2])

    link.call(GetData(paths[0]), read, verb="get")
