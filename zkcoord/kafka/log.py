"""One-partition topics as an ordered log: append, follow, read to the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from zkcoord.config import KafkaConfig
from zkcoord.errors import BrokerUnavailable
from zkcoord.kafka.options import Fetch
from zkcoord.kafka.producer import Producer
from zkcoord.kafka.reader import DEFAULT_GROUP, Reader
from zkcoord.kafka.record import BEGINNING, INTERNAL_RECORD_BYTES_MAX, OnAck, Record

_PROMPT, _LAZY = Fetch(), Fetch(bytes=256 * 1024)
_CONNECT_S = 10.0


class LogAppender:
    """Appends records to partition 0 of one topic, each at once.

    Several appends may be in flight; they land in order. An append whose acknowledgement fails
    with :class:`~zkcoord.errors.PublishTimeout` may have landed: append the same bytes again and
    let the readers drop repeats (DESIGN D1, the rule of ``(term, n)``).
    """

    def __init__(self, config: KafkaConfig, topic: str, *, client_id: str) -> None:
        self._topic = topic
        self._producer = Producer(
            config,
            client_id=client_id,
            linger_s=0.0,
            record_bytes_max=INTERNAL_RECORD_BYTES_MAX,
            buffer_records=1000,
        )

    def append(self, value: bytes, on_ack: OnAck | None = None) -> None:
        """Queue one record; never blocks. Raises as :meth:`Producer.send`."""
        self._producer.send(self._topic, value, partition=0, on_ack=on_ack)

    def poll(self, timeout: float = 0.0) -> int:
        """Deliver acknowledgements. Raises as :meth:`Producer.poll`."""
        return self._producer.poll(timeout)

    def flush(self, timeout: float) -> int:
        """As :meth:`Producer.flush`."""
        return self._producer.flush(timeout)

    def close(self, timeout: float = 5.0) -> None:
        """As :meth:`Producer.close`."""
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


class LogReader:
    """Reads partition 0 of one topic in order, from `offset` on; with None from where it is sought.

    Reads uncommitted: logs are written without transactions, and a stray open transaction must
    not make its readers stand still.

    A `lazy` one may see a record 0.1 s late, and costs the brokers ten requests a second at most
    where a prompt one costs one for every record.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topic: str,
        *,
        client_id: str,
        offset: int | None = BEGINNING,
        group: str = DEFAULT_GROUP,
        lazy: bool = False,
    ) -> None:
        self._topic = topic
        self._key = (topic, 0)
        self._reader = Reader(
            config,
            client_id=client_id,
            group=group,
            prefetch_bytes=8 * 1024 * 1024,
            isolation="read_uncommitted",
            fetch=_LAZY if lazy else _PROMPT,
            eof=True,
        )
        if offset is not None:
            self._reader.assign({self._key: offset})

    def connect(self, timeout: float = _CONNECT_S) -> None:
        """Get to know the topic, so that the first `seek` costs one fetch.

        Raises:
            TopicMismatch: there is no such topic.
            BrokerUnavailable: no answer within `timeout` seconds.
        """
        self._reader.partitions(self._topic, timeout)

    @property
    def position(self) -> int:
        """Offset of the next record to be read; as given until the first record came."""
        return self._reader.positions()[self._key]

    def read(self, limit: int, timeout: float) -> list[Record]:
        """As :meth:`Reader.read`."""
        return self._reader.read(limit, timeout)

    def read_to_end(self, timeout: float, limit: int = 500) -> Iterator[list[Record]]:
        """All records up to the end as it is at the call, in lists of at most `limit`.

        May go beyond that end by less than one list. The deadline counts from the first step.

        Raises:
            BrokerUnavailable: the end was not reached within `timeout` seconds.
            RecordsTrimmed: as :meth:`Reader.read`.
        """
        deadline = time.monotonic() + timeout
        end = self.end(timeout)
        begins = self.position
        if begins < 0:
            begins = self.beginning(max(0.01, deadline - time.monotonic()))
        if begins >= end:
            return
        while self.position < end:
            left = deadline - time.monotonic()
            if left <= 0:
                raise BrokerUnavailable(
                    f"topic {self._topic!r}: read up to offset {self.position} of {end}"
                    f" within {timeout:g} s; {self._reader.causes() or 'the brokers are slow'}",
                    hint="check the brokers, or allow more time",
                )
            records = self._reader.read(limit, min(left, 0.5))
            if records:
                yield records

    def beginning(self, timeout: float) -> int:
        """Oldest offset that still stands, asked from the broker. Raises BrokerUnavailable."""
        return self._reader.beginnings(timeout)[self._key]

    def end(self, timeout: float) -> int:
        """End offset, asked from the broker. Raises BrokerUnavailable."""
        return self._reader.ends(timeout)[self._key]

    def lag(self) -> int:
        """Records not read yet, as far as known; no network."""
        return self._reader.lag()[self._key]

    @property
    def stalls(self) -> int:
        """As :attr:`Reader.stalls`."""
        return self._reader.stalls

    def seek(self, offset: int) -> None:
        """Go on from `offset`."""
        self._reader.seek(self._key, offset)

    def causes(self) -> str:
        """As :meth:`Reader.causes`."""
        return self._reader.causes()

    def close(self) -> None:
        """Free the client."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
