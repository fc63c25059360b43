"""What is read from a topic, and how positions are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from zkcoord.errors import StreamError

BEGINNING = -2
"""Position: the oldest record that still stands."""

END = -1
"""Position: only what is written from now on."""

RECORD_BYTES_MAX = 1_000_000
"""Key, value and headers of one record on a topic that anyone writes, before compression."""

INTERNAL_RECORD_BYTES_MAX = 2_000_000
"""The same for topics that only zkcoord writes: their records wrap whole tasks."""

Headers: TypeAlias = list[tuple[str, bytes | None]]
Partition: TypeAlias = tuple[str, int]
OnAck: TypeAlias = Callable[[int | None, StreamError | None], None]


class Record(NamedTuple):
    """One record as it stands in its partition.

    Attributes:
        topic, partition, offset: where it stands.
        timestamp: wall-clock seconds, as the topic's ``message.timestamp.type`` says; 0.0 when
            the record carries none.
        key, value: the bytes; None is not the same as empty.
        headers: in order, repeats kept; empty when there are none. Where a name is not UTF-8 the
            client reads none of them: one header stands for them all, UNREADABLE_HEADER.
    """

    topic: str
    partition: int
    offset: int
    timestamp: float
    key: bytes | None
    value: bytes | None
    headers: Headers
