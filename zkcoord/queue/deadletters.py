"""Read the dead letters of a queue.

The `dead` topic is read from a place near its end, without a group: looking changes nothing. A
letter that was sent twice (after a take-over) is shown once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from zkcoord.config import KafkaConfig
from zkcoord.core import deadletters
from zkcoord.core.deadletters import DeadLetter
from zkcoord.errors import BrokerUnavailable, DecodeError, RecordsTrimmed
from zkcoord.kafka import Admin, Partition, Reader, Record
from zkcoord.queue.patience import patiently
from zkcoord.queue.topics import Topics

READ_LIMIT = 500
READ_S = 0.2
WINDOW_MIN = 256


class Buried(NamedTuple):
    """A dead letter and where it lies."""

    partition: int
    offset: int
    letter: DeadLetter


def list_dead(
    config: KafkaConfig,
    topics: Topics,
    *,
    limit: int = 100,
    reason: str | None = None,
    task: str | None = None,
    timeout: float = 10.0,
) -> list[Buried]:
    """The newest dead letters, newest first.

    Args:
        config: how to reach Kafka.
        topics: of the queue.
        limit: at most this many.
        reason: only those with this reason.
        task: only those of this task.
        timeout: seconds for the whole call.

    Raises:
        BrokerUnavailable: it could not be read in time.
    """
    until = time.monotonic() + timeout
    bounds = _bounds(config, topics, until)
    window = max(WINDOW_MIN, 2 * limit)
    starts = {place: end for place, (_, end) in bounds.items()}
    found: dict[str, Buried] = {}
    while len(found) < limit and any(starts[p] > low for p, (low, _) in bounds.items()):
        spans = {}
        for place, (low, _) in bounds.items():
            start = max(low, starts[place] - window)
            spans[place] = (start, starts[place])
            starts[place] = start
        for record in _read(config, spans, until):
            buried = _buried(record)
            if buried is not None and _matches(buried.letter, reason, task):
                found[buried.letter.fact] = buried
        window *= 4
    newest = sorted(found.values(), key=lambda buried: buried.letter.last, reverse=True)
    return newest[:limit]


def find_dead(
    config: KafkaConfig, topics: Topics, wanted: str, *, timeout: float = 30.0
) -> Buried | None:
    """The newest dead letter whose task id, fact or place of origin is `wanted`, or None.

    The place is ``<class>/<partition>/<offset>``, the id of what had none that could be read.

    Raises:
        BrokerUnavailable: it could not be read in time.
    """
    until = time.monotonic() + timeout
    found: Buried | None = None
    for record in _read(config, _bounds(config, topics, until), until):
        buried = _buried(record)
        if buried is None:
            continue
        letter = buried.letter
        if wanted not in (letter.id, letter.fact, deadletters.source(letter.origin)):
            continue
        if found is None or buried.letter.last >= found.letter.last:
            found = buried
    return found


def _matches(letter: DeadLetter, reason: str | None, task: str | None) -> bool:
    return reason in (None, letter.reason) and task in (None, letter.task)


def _buried(record: Record) -> Buried | None:
    try:
        letter = deadletters.decode(record.key, record.value, record.headers)
    except DecodeError:
        return None  # somebody else wrote it; it is not ours to judge
    return Buried(record.partition, record.offset, letter)


def _bounds(
    config: KafkaConfig, topics: Topics, until: float
) -> Mapping[Partition, tuple[int, int]]:
    admin = Admin(config, client_id="zkcoord.dead")
    try:
        offsets = patiently(lambda left: admin.offsets(topics.dead, left), until)
    finally:
        admin.close()
    return {(topics.dead, partition): bounds for partition, bounds in offsets.items()}


def _read(
    config: KafkaConfig, spans: Mapping[Partition, tuple[int, int]], until: float
) -> Iterator[Record]:
    """The records of these spans, end excluded."""
    left = {place: span for place, span in spans.items() if span[0] < span[1]}
    if not left:
        return
    with Reader(config, client_id="zkcoord.dead") as reader:
        reader.assign({place: start for place, (start, _) in left.items()})
        while left:
            if time.monotonic() >= until:
                raise BrokerUnavailable("the dead letters could not be read in time")
            try:
                records = reader.read(READ_LIMIT, READ_S)
            except RecordsTrimmed:
                # Retention took them while we read: begin again where they begin now.
                reader.assign(_beginnings(reader, left, until))
                continue
            for record in records:
                place = (record.topic, record.partition)
                if place in left and record.offset < left[place][1]:
                    yield record
            _drop_finished(left, reader.positions())


def _beginnings(reader: Reader, places: Iterable[Partition], until: float) -> dict[Partition, int]:
    beginnings = patiently(reader.beginnings, until)
    positions = reader.positions()
    return {place: max(beginnings[place], positions.get(place, 0)) for place in places}


def _drop_finished(
    left: dict[Partition, tuple[int, int]], positions: Mapping[Partition, int]
) -> None:
    for place in [p for p, (_, end) in left.items() if positions.get(p, 0) >= end]:
        del left[place]
