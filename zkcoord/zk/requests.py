"""Requests and replies of the ZooKeeper protocol.

kazoo lacks createContainer, removeWatches and create2 inside a multi, so all requests that zkcoord
sends are written here; kazoo keeps the handshake. Source: ``zookeeper.jute`` and
``ZooDefs.OpCode`` of Apache ZooKeeper 3.9.

A request has an ``opcode``, ``serialize()`` and ``deserialize(buffer, offset)``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from zkcoord.zk.jute import (
    INT,
    OPEN_ACL,
    Acl,
    read_buffer,
    read_string,
    write_acl,
    write_buffer,
    write_string,
)

_STAT = struct.Struct("!qqqqiiiqiiq")
_MULTI = struct.Struct("!i?i")
_ZXID = struct.Struct("!q")
_ZXID_BEFORE_BODY = 12  # a reply's header: xid, zxid, error

EPHEMERAL = 1
SEQUENTIAL = 2
CONTAINER = 4

WATCH_CHILDREN = 1
WATCH_DATA = 2
WATCH_BELOW = 5
_PERSISTENT_RECURSIVE = 1

_ANY_VERSION = -1
_ERROR = -1


class Stat(NamedTuple):
    """What ZooKeeper says about a znode.

    Attributes:
        czxid, mzxid, pzxid: transactions that created it, changed its data, changed its children.
        ctime, mtime: the same as wall clock of the server, in milliseconds.
        version, cversion, aversion: changes to its data, its children, its ACL.
        owner: the session of an ephemeral node, else 0.
        size: bytes of data. children: how many.
    """

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    size: int
    children: int
    pzxid: int


class Node(NamedTuple):
    """A node that was just created."""

    path: str
    czxid: int
    version: int


class Request(Protocol):
    """What the connection needs of a request. Paths in it are absolute, chroot included."""

    opcode: ClassVar[int]

    @property
    def path(self) -> str:
        """The znode it is about."""

    def serialize(self) -> bytes:
        """Its body."""

    def deserialize(self, buffer: bytes, offset: int) -> Any:
        """The reply's body."""


def read_stat(buffer: bytes, offset: int) -> Stat:
    """The Stat at `offset`; it takes 68 bytes."""
    return Stat._make(_STAT.unpack_from(buffer, offset))


@dataclass(slots=True)
class Create:
    """create2: the reply holds the Stat, and so the token, at no further cost.

    The access list is replaced by the session's own before it is sent.
    """

    path: str
    data: bytes
    flags: int = 0
    acl: tuple[Acl, ...] = OPEN_ACL

    opcode: ClassVar[int] = 15

    def serialize(self) -> bytes:
        """The body."""
        path, data, pack = self.path.encode(), self.data, INT.pack
        parts = (pack(len(path)), path, pack(len(data)), data, write_acl(self.acl))
        return b"".join((*parts, pack(self.flags)))

    def deserialize(self, buffer: bytes, offset: int) -> tuple[str, Stat]:
        """Path and Stat."""
        path, offset = read_string(buffer, offset)
        return path, read_stat(buffer, offset)


@dataclass(slots=True)
class CreateContainer:
    """createContainer: the server removes the node some time after its last child has gone."""

    path: str
    data: bytes = b""
    acl: tuple[Acl, ...] = OPEN_ACL

    opcode: ClassVar[int] = 19

    def serialize(self) -> bytes:
        """The body."""
        return Create(self.path, self.data, CONTAINER, self.acl).serialize()

    def deserialize(self, buffer: bytes, offset: int) -> tuple[str, Stat]:
        """Path and Stat."""
        path, offset = read_string(buffer, offset)
        return path, read_stat(buffer, offset)


@dataclass(slots=True)
class Delete:
    """delete."""

    path: str
    version: int = _ANY_VERSION

    opcode: ClassVar[int] = 2

    def serialize(self) -> bytes:
        """The body."""
        return write_string(self.path) + INT.pack(self.version)

    def deserialize(self, buffer: bytes, offset: int) -> int:
        """The transaction, from the reply's header: it has no body."""
        zxid: int = _ZXID.unpack_from(buffer, offset - _ZXID_BEFORE_BODY)[0]
        return zxid


@dataclass(slots=True)
class Exists:
    """exists: None when the node is not there. Either way a watch is set."""

    path: str
    watch: bool = False

    opcode: ClassVar[int] = 3

    def serialize(self) -> bytes:
        """The body."""
        return write_string(self.path) + bytes((self.watch,))

    def deserialize(self, buffer: bytes, offset: int) -> Stat | None:
        """The Stat."""
        return read_stat(buffer, offset)


@dataclass(slots=True)
class GetData:
    """getData."""

    path: str
    watch: bool = False

    opcode: ClassVar[int] = 4

    def serialize(self) -> bytes:
        """The body."""
        return write_string(self.path) + bytes((self.watch,))

    def deserialize(self, buffer: bytes, offset: int) -> tuple[bytes, Stat]:
        """Data and Stat."""
        data, offset = read_buffer(buffer, offset)
        return data or b"", read_stat(buffer, offset)


