"""Access lists: what a session gives to the nodes it creates, and requests that read and set them.

Source: ``ZooDefs.OpCode`` and ``ZooDefs.Ids`` of Apache ZooKeeper 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zkcoord.access import LETTERS, AclEntry, parse_acl
from zkcoord.zk.jute import INT, Acl, read_acl, read_string, write_acl, write_string
from zkcoord.zk.requests import Create, CreateContainer, Multi, Request, Stat, read_stat


def to_wire(text: str) -> tuple[Acl, ...]:
    """What :attr:`~zkcoord.config.SessionConfig.acl` says, as the server takes it.

    Raises:
        ConfigError: it says nothing.
    """
    return tuple(
        Acl(sum(LETTERS[letter] for letter in set(entry.permissions)), entry.scheme, entry.id)
        for entry in parse_acl(text)
    )


def from_wire(entries: tuple[Acl, ...]) -> tuple[AclEntry, ...]:
    """What the server tells."""
    return tuple(
        AclEntry(
            scheme=entry.scheme,
            id=entry.id,
            permissions="".join(name for name, bit in LETTERS.items() if entry.permissions & bit),
        )
        for entry in entries
    )


def stamp(request: Request, acl: tuple[Acl, ...]) -> None:
    """Give the access list to every node that the request creates."""
    if isinstance(request, Multi):
        for part in request.operations:
            stamp(part, acl)
    elif isinstance(request, (Create, CreateContainer)):
        request.acl = acl


@dataclass(slots=True)
class GetAcl:
    """getACL."""

    path: str

    opcode: ClassVar[int] = 6

    def serialize(self) -> bytes:
        """The body."""
        return write_string(self.path)

    def deserialize(self, buffer: bytes, offset: int) -> tuple[AclEntry, ...]:
        """The entries."""
        return from_wire(read_acl(buffer, offset)[0])


@dataclass(slots=True)
class SetAcl:
    """setACL."""

    path: str
    acl: tuple[Acl, ...]
    version: int = -1

    opcode: ClassVar[int] = 7

    def serialize(self) -> bytes:
        """The body."""
        version = self.version.to_bytes(4, "big", signed=True)
        return write_string(self.path) + write_acl(self.acl) + version

    def deserialize(self, buffer: bytes, offset: int) -> Stat:
        """The Stat."""
        return read_stat(buffer, offset)


@dataclass(slots=True)
class WhoAmI:
    """whoAmI, since 3.7: the identities that the server counts for this link."""

    path: str = "/"

    opcode: ClassVar[int] = 107

    def serialize(self) -> bytes:
        """No body."""
        return b""

    def deserialize(self, buffer: bytes, offset: int) -> tuple[str, ...]:
        """Each as ``scheme:user``."""
        (length,) = INT.unpack_from(buffer, offset)
        offset += INT.size
        found = []
        for _ in range(length):
            scheme, offset = read_string(buffer, offset)
            user, offset = read_string(buffer, offset)
            found.append(f"{scheme}:{user}")
        return tuple(found)
