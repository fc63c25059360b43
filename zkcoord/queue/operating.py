"""What an operator does to a queue by hand."""

from __future__ import annotations

from typing import NamedTuple

from zkcoord.config import KafkaConfig
from zkcoord.core.outputs import POSITION_KEY
from zkcoord.core.records import Source
from zkcoord.errors import NodeMissing
from zkcoord.kafka import Admin, Partition, read_compacted
from zkcoord.queue.following import read_position
from zkcoord.queue.intake import topic_of
from zkcoord.queue.topics import Topics

CLIENT_ID = "zkcoord.operator"


class Removable(NamedTuple):
    """Records of one partition that nobody needs: those from `beginning` up to before `end`."""

    beginning: int
    end: int


def removable(
    kafka: KafkaConfig, admin: Admin, topics: Topics, *, log: bool = False, timeout: float = 30.0
) -> dict[Partition, Removable]:
    """What can be deleted: inputs that the checkpoint says are consumed.

    The checkpoint speaks of facts that stand in the log, so no unread task is among them.

    Args:
        kafka: how to reach Kafka.
        admin: asks for the partitions' beginnings.
        topics: of the queue.
        log: also the log before the checkpoint's position. Tasks keep their state, histories go.
        timeout: seconds for each request.

    Raises:
        NodeMissing: there is no checkpoint yet: no leader has worked for a minute.
        BrokerUnavailable: no broker answered in time.
        DecodeError: the checkpoint is of a version that this program does not know.
    """
    table = read_compacted(
        kafka, topics.checkpoint, client_id=CLIENT_ID, timeout=timeout, group=topics.group
    )
    position = read_position(table.get(POSITION_KEY))
    if position is None:
        raise NodeMissing(
            f"queue {topics.queue!r} has no checkpoint yet",
            hint="let a scheduler lead it for a minute first",
        )
    ends: dict[Partition, int] = {
        (topic_of(topics, Source(source)), partition): offset
        for source, partition, offset in position.inputs
    }
    if log:
        ends[topics.log, 0] = position.offset
    found = {}
    for (topic, partition), end in sorted(ends.items()):
        beginning, last = admin.offsets(topic, timeout).get(partition, (0, 0))
        if beginning < min(end, last):
            found[topic, partition] = Removable(beginning, min(end, last))
    return found


def trim(
    admin: Admin, what: dict[Partition, Removable], *, timeout: float = 30.0
) -> dict[Partition, int]:
    """Delete what :func:`removable` found; returns the new beginnings.

    Raises:
        StreamDenied: the right to delete records (DELETE on the topic) is missing.
        BrokerUnavailable: no broker answered in time.
    """
    if not what:
        return {}
    return admin.trim({place: span.end for place, span in what.items()}, timeout)
