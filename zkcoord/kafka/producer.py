"""Sending records."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from zkcoord.config import KafkaConfig
from zkcoord.kafka.record import RECORD_BYTES_MAX, Headers, OnAck


class Producer:
    """Sends records, in order per partition, without duplicates by its own retries."""

    def __init__(
        self,
        config: KafkaConfig,
        *,
        client_id: str,
        linger_s: float = 0.0,
        record_bytes_max: int = RECORD_BYTES_MAX,
        transactional_id: str | None = None,
        buffer_records: int = 100_000,
        buffer_bytes: int = 64 * 1024 * 1024,
    ) -> None: ...

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        on_ack: OnAck | None = None,
    ) -> None:
        """Queue one record. Raises BufferFull, TaskTooLarge, ProducerBroken, StreamClosed.

        `on_ack(offset, None)` or `on_ack(None, error)` is called from poll, flush or close.
        """

    def poll(self, timeout: float = 0.0) -> int:
        """Deliver acknowledgements; returns how many events."""
        raise NotImplementedError

    def flush(self, timeout: float) -> int:
        """Wait until all is acknowledged; returns how many records are left."""
        raise NotImplementedError

    @property
    def unacknowledged(self) -> int:
        """Records queued or in flight."""
        raise NotImplementedError

    def fence(self, timeout: float) -> None:
        """With a transactional_id: fence older writers of it (init_transactions)."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self, timeout: float) -> None:
        """Commit it; raises WriterFenced when a newer writer took over."""

    def abort(self, timeout: float) -> None:
        """Abort it."""

    def close(self, timeout: float = 5.0) -> None:
        """Flush for at most `timeout`, fail the rest, free the client."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class CompactedWriter:
    """Writes batches of keyed records to one compacted topic, one transaction per batch."""

    def __init__(
        self, config: KafkaConfig, topic: str, *, client_id: str, transactional_id: str
    ) -> None: ...

    def open(self, timeout: float) -> None:
        """Fence every older writer of this transactional id."""

    def write(self, entries: Sequence[tuple[bytes, bytes | None]], timeout: float) -> None:
        """Write all or nothing; a None value is a tombstone. Blocks (4-40 ms). WriterFenced."""

    def close(self, timeout: float = 5.0) -> None:
        """Free the client."""
