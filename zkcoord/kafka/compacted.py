"""Compacted topics: written in transactions, read whole into a dictionary."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from zkcoord.config import KafkaConfig
from zkcoord.errors import (
    BrokerUnavailable,
    BufferFull,
    PublishTimeout,
    StreamError,
    WriterFenced,
)
from zkcoord.kafka.handle import log
from zkcoord.kafka.options import Fetch
from zkcoord.kafka.producer import Producer
from zkcoord.kafka.reader import DEFAULT_GROUP, Reader
from zkcoord.kafka.record import BEGINNING, INTERNAL_RECORD_BYTES_MAX, OnAck

_READ_LIMIT = 1000
_ABORT_S = 5.0


class CompactedWriter:
    """Writes batches of keyed records to one topic, each batch whole or not at all.

    `open` fences every older writer of the same transactional id: a writer that was paused and
    wakes up can change nothing. Construct it ahead of need: a client that is half a second old
    opens in 10 ms, a new one in 500. For one thread at a time; every call blocks, for 4-40 ms on a
    healthy cluster.

    Source: KIP-98, Exactly Once Delivery and Transactional Messaging.
    """

    def __init__(
        self, config: KafkaConfig, topic: str, *, client_id: str, transactional_id: str
    ) -> None:
        self._topic = topic
        self._producer = Producer(
            config,
            client_id=client_id,
            record_bytes_max=INTERNAL_RECORD_BYTES_MAX,
            transactional_id=transactional_id,
            # Lets a whole batch become few requests; commit flushes at once.
            linger_s=0.005,
        )

    def open(self, timeout: float) -> None:
        """Fence older writers and abort what they had open. Raises BrokerUnavailable."""
        self._producer.fence(timeout)

    def write(self, entries: Sequence[tuple[bytes, bytes | None]], timeout: float) -> None:
        """Write all entries or none; a None value is a tombstone.

        Raises:
            WriterFenced: a newer writer was opened; stop.
            BrokerUnavailable: not in time, the outcome is unknown: open a new writer, write again.
            StreamError: nothing was written.
        """
        deadline = time.monotonic() + timeout
        failed: list[StreamError] = []

        def heard(_: int | None, error: StreamError | None) -> None:
            if error is not None:
                failed.append(error)

        self._producer.begin()
        try:
            for key, value in entries:
                self._send(key, value, heard, deadline)
        except StreamError:
            self._abandon()
            raise
        try:
            self._producer.commit(max(0.1, deadline - time.monotonic()))
        except WriterFenced:
            raise
        except StreamError as error:
            if failed and not isinstance(failed[0], WriterFenced | PublishTimeout):
                raise failed[0] from error  # says more than "the transaction failed"
            raise

    def close(self, timeout: float = 5.0) -> None:
        """Free the client."""
        self._producer.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _abandon(self) -> None:
        try:
            self._producer.abort(_ABORT_S)
        except StreamError as error:
            log.debug("writer of %s: abort: %s", self._topic, error)

    def _send(self, key: bytes, value: bytes | None, heard: OnAck, deadline: float) -> None:
        while True:
            try:
                self._producer.send(self._topic, value, key=key, on_ack=heard)
            except BufferFull:
                if time.monotonic() >= deadline:
                    raise
                self._producer.poll(0.01)
            else:
                return


def read_compacted(
    config: KafkaConfig,
    topic: str,
    *,
    client_id: str,
    timeout: float,
    group: str = DEFAULT_GROUP,
) -> dict[bytes, bytes]:
    """The latest value of every key, committed ones only; tombstoned keys are left out.

    Reads up to the first transaction that is still open. A commit becomes visible a moment after
    it was answered, so whoever must see all that was committed opens a :class:`CompactedWriter`
    first: that ends every open transaction and waits until it is visible. Memory: all live values.

    Raises:
        BrokerUnavailable: not read to its end within `timeout` seconds.
        TopicMismatch: there is no such topic.
    """
    deadline = time.monotonic() + timeout
    table: dict[bytes, bytes] = {}
    with Reader(config, client_id=client_id, group=group, eof=True, fetch=Fetch(0.01)) as reader:
        partitions = reader.partitions(topic, max(0.0, deadline - time.monotonic()))
        reader.assign({(topic, partition): BEGINNING for partition in partitions})
        while not reader.at_end():
            left = deadline - time.monotonic()
            if left <= 0:
                raise BrokerUnavailable(
                    f"topic {topic!r} was not read to its end within {timeout:g} s",
                    hint="check the brokers, or allow more time",
                )
            for record in reader.read(_READ_LIMIT, min(left, 0.5)):
                if record.key is None:
                    continue
                if record.value is None:
                    table.pop(record.key, None)
                else:
                    table[record.key] = record.value
    return table
