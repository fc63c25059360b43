"""From the client's messages to records."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from zkcoord.core.attributes import UNREADABLE_HEADER
from zkcoord.kafka.record import Partition, Record

# For a name that is not UTF-8 the binding returns a broken list, with an error set beside it. A
# plain call may not notice once the interpreter has specialised it; this one raises SystemError.
_headers_of = operator.methodcaller("headers")


def records_of(
    messages: Iterable[Any], positions: dict[Partition, int], met: Callable[[Any, Any], None]
) -> list[Record]:
    """The records among `messages`; moves `positions` on.

    What came in the place of a record goes to ``met(error, message)``, in its turn.
    """
    records: list[Record] = []
    add = records.append
    for message in messages:
        error = message.error()
        if error is not None:
            met(error, message)
            continue
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        positions[topic, partition] = offset + 1
        kind, stamp = message.timestamp()
        try:
            headers = _headers_of(message) or []
        except SystemError:  # a name is not UTF-8
            headers = [(UNREADABLE_HEADER, None)]
        add(
            Record(
                topic,
                partition,
                offset,
                stamp / 1000 if kind else 0.0,
                message.key(),
                message.value(),
                headers,
            )
        )
    return records
