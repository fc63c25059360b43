"""Reading records by plain assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from zkcoord.config import KafkaConfig
from zkcoord.kafka.record import Partition, Record


class Reader:
    """Reads partitions from given offsets: no group, no commits, no rebalances."""

    def __init__(
        self,
        config: KafkaConfig,
        *,
        client_id: str,
        group: str = "zkcoord.reader",
        prefetch_bytes: int = 1024 * 1024,
        prefetch_records: int = 1000,
        isolation: str = "read_committed",
        wait_s: float = 0.1,
        eof: bool = False,
    ) -> None: ...

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Read exactly these partitions from these offsets (or BEGINNING, END)."""

    def read(self, limit: int, timeout: float) -> list[Record]:
        """Up to `limit` records; waits at most `timeout` for the first one.

        Raises RecordsTrimmed when the position was deleted.
        """
        raise NotImplementedError

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on from `offset`."""

    def positions(self) -> dict[Partition, int]:
        """Offset of the next record per partition; no network. BEGINNING/END until known."""
        raise NotImplementedError

    def lag(self) -> dict[Partition, int]:
        """Records between position and the last known end, per partition; no network."""
        raise NotImplementedError

    def ends(self, timeout: float) -> dict[Partition, int]:
        """Ask the brokers for the end offsets (also feeds lag)."""
        raise NotImplementedError

    def beginnings(self, timeout: float) -> dict[Partition, int]:
        """Ask the brokers for the oldest offsets."""
        raise NotImplementedError

    def note_ends(self, ends: Mapping[Partition, int]) -> None:
        """Feed end offsets learned elsewhere (see `Ends`) into `lag`; no network."""

    def close(self) -> None:
        """Free the client."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_compacted(
    config: KafkaConfig, topic: str, *, client_id: str, timeout: float, group: str = "zkcoord.reader"
) -> dict[bytes, bytes]:
    """The latest value of every key of a compacted topic, tombstoned keys left out."""
    raise NotImplementedError


def unused(_: Sequence[Record]) -> None:
    """Placeholder until the room is filled."""
