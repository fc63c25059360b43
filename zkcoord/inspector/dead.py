"""Dead letters: what could not be done, with its original bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator

from zkcoord.core import deadletters
from zkcoord.errors import BrokerUnavailable, DecodeError, NodeMissing
from zkcoord.inspector.servers import CLIENT_ID, Servers
from zkcoord.inspector.views import DeadView
from zkcoord.kafka import Reader, Record
from zkcoord.queue import administration


def letters(
    servers: Servers, queue: str, *, limit: int = 50, timeout: float = 30.0
) -> list[DeadView]:
    """The newest `limit` letters, newest first. A letter that was written twice is shown once."""
    topics = administration.describe_queue(servers.session, queue).topics
    newest: dict[int, int] = {}
    starts = {}
    for partition, (beginning, end) in servers.admin.offsets(topics.dead).items():
        if end > beginning:
            starts[topics.dead, partition] = max(beginning, end - 2 * limit)
            newest[partition] = end
    found: dict[str, DeadView] = {}
    for record in _read(servers, starts, newest, topics.group, timeout):
        view = _view(record)
        found.setdefault(view.fact, view)
    return sorted(found.values(), key=lambda letter: letter.died, reverse=True)[:limit]


def letter(servers: Servers, queue: str, which: str, *, timeout: float = 60.0) -> DeadView:
    """One letter by ``partition/offset`` or by task id (the newest of that task).

    Raises:
        NodeMissing: there is none.
    """
    topics = administration.describe_queue(servers.session, queue).topics
    offsets = {p: o for p, o in servers.admin.offsets(topics.dead).items() if o[1] > o[0]}
    partition, _, offset = which.partition("/")
    if partition.isdecimal() and offset.isdecimal():
        place = int(partition), int(offset)
        low, high = offsets.get(place[0], (0, 0))
        starts = {(topics.dead, place[0]): place[1]} if low <= place[1] < high else {}
        ends = {place[0]: place[1] + 1}
    else:
        starts = {(topics.dead, p): low for p, (low, _) in offsets.items()}
        ends = {p: high for p, (_, high) in offsets.items()}
    found = None
    for record in _read(servers, starts, ends, topics.group, timeout):
        view = _view(record)
        if which in (view.where, view.id) and (found is None or view.died >= found.died):
            found = view
    if found is None:
        raise NodeMissing(
            f"queue {queue!r} has no dead letter {which!r}",
            hint=f"list them: zkcoord dead list {queue}",
        )
    return found


def _read(
    servers: Servers,
    starts: dict[tuple[str, int], int],
    ends: dict[int, int],
    group: str,
    timeout: float,
) -> Iterator[Record]:
    """All records from `starts` up to `ends`."""
    if not starts:
        return
    deadline = time.monotonic() + timeout
    with Reader(servers.kafka, client_id=CLIENT_ID, group=group) as reader:
        reader.assign(starts)
        while any(position < ends[key[1]] for key, position in reader.positions().items()):
            left = deadline - time.monotonic()
            if left <= 0:
                raise BrokerUnavailable(
                    f"dead letters were not read within {timeout:g} s; "
                    f"{reader.causes() or 'the brokers are slow'}",
                    hint="allow more time with --timeout",
                )
            for record in reader.read(500, min(left, 0.5)):
                if record.offset < ends[record.partition]:
                    yield record


def _view(record: Record) -> DeadView:
    """What stands there; a record that is no letter of ours is shown as it is."""
    try:
        told = deadletters.decode(record.key, record.value, record.headers)
    except DecodeError as error:
        return DeadView(
            where=f"{record.partition}/{record.offset}",
            fact=f"{record.partition}/{record.offset}",
            id=None,
            task=None,
            reason="unreadable",
            error=str(error),
            attempts=0,
            source="",
            submitted=0.0,
            died=record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
    return DeadView(
        where=f"{record.partition}/{record.offset}",
        fact=told.fact,
        id=told.id,
        task=told.task,
        reason=told.reason,
        error=told.error,
        attempts=told.attempts,
        source=deadletters.source(told.origin),
        submitted=told.origin.timestamp,
        died=told.last,
        key=told.key,
        value=told.value,
        headers=told.headers,
        size=told.size,
        sha256=told.sha256,
    )
