"""The parts that ZooKeeper's records are made of: strings, buffers, access lists.

Source: ``zookeeper.jute`` of Apache ZooKeeper 3.9.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

INT = struct.Struct("!i")


class Acl(NamedTuple):
    """One entry of a node's access list."""

    permissions: int
    scheme: str
    id: str


OPEN_ACL = (Acl(31, "world", "anyone"),)


def write_string(text: str) -> bytes:
    """A string."""
    raw = text.encode()
    return INT.pack(len(raw)) + raw


def write_buffer(data: bytes | None) -> bytes:
    """Bytes, or the lack of them."""
    return INT.pack(-1) if data is None else INT.pack(len(data)) + data


@lru_cache(maxsize=64)
def write_acl(entries: tuple[Acl, ...]) -> bytes:
    """An access list."""
    return INT.pack(len(entries)) + b"".join(
        INT.pack(entry.permissions) + write_string(entry.scheme) + write_string(entry.id)
        for entry in entries
    )


def read_buffer(buffer: bytes, offset: int) -> tuple[bytes | None, int]:
    """Bytes, and where they end."""
    (length,) = INT.unpack_from(buffer, offset)
    offset += 4
    if length < 0:
        return None, offset
    return bytes(buffer[offset : offset + length]), offset + length


def read_string(buffer: bytes, offset: int) -> tuple[str, int]:
    """A string, and where it ends."""
    raw, offset = read_buffer(buffer, offset)
    return (raw or b"").decode(), offset


def read_acl(buffer: bytes, offset: int) -> tuple[tuple[Acl, ...], int]:
    """An access list, and where it ends."""
    (length,) = INT.unpack_from(buffer, offset)
    offset += 4
    entries = []
    for _ in range(length):
        (permissions,) = INT.unpack_from(buffer, offset)
        scheme, offset = read_string(buffer, offset + 4)
        name, offset = read_string(buffer, offset)
        entries.append(Acl(permissions, scheme, name))
    return tuple(entries), offset