@dataclass(slots=True)
class SetData:
    """setData."""

    path: str
    data: bytes
    version: int = _ANY_VERSION

    opcode: ClassVar[int] = 5

    def serialize(self) -> bytes:
        """The body."""
        return write_string(self.path) + write_buffer(self.data) + INT.pack(self.version)

    def deserialize(self, buffer: bytes, offset: int) -> Stat:
        """The Stat."""
        return read_stat(buffer, offset)


@dataclass(slots=True)
class GetChildren:
    """getChildren: names, in no order."""

    path: str
    watch: bool = False

    opcode: ClassVar[int] = 8

    def serialize(self) -> bytes:
        """The body."""
        return write_string(self.path) + bytes((self.watch,))

    def deserialize(self, buffer: bytes, offset: int) -> list[str]:
        """The names."""
        (length,) = INT.unpack_from(buffer, offset)
        offset += 4
        names = []
        for _ in range(length):
            name, offset = read_string(buffer, offset)
            names.append(name)
        return names


@dataclass(slots=True)
class Sync:
    """sync: the server catches up with the leader before it answers what follows."""

    path: str

    opcode: ClassVar[int] = 9

    def serialize(self) -> bytes:
        """The body."""
        return write_string(self.path)

    def deserialize(self, buffer: bytes, offset: int) -> None:
        """Nothing of use."""


@dataclass(slots=True)
class RemoveWatches:
    """removeWatches: the server forgets this session's watch of one kind on the path."""

    path: str
    kind: int

    opcode: ClassVar[int] = 18

    def serialize(self) -> bytes:
        """The body."""
        return write_string(self.path) + INT.pack(self.kind)

    def deserialize(self, buffer: bytes, offset: int) -> None:
        """Nothing."""


@dataclass(slots=True)
class AddWatch:
    """addWatch: a persistent recursive watch, on the node and everything below it.

    It stays until it is removed or the link drops. Its events are NODE_CREATED, NODE_DELETED and
    NODE_CHANGED. Servers have it since 3.6.
    """

    path: str

    opcode: ClassVar[int] = 106

    def serialize(self) -> bytes:
        """The body."""
        return write_string(self.path) + INT.pack(_PERSISTENT_RECURSIVE)

    def deserialize(self, buffer: bytes, offset: int) -> None:
        """Nothing of use."""


@dataclass(slots=True)
class Check:
    """Part of a multi: the node is there, and has this version unless it is -1."""

    path: str
    version: int = _ANY_VERSION

    opcode: ClassVar[int] = 13

    def serialize(self) -> bytes:
        """The body."""
        return write_string(self.path) + INT.pack(self.version)

    def deserialize(self, buffer: bytes, offset: int) -> None:
        """Only ever part of a multi."""


Operation = Create | Delete | SetData | Check


@dataclass(slots=True)
class Multi:
    """multi: all operations or none. The reply is one entry each: a value, or an error's code."""

    operations: tuple[Operation, ...]

    opcode: ClassVar[int] = 14

    @property
    def path(self) -> str:
        """The first operation's node."""
        return self.operations[0].path if self.operations else "/"

    def serialize(self) -> bytes:
        """The body."""
        parts = [_MULTI.pack(op.opcode, False, -1) + op.serialize() for op in self.operations]
        return b"".join(parts) + _MULTI.pack(_ERROR, True, -1)

    def deserialize(self, buffer: bytes, offset: int) -> list[Any]:
        """Results in order: ``(path, Stat)``, ``Stat``, None, or ``int`` for an error."""
        results: list[Any] = []
        while True:
            kind, done, _ = _MULTI.unpack_from(buffer, offset)
            offset += _MULTI.size
            if done:
                return results
            if kind == Create.opcode:
                path, offset = read_string(buffer, offset)
                results.append((path, read_stat(buffer, offset)))
                offset += _STAT.size
            elif kind == SetData.opcode:
                results.append(read_stat(buffer, offset))
                offset += _STAT.size
            elif kind == _ERROR:
                results.append(INT.unpack_from(buffer, offset)[0])
                offset += 4
            else:
                results.append(None)


@dataclass(slots=True)
class Close:
    """closeSession: its ephemeral nodes go at once."""

    path: str = "/"

    opcode: ClassVar[int] = -11

    def serialize(self) -> bytes:
        """No body."""
        return b""

    def deserialize(self, buffer: bytes, offset: int) -> None:
        """Nothing."""


class WatchEvent(NamedTuple):
    """What the server sends when a watch fires."""

    kind: int
    path: str

    @classmethod
    def read(cls, buffer: bytes, offset: int) -> WatchEvent:
        """From the body of a notification."""
        kind, _state = struct.unpack_from("!ii", buffer, offset)
        path, _ = read_string(buffer, offset + 8)
        return cls(kind, path)


NODE_CREATED = 1
NODE_DELETED = 2
NODE_CHANGED = 3
CHILDREN_CHANGED = 4
