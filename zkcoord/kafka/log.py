"""One-partition topics as an ordered log: append, follow, read to the end."""

from __future__ import annotations

from collections.abc import Iterator

from zkcoord.config import KafkaConfig
from zkcoord.kafka.record import BEGINNING, OnAck, Record


class LogAppender:
    """Appends records to partition 0 of one topic, at once."""

    def __init__(self, config: KafkaConfig, topic: str, *, client_id: str) -> None: ...

    def append(self, value: bytes, on_ack: OnAck | None = None) -> None:
        """Queue one record; raises as Producer.send."""

    def poll(self, timeout: float = 0.0) -> int:
        """Deliver acknowledgements."""
        raise NotImplementedError

    def close(self, timeout: float = 5.0) -> None:
        """Free the client."""


class LogReader:
    """Reads partition 0 of one topic, from `offset` on."""

    def __init__(
        self,
        config: KafkaConfig,
        topic: str,
        *,
        client_id: str,
        offset: int = BEGINNING,
        group: str = "zkcoord.reader",
    ) -> None: ...

    @property
    def position(self) -> int:
        """Offset of the next record to be read."""
        raise NotImplementedError

    def read(self, limit: int, timeout: float) -> list[Record]:
        """As Reader.read."""
        raise NotImplementedError

    def read_to_end(self, timeout: float, limit: int = 500) -> Iterator[list[Record]]:
        """All records up to the end as it is now, in lists; BrokerUnavailable at the deadline."""
        raise NotImplementedError

    def beginning(self, timeout: float) -> int:
        """Oldest offset that still stands."""
        raise NotImplementedError

    def end(self, timeout: float) -> int:
        """End offset as the broker has it now."""
        raise NotImplementedError

    def lag(self) -> int:
        """Records not read yet, as far as known; no network."""
        raise NotImplementedError

    def seek(self, offset: int) -> None:
        """Go on from `offset`."""

    def close(self) -> None:
        """Free the client."""
