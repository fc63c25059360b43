"""Znodes: typed verbs, each with one deadline.

Every verb has two colours: ``get`` blocks, ``get_future`` returns a
:class:`~zkcoord.zk.promise.Promise` that can be awaited. Errors common to all:

- SessionClosed: used before start, after close or in a forked child; raised at once.
- SessionLost: the session expired before the answer came.
- EnsembleUnavailable: no answer in time. For a write the outcome is unknown when it was sent.
- RuntimeError: a blocking verb inside an event loop; await the other colour there.
- AccessDenied: the ACL refuses. NameRefused: a path or value ZooKeeper cannot hold.
- TypeError: a path that is no text, a value that is no bytes, a version that is no whole number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from zkcoord.access import AclEntry
from zkcoord.errors import CoordinationError, NameRefused, NodeMissing, SessionClosed
from zkcoord.zk.acls import GetAcl, SetAcl, to_wire
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.call import Call
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.follow import Follower
from zkcoord.zk.link import Link
from zkcoord.zk.names import check_data, check_path, check_version, parent
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import (
    EPHEMERAL,
    SEQUENTIAL,
    Create,
    CreateContainer,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Node,
    SetData,
    Stat,
    Sync,
)
from zkcoord.zk.transaction import Transaction
from zkcoord.zk.verbs import Verb, check_timeout, late

_SEQUENCE_BYTES = 11
_TIMEOUT_S = 10.0

Changed = Callable[[bytes | None, Stat | None], object]


class Nodes:
    """The verbs of a session; paths are below its chroot."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        makepath: bool = False,
        timeout: float = _TIMEOUT_S,
    ) -> Node:
        """Create a node and learn its czxid.

        Args:
            path: with `sequential` ZooKeeper appends ten digits.
            data: its value.
            ephemeral: it ends with the session; waits for a session when there is none.
            sequential: see path.
            container: the server removes it some time after its last child has gone.
            makepath: create missing nodes above it, as plain nodes.
            timeout: seconds for all of it.

        Raises:
            NodeExists, NodeMissing: the node is there, or the one above it is not.
            SessionFull: too many bytes of ephemeral paths.
        """
        refuse_in_event_loop("nodes.create()", "await nodes.create_future(...)")
        return self.create_future(
            path,
            data,
            ephemeral=ephemeral,
            sequential=sequential,
            container=container,
            makepath=makepath,
            timeout=timeout,
        ).wait()

    def create_future(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        makepath: bool = False,
        timeout: float = _TIMEOUT_S,
    ) -> Promise[Node]:
        """The same, to be awaited."""
        if container and (ephemeral or sequential):
            raise NameRefused(f"{path}: a container is neither ephemeral nor sequential")
        if sequential and str(path).endswith("/"):
            check_path(path + "0")
        else:
            check_path(path)
        absolute = self._link.absolute(path)
        data = self._check_value(path, data)
        flags = (EPHEMERAL if ephemeral else 0) | (SEQUENTIAL if sequential else 0)
        request = CreateContainer(absolute, data) if container else Create(absolute, data, flags)
        self._link.check_open()
        return _Creation(self._link, request, makepath=makepath, timeout=timeout).promise

    def get(self, path: str, *, timeout: float = _TIMEOUT_S) -> tuple[bytes, Stat]:
        """A node's value and Stat. Raises NodeMissing."""
        refuse_in_event_loop("nodes.get()", "await nodes.get_future(...)")
        return self.get_future(path, timeout=timeout).wait()

    def get_future(self, path: str, *, timeout: float = _TIMEOUT_S) -> Promise[tuple[bytes, Stat]]:
        """The same, to be awaited."""
        request = GetData(self._path(path))
        return Verb[tuple[bytes, Stat]](self._link, request, "get", timeout, repeat=True).promise

    def set(
        self, path: str, data: bytes, version: int = -1, *, timeout: float = _TIMEOUT_S
    ) -> Stat:
        """Replace a node's value. Raises NodeMissing, and VersionConflict unless version fits."""
        refuse_in_event_loop("nodes.set()", "await nodes.set_future(...)")
        return self.set_future(path, data, version, timeout=timeout).wait()

    def set_future(
        self, path: str, data: bytes, version: int = -1, *, timeout: float = _TIMEOUT_S
    ) -> Promise[Stat]:
        """The same, to be awaited."""
        data = self._check_value(path, data)
        request = SetData(self._path(path), data, check_version(version))
        return Verb[Stat](self._link, request, "set", timeout).promise

    def delete(self, path: str, version: int = -1, *, timeout: float = _TIMEOUT_S) -> None:
        """Delete a node. Raises NodeMissing; VersionConflict also when it has children."""
        refuse_in_event_loop("nodes.delete()", "await nodes.delete_future(...)")
        self.delete_future(path, version, timeout=timeout).wait()

    def delete_future(
        self, path: str, version: int = -1, *, timeout: float = _TIMEOUT_S
    ) -> Promise[None]:
        """The same, to be awaited."""
        absolute = self._path(path)

        def gone(_: object) -> None:
            if self._link.epoch is not None:
                self._link.epoch.free(absolute)

        request = Delete(absolute, check_version(version))
        return Verb[None](self._link, request, "delete", timeout, shape=gone).promise

    def exists(self, path: str, *, timeout: float = _TIMEOUT_S) -> Stat | None:
        """A node's Stat, None when it is not there."""
        refuse_in_event_loop("nodes.exists()", "await nodes.exists_future(...)")
        return self.exists_future(path, timeout=timeout).wait()

    def exists_future(self, path: str, *, timeout: float = _TIMEOUT_S) -> Promise[Stat | None]:
        """The same, to be awaited."""
        request = Exists(self._path(path))
        return Verb[Stat | None](self._link, request, "exists", timeout, repeat=True).promise

    def children(self, path: str, *, timeout: float = _TIMEOUT_S) -> list[str]:
        """Names of a node's children, in no order. Raises NodeMissing."""
        refuse_in_event_loop("nodes.children()", "await nodes.children_future(...)")
        return self.children_future(path, timeout=timeout).wait()

    def children_future(self, path: str, *, timeout: float = _TIMEOUT_S) -> Promise[list[str]]:
        """The same, to be awaited."""
        request = GetChildren(self._path(path))
        return Verb[list[str]](self._link, request, "children", timeout, repeat=True).promise

    def acl(self, path: str, *, timeout: float = _TIMEOUT_S) -> tuple[AclEntry, ...]:
        """A node's access list. Raises NodeMissing."""
        refuse_in_event_loop("nodes.acl()", "await nodes.acl_future(...)")
        return self.acl_future(path, timeout=timeout).wait()

    def acl_future(
        self, path: str, *, timeout: float = _TIMEOUT_S
    ) -> Promise[tuple[AclEntry, ...]]:
        """The same, to be awaited."""
        request = GetAcl(self._path(path))
        return Verb[tuple[AclEntry, ...]](self._link, request, "acl", timeout, repeat=True).promise

    def set_acl(self, path: str, acl: str, *, timeout: float = _TIMEOUT_S) -> Stat:
        """Replace a node's access list; `acl` as in SessionConfig. Raises NodeMissing.

        Nodes below it keep theirs.
        """
        refuse_in_event_loop("nodes.set_acl()", "await nodes.set_acl_future(...)")
        return self.set_acl_future(path, acl, timeout=timeout).wait()

    def set_acl_future(self, path: str, acl: str, *, timeout: float = _TIMEOUT_S) -> Promise[Stat]:
        """The same, to be awaited."""
        request = SetAcl(self._path(path), to_wire(acl))
        return Verb[Stat](self._link, request, "set_acl", timeout).promise

    def sync(self, path: str = "/", *, timeout: float = _TIMEOUT_S) -> None:
        """Let this session's server catch up with the leader: later reads see what went before."""
        refuse_in_event_loop("nodes.sync()", "await nodes.sync_future(...)")
        self.sync_future(path, timeout=timeout).wait()

    def sync_future(self, path: str = "/", *, timeout: float = _TIMEOUT_S) -> Promise[None]:
        """The same, to be awaited."""
        request = Sync(self._path(path))
        return Verb[None](self._link, request, "sync", timeout, repeat=True).promise

    def transaction(self) -> Transaction:
        """An empty transaction."""
        return Transaction(self._link)

    def watch(self, path: str, callback: Changed) -> Watch:
        """Call ``callback(data, stat)`` now and after each change, ``(None, None)`` while missing.

        The callback runs on the session's dispatcher thread and may block. It goes on across
        reconnects and lost sessions until `close`; changes that follow one another quickly may be
        seen as one, and the same state is not reported twice.
        """
        self._link.check_open()
        return Watch(self._link, self._path(path), callback)

    def _path(self, path: str) -> str:
        return self._link.absolute(check_path(path))

    def _check_value(self, path: str, data: bytes) -> bytes:
        data = check_data(data, f"{path}: data")
        bound = self._link.config.value_bytes_max
        if len(data) > bound:
            raise NameRefused(f"{path}: a value of {len(data)} bytes, the bound is {bound}")
        return data


