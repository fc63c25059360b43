"""End offsets kept fresh without waiting for the network."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from zkcoord.config import KafkaConfig
from zkcoord.errors import ConfigError
from zkcoord.kafka.handle import Handle, log
from zkcoord.kafka.options import admin_properties
from zkcoord.kafka.record import Partition


class Ends(Handle):
    """Asks for the end offsets of partitions every `every_s` seconds, in the background.

    A reader whose buffer is full fetches nothing and learns of no new records; so a leader that
    leaves records unread on purpose asks here how many there are::

        reader.note_ends(ends.latest())
        reader.lag()

    `latest` never blocks; while brokers are away it answers with what it knew last.

    Raises:
        ConfigError: `every_s` is not within 0.01 and 3600, or as for Admin.
    """

    def __init__(
        self,
        config: KafkaConfig,
        partitions: Sequence[Partition],
        *,
        client_id: str = "zkcoord.ends",
        every_s: float = 0.5,
    ) -> None:
        super().__init__(config, client_id)
        if not 0.01 <= every_s <= 3600:
            raise ConfigError("Ends: every_s: must be within 0.01 and 3600")
        self._every_s = every_s
        self._timeout_s = config.request_timeout_s
        self._asked = {TopicPartition(*key): OffsetSpec.latest() for key in partitions}
        self._pending: dict[TopicPartition, Future[Any]] = {}
        self._next = 0.0
        self._latest: dict[Partition, int] = {}
        self._open(AdminClient, admin_properties(config, client_id=client_id))

    def latest(self) -> Mapping[Partition, int]:
        """The end offsets known so far; asks anew in the background when they are old."""
        client = self._use()
        if self._pending:
            self._collect()
        now = time.monotonic()
        if not self._pending and self._asked and now >= self._next:
            self._next = now + self._every_s
            client.poll(0)
            try:
                self._pending = client.list_offsets(self._asked, request_timeout=self._timeout_s)
            except KafkaException as error:
                log.debug("ends %s: %s", self._client_id, error)
        return self._latest

    def close(self) -> None:
        """Free the client. Harmless when closed, or in a forked child."""
        self._pending = {}
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _collect(self) -> None:
        if not all(future.done() for future in self._pending.values()):
            return
        for part, future in self._pending.items():
            try:
                self._latest[part.topic, part.partition] = int(future.result(0).offset)
            except KafkaException as error:
                log.debug("ends %s: %s", self._client_id, error)
        self._pending = {}
