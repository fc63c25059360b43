"""Read what comes into a queue: tasks of four classes, control records, agents' reports.

One reader per source. A class that has no room is simply not polled: its reader's small prefetch
fills, and the rest stays in Kafka. (Pausing would throw the prefetched records away.) Reports and
control records are always read, and first, because they free slots; then the classes in their
order, each with a small share of its own, so that a flood of one cannot keep the others unread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zkcoord.config import KafkaConfig
from zkcoord.core.records import Source
from zkcoord.kafka import Reader, Record
from zkcoord.queue.topics import Topics

CLASSES = (Source.CRITICAL, Source.HIGH, Source.NORMAL, Source.LOW)
SHARE_MIN = 16
"""Records that every class with room may bring in a cycle, whatever the classes above it bring."""


def topic_of(topics: Topics, source: Source) -> str:
    """The topic that `source` is read from."""
    if source is Source.CONTROL:
        return topics.control
    if source is Source.REPORTS:
        return topics.reports
    return topics.priorities[source]


class Intake:
    """The readers of one queue's inputs, from given positions on.

    Not thread-safe: one leader's loop owns it.

    Args:
        config: how to reach Kafka.
        topics: of the queue.
        partitions: how many partitions each source's topic has.
        positions: next offset per (source, partition), from the log. A partition that the log
            never mentions is read from offset 0, not from its beginning: if records were deleted
            there, nobody has read them.
        client_id: for the brokers' logs.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topics: Topics,
        partitions: Mapping[Source, int],
        positions: Mapping[tuple[int, int], int],
        *,
        client_id: str,
    ) -> None:
        self._readers: dict[Source, Reader] = {}
        self._partitions: dict[Source, int] = {}
        self._topics = topics
        try:
            for source in Source:
                reader = Reader(config, client_id=f"{client_id}.{source.name.lower()}")
                self._readers[source] = reader
                topic = topic_of(topics, source)
                count = partitions[source]
                self._partitions[source] = count
                reader.assign(
                    {(topic, p): positions.get((int(source), p), 0) for p in range(count)}
                )
        except BaseException:
            self.close()
            raise

    def reports(self, limit: int) -> list[Record]:
        """What agents reported, up to `limit` records."""
        return self._readers[Source.REPORTS].read(limit, 0.0)

    def control(self, limit: int) -> list[Record]:
        """Control records, up to `limit`."""
        return self._readers[Source.CONTROL].read(limit, 0.0)

    def tasks(self, limit: int, room: Sequence[int]) -> list[tuple[Source, list[Record]]]:
        """Submitted tasks: about `limit` records, CRITICAL first, at most `room` per class."""
        found = []
        left = limit
        for source in CLASSES:
            share = min(room[source], max(left, SHARE_MIN))
            if share <= 0:
                continue
            records = self._readers[source].read(share, 0.0)
            if records:
                found.append((source, records))
                left -= len(records)
        return found

    def unread(self) -> tuple[int, int, int, int]:
        """Records per class that wait in Kafka, as far as known. No network."""
        critical, high, normal, low = (sum(self._readers[c].lag().values()) for c in CLASSES)
        return critical, high, normal, low

    def note_ends(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Tell the readers the brokers' end offsets: classes not polled do not learn of them."""
        for source in CLASSES:
            topic = topic_of(self._topics, source)
            self._readers[source].note_ends({p: e for p, e in ends.items() if p[0] == topic})

    def grow(
        self, partitions: Mapping[Source, int], positions: Mapping[tuple[int, int], int]
    ) -> None:
        """Read partitions that were added to the topics."""
        for source, count in partitions.items():
            if count <= self._partitions[source]:
                continue
            topic = topic_of(self._topics, source)
            at = self._readers[source].positions()
            fresh = {
                (topic, p): positions.get((int(source), p), 0)
                for p in range(self._partitions[source], count)
            }
            self._readers[source].assign({**at, **fresh})
            self._partitions[source] = count

    def close(self) -> None:
        """Free the readers."""
        for reader in self._readers.values():
            reader.close()
