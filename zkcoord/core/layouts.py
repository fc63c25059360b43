"""How contenders' nodes are named: our own way, and that of two other libraries.

Whoever queues in one folder takes turns by the sequence that ZooKeeper appends, as long as they
know each other's names:

=========  ============================================  =======================
layout     a node                                        its folder
=========  ============================================  =======================
zkcoord    ``x<session>.<request>.<sequence>``           a container
kazoo      ``<guid>__lock__<sequence>``, 32 hex digits   a plain node, for ever
curator    ``_c_<guid>-lock-<sequence>``, 36 letters     a container
=========  ============================================  =======================

kazoo's Lock counts the children that end in ``__lock__`` and ten digits; Curator's
InterProcessMutex counts all children, by what follows the last ``lock-``. kazoo makes the folder
once and then relies on it, so there it must not be a container.

The guid of our own nodes is a UUID of version 8 (RFC 9562) made of session and request, so a node
is known as ours, and as this request's, in every layout. Those of the others are random.

Source: ``kazoo/recipe/lock.py`` 2.11; ``StandardLockInternalsDriver`` and ``ProtectedUtils`` of
Apache Curator 5.9.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

_SESSION_BITS = 64
_REQUEST_BITS = 58
_SEQUENCE = r"([0-9]{10}|-[0-9]{9,10})"
_KAZOO = re.compile(rf"^((.*)__(r?)lock__{_SEQUENCE})$", re.MULTILINE)
_CURATOR = re.compile(rf"^((?:_c_)?(.*?)()-?lock-{_SEQUENCE})$", re.MULTILINE)


class Layout(StrEnum):
    """Whose names are used; see the module."""

    ZKCOORD = "zkcoord"
    KAZOO = "kazoo"
    CURATOR = "curator"

    @property
    def container(self) -> bool:
        """Whether the server may remove the folder some time after its last contender."""
        return self is not Layout.KAZOO


class Foreign(NamedTuple):
    """A name in another library's layout.

    Attributes:
        shared: it is kazoo's reader, which does not exclude other readers.
        guid: what stands in front. sequence: the digits. node: all of it.
    """

    node: str
    guid: str
    shared: bool
    sequence: str


def guid(session: int, request: int) -> UUID:
    """A request of a session as a UUID.

    Raises:
        ValueError: the request's number does not fit into 58 bits.
    """
    if not 0 <= request < 1 << _REQUEST_BITS:
        raise ValueError(f"request {request} has more than {_REQUEST_BITS} bits")
    raw = (session % (1 << _SESSION_BITS)) << _REQUEST_BITS | request  # 122 bits
    high, middle, low = raw >> 74, raw >> 62 & 0xFFF, raw & (1 << 62) - 1
    return UUID(int=high << 80 | 8 << 76 | middle << 64 | 2 << 62 | low)


def read_guid(text: str) -> tuple[int, int] | None:
    """Session (signed, as ZooKeeper has it) and request; None when it is not one of ours."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    if found.version != 8:
        return None
    value = found.int
    raw = value >> 80 << 74 | (value >> 64 & 0xFFF) << 62 | value & (1 << 62) - 1
    session = raw >> _REQUEST_BITS
    if session >= 1 << (_SESSION_BITS - 1):
        session -= 1 << _SESSION_BITS
    return session, raw & (1 << _REQUEST_BITS) - 1


def prefix(layout: Layout, session: int, request: int) -> str:
    """The name to give to a sequential create of an exclusive contender, kazoo's or Curator's."""
    mark = guid(session, request)
    return f"{mark.hex}__lock__" if layout is Layout.KAZOO else f"_c_{mark}-lock-"


def read_foreign(names: str) -> list[Foreign]:
    """The contenders of other libraries among names, one a line."""
    return [
        Foreign(node, mark, bool(shared), sequence)
        for pattern in (_KAZOO, _CURATOR)
        for node, mark, shared, sequence in pattern.findall(names)
    ]