class Watch:
    """A node that is being watched; close it when you are done.

    Attributes:
        error: why it ended by itself, such as AccessDenied; None while it goes on.
    """

    def __init__(self, link: Link, path: str, callback: Changed) -> None:
        self._link = link
        self._callback = callback
        self._closed = False
        self._last: tuple[int, int] | bool | None = False
        self.error: CoordinationError | None = None
        self._follower = Follower(link, path, self._emit, children=False)
        link.loop.post(self._follower.start)

    def close(self) -> None:
        """No more calls; one that runs now may still end. From any thread."""
        self._closed = True
        self._link.loop.post(self._follower.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _emit(self, result: tuple[bytes, Stat] | None, error: CoordinationError | None) -> None:
        self.error = error
        if error is not None:
            return
        data, stat = (None, None) if result is None else result
        seen = None if stat is None else (stat.czxid, stat.mzxid)
        if seen != self._last:
            self._last = seen
            self._link.dispatcher.post(self._call, data, stat)

    def _call(self, data: bytes | None, stat: Stat | None) -> None:
        if not self._closed:
            self._callback(data, stat)


class _Creation:
    """A create, with the nodes above it when asked for, and its share of the session's bytes."""

    def __init__(
        self, link: Link, request: Create | CreateContainer, *, makepath: bool, timeout: float
    ) -> None:
        self._link = link
        self._request = request
        self._makepath = makepath
        self._timeout = timeout
        self._epoch: Epoch | None = None
        self._room = 0
        self._call: Call | None = None
        self.promise: Promise[Node] = Promise(link.dispatcher)
        self._timer = link.timer(check_timeout(timeout), self._expired)
        if isinstance(request, Create) and request.flags & EPHEMERAL:
            link.with_epoch(self._reserve, self._closed)
        else:
            self._send()

    def _reserve(self, epoch: Epoch) -> None:
        self._room = len(self._request.path.encode()) + _SEQUENCE_BYTES
        try:
            epoch.reserve(self._request.path, self._room)
        except CoordinationError as error:
            self._finish(error)
            return
        self._epoch = epoch
        self._send()

    def _closed(self) -> None:
        self._finish(SessionClosed("create: the session is closed"))

    def _send(self) -> None:
        if not self.promise.done():
            self._call = self._link.call(
                self._request, self._replied, epoch=self._epoch, verb="create"
            )

    def _replied(self, result: Any, error: CoordinationError | None) -> None:
        if isinstance(error, NodeMissing) and self._makepath and not self.promise.done():
            above = parent(self._request.path)
            self._link.ensure(above, self._above)
        elif error is not None:
            self._finish(error)
        else:
            self._timer.cancel()
            path, stat = result
            if self._epoch is not None:
                self._epoch.hold(path, self._room)
            node = Node(self._link.relative(path), stat.czxid, stat.version)
            if not self.promise.fulfil(node) and self._epoch is not None:
                self._link.discard(path, self._epoch, lambda _: None)

    def _above(self, error: CoordinationError | None) -> None:
        if error is None and not self.promise.done():
            self._send()
        else:
            self._finish(error or late(self._link, "create", self._timeout, harmless=True))

    def _finish(self, error: CoordinationError) -> None:
        self._timer.cancel()
        if self._epoch is not None:
            self._epoch.unreserve(self._room)
            self._room = 0
        self.promise.fail(error)

    def _expired(self) -> None:
        self._link.forget_epoch(self._reserve)
        call = self._call
        if call is not None:
            call.abandoned = True
        what = f"create {self._link.relative(self._request.path)}"
        harmless = call is None or call.sent == 0
        self.promise.fail(late(self._link, what, self._timeout, harmless))
