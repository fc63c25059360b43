"""Reading records by plain assignment."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka import Consumer as Client

from zkcoord.config import KafkaConfig
from zkcoord.errors import BrokerUnavailable, RecordsTrimmed, ZkcoordError
from zkcoord.kafka import codes, translate
from zkcoord.kafka.handle import Handle, log
from zkcoord.kafka.messages import records_of
from zkcoord.kafka.options import Fetch, reader_properties
from zkcoord.kafka.question import Question, asker
from zkcoord.kafka.record import BEGINNING, END, Partition, Record
from zkcoord.kafka.standstill import STALL_S, Stalled, Standstill

DEFAULT_GROUP = "zkcoord.reader"

_LOGICAL = {BEGINNING: OFFSET_BEGINNING, END: OFFSET_END}
_ASK_S = 2.0
_PROMPT = Fetch()


class Reader(Handle):
    """Reads partitions from given offsets: no group, no commits, no rebalances, no skipping.

    For one thread at a time. Use one reader per priority class: what a reader has prefetched comes
    out in the order of its fetches, whatever its partition.

    A partition that stands still for `stall_s` seconds or longer although records wait in it is
    read anew from its position; if that does not help with a new client, then more and more
    rarely. To notice it, `read` asks the brokers for the ends of partitions that have not moved,
    once in `stall_s` seconds, rarely while there is no answer, and does not wait for it.

    Args:
        config: how to reach Kafka.
        client_id: shown in the broker's logs and quotas.
        group: a name the client needs and nothing uses; with ACLs, DESCRIBE on it avoids a warning.
        prefetch_bytes, prefetch_records: what is fetched ahead of `read`, at most (one fetch of up
            to 1 MiB per partition may come on top).
        isolation: ``read_committed`` hides open and aborted transactions.
        fetch: when a broker answers a fetch, see there; by default at once when records come.
        eof: makes `at_end` usable, and lets `read` return at once when the end is reached.

    Raises:
        ConfigError: a bad bound, or a refused property in ``config.librdkafka``.
    """

    stall_s: ClassVar[float] = STALL_S

    def __init__(
        self,
        config: KafkaConfig,
        *,
        client_id: str,
        group: str = DEFAULT_GROUP,
        prefetch_bytes: int = 1024 * 1024,
        prefetch_records: int = 1000,
        isolation: str = "read_committed",
        fetch: Fetch = _PROMPT,
        eof: bool = False,
    ) -> None:
        super().__init__(config, client_id)
        self._properties = reader_properties(
            config,
            client_id=client_id,
            group=group,
            prefetch_bytes=prefetch_bytes,
            prefetch_records=prefetch_records,
            isolation=isolation,
            fetch=fetch,
        )
        self._eof = eof
        self._standstill = Standstill(self.stall_s)
        self._question: Question | None = None
        self._stalls = 0
        self._drained = False  # all that was fetched is read
        self._read_at = 0.0
        self._positions: dict[Partition, int] = {}
        self._known_ends: dict[Partition, int] = {}
        self._at_end: set[Partition] = set()
        self._handles: dict[Partition, TopicPartition] = {}
        self._failures: list[ZkcoordError] = []
        self._held: deque[Any] = deque()
        self._open(Client, self._properties)
        self._asker = asker(config, self._properties)  # last: what fails before has none to leave

    def partitions(self, topic: str, timeout: float) -> list[int]:
        """Partition numbers of a topic, asked from a broker.

        Raises:
            TopicMismatch: there is no such topic.
            BrokerUnavailable: no answer within `timeout` seconds; names the address and the cause.
        """
        what = f"partitions of topic {topic!r}"
        try:
            listed = self._use().list_topics(topic, timeout=max(timeout, 0.01))
        except KafkaException as error:
            raise self._translated(error, what) from error
        found = listed.topics[topic]
        if found.error is not None:
            raise translate.stream_error(found.error, what, self._causes)
        return sorted(found.partitions)

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Read exactly these partitions, from these offsets on (or BEGINNING, END).

        Replaces an earlier assignment and drops what was prefetched. No network: a missing topic
        shows in `read`. For a partition that was added a moment ago call `partitions` first, or
        the client may take ten seconds to notice it.
        """
        self._assign(positions)
        self._positions = dict(positions)
        self._handles = {key: TopicPartition(*key) for key in positions}
        self._known_ends = {k: end for k, end in self._known_ends.items() if k in positions}
        self._at_end.clear()
        self._failures.clear()
        self._standstill.assigned(positions, time.monotonic())
        self._question = None  # its answer concerns other positions
        self._drained = False

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on from `offset` in one of the assigned partitions.

        Works whatever state the partition is in: it is assigned anew, the others keep theirs.
        """
        self.assign({**self._standstill.starts(self._positions), partition: offset})

    def read(self, limit: int, timeout: float) -> list[Record]:
        """Up to `limit` records; waits at most `timeout` seconds for the first one.

        Records of one partition come in order. A broker that is away shows as an empty list: the
        client reconnects by itself (see `causes`).

        Raises:
            RecordsTrimmed: the record at the position was deleted (or the position lies beyond the
                end, after records were lost). Raised again until `seek` or `assign`.
            TopicMismatch, StreamDenied: the topic is missing or may not be read.
        """
        if self._failures:
            raise self._failure()
        now = time.monotonic()
        if now - self._read_at > self.stall_s:  # what was fetched meanwhile is not known
            self._question = None
        deadline = now + timeout
        while True:
            if self._drained and self._wonders(now):
                self._look_after(now)
            messages = self._take(limit, min(max(0.0, deadline - now), self.stall_s))
            now = self._read_at = time.monotonic()
            self._drained = len(messages) < limit and not self._held
            if messages:
                records = self._records(messages)
                if records or self._eof:
                    return records
            # Behind a notice records may wait: then one more look, which takes no time.
            if not messages and now >= deadline:
                return []

    def positions(self) -> dict[Partition, int]:
        """Offset of the next record per partition; as assigned until a record or the end came."""
        return dict(self._positions)

    def lag(self) -> dict[Partition, int]:
        """Records not read yet, per partition, as far as known; no network.

        The ends are those of the last fetch, of `ends` and of `note_ends`, whichever is highest.
        While the prefetch buffer is full nothing is fetched, so feed `note_ends` now and then.
        A partition that is read from BEGINNING or END counts 0 until its first record came.
        """
        client = self._use()
        lags = {}
        for key, position in self._positions.items():
            end = self._known_ends.get(key, -1)
            cached = client.get_watermark_offsets(self._handles[key], cached=True)
            if cached is not None and cached[1] > end:
                end = cached[1]
            lags[key] = max(0, end - position) if position >= 0 else 0
        return lags

    def at_end(self) -> bool:
        """Whether every partition was read to its end at some moment since; needs ``eof=True``."""
        return len(self._at_end) == len(self._positions)

    def ends(self, timeout: float) -> dict[Partition, int]:
        """Ask the brokers for the end offset of every assigned partition; also feeds `lag`.

        Raises:
            BrokerUnavailable: no answer within `timeout` seconds.
        """
        ends = {key: high for key, (_, high) in self._watermarks(timeout).items()}
        self.note_ends(ends)
        return ends

    def beginnings(self, timeout: float) -> dict[Partition, int]:
        """Ask the brokers for the oldest offset of every assigned partition. Raises as `ends`."""
        return {key: low for key, (low, _) in self._watermarks(timeout).items()}

    def note_ends(self, ends: Mapping[Partition, int]) -> None:
        """Feed end offsets learned elsewhere into `lag`; partitions not assigned are ignored."""
        for key, end in ends.items():
            if key in self._positions:
                self._known_ends[key] = end

    @property
    def stalls(self) -> int:
        """How often a partition that stood still was read anew."""
        return self._stalls

    def causes(self) -> str:
        """Why the brokers are out of reach, as far as the client said so lately; or empty."""
        return self._causes.text()

    def close(self) -> None:
        """Free the client. Harmless when closed, or in a forked child."""
        if self._shut(lambda client: client.close()):
            self._asker.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self, limit: int, timeout: float) -> Sequence[Any]:
        """Up to `limit` of the client's messages: records, and notices in the place of records."""
        client = self._use()
        # consume(n, t) waits for n messages or the whole t; poll returns with the first.
        try:
            first = self._held.popleft() if self._held else client.poll(timeout)
            if first is None:
                return ()
            more = [] if limit == 1 or self._held else client.consume(limit - 1, 0)
        except KafkaException as raised:
            raise translate.stream_error(translate.of(raised), "read", self._causes) from raised
        return (first, *more)

    def _records(self, messages: Sequence[Any]) -> list[Record]:
        records = records_of(messages, self._positions, self._met)
        if not records and self._failures:
            raise self._failure()
        if records and self._at_end:
            self._at_end.difference_update({(r.topic, r.partition) for r in records})
        return records

    def _assign(self, positions: Mapping[Partition, int]) -> None:
        client = self._use()
        try:
            client.assign(
                [
                    TopicPartition(topic, partition, _LOGICAL.get(offset, offset))
                    for (topic, partition), offset in positions.items()
                ]
            )
        except KafkaException as error:
            raise self._translated(error, "assign") from error
        self._held.clear()

    def _wonders(self, now: float) -> bool:
        """Whether ends are to be asked for, or were answered."""
        question = self._question
        return now >= self._standstill.due if question is None else question.answer is not None

    def _look_after(self, now: float) -> None:
        """Read partitions anew that stand still; see standstill.py. Does not block."""
        if self._question is None:
            still = self._standstill.still(self._positions, now)
            self._question = self._asker.ask(still) if still else None
            return
        answer, self._question = self._question.answer, None
        if answer is None or answer.ends is None:
            self._standstill.unanswered(now)
            return
        ends = {place: end for place, end in answer.ends.items() if self._stands(place)}
        stalled = self._standstill.judge(ends, now)
        if stalled:
            self._read_anew(stalled)

    def _stands(self, place: Partition) -> bool:
        """Whether a partition has not moved since its end was asked for."""
        return self._standstill.seen(place) == self._positions.get(place)

    def _read_anew(self, stalled: Sequence[Stalled]) -> None:
        for place, position, end, offset, times in stalled:
            log.warning(
                "topic %r partition %d stands still at offset %d of %d: reading anew from %d%s",
                *(*place, position, end, offset, " with a new client" if times > 1 else ""),
            )
            self._positions[place] = offset
        self._stalls += len(stalled)
        if any(times > 1 for *_, times in stalled):
            stuck = self._native
            self._open(Client, self._properties)
            # A stuck client may take its time, or for ever.
            threading.Thread(target=stuck.close, name="zkcoord-stuck", daemon=True).start()
        self._assign(self._standstill.starts(self._positions))

    def _failure(self) -> ZkcoordError:
        """The oldest failure. A hole stays until `seek`: trying again must not read past it."""
        failure = self._failures[0]
        if not isinstance(failure, RecordsTrimmed):
            del self._failures[0]
        return failure

    def _watermarks(self, timeout: float) -> dict[Partition, tuple[int, int]]:
        client = self._use()
        deadline = time.monotonic() + timeout
        found = {}
        for key, handle in self._handles.items():
            what = f"offsets of topic {key[0]!r} partition {key[1]}"
            left = max(0.01, deadline - time.monotonic())
            try:
                answer = self._watermark(client, key, handle, left)
            except KafkaException as error:
                raise self._translated(error, what) from error
            if answer is None:
                raise BrokerUnavailable(f"{what}: no answer within {timeout:g} s{self._why()}")
            found[key] = answer
        return found

    def _watermark(
        self, client: Any, key: Partition, handle: TopicPartition, timeout: float
    ) -> tuple[int, int] | None:
        try:
            answer: tuple[int, int] | None = client.get_watermark_offsets(handle, timeout=timeout)
        except KafkaException as error:
            # Without a broker the client may call a partition unknown; only a broker can tell.
            if translate.of(error).code() != codes.UNKNOWN_PARTITION:
                raise
            if key[1] not in self.partitions(key[0], timeout):
                raise
            answer = client.get_watermark_offsets(handle, timeout=timeout)
        return answer

    def _met(self, error: KafkaError, message: Message) -> None:
        """Take note of an error that came in the place of a record."""
        code = error.code()
        key = (message.topic() or "", message.partition() or 0)
        if code == codes.END_OF_PARTITION:
            self._positions[key] = message.offset() or 0
            if self._eof:
                self._at_end.add(key)
        elif code in codes.PASSING:
            log.debug("reader %s: %s", self._client_id, error)
        elif code in codes.TRIMMED:
            self._failures.append(self._trimmed(key, error))
        else:
            what = f"reading topic {key[0]!r}"
            self._failures.append(translate.stream_error(error, what, self._causes))

    def _trimmed(self, key: Partition, error: KafkaError) -> ZkcoordError:
        position = self._positions.get(key, -1)
        stands = ""
        try:
            low, high = self._use().get_watermark_offsets(self._handles[key], timeout=_ASK_S)
            stands = f"; {low} to {high} stand there"
        except (KafkaException, TypeError):
            log.debug("reader %s: no watermarks for %s", self._client_id, key)
        failure = RecordsTrimmed(
            f"topic {key[0]!r} partition {key[1]}: the record at offset {position} is gone{stands}",
            hint="it was deleted before it was read: by retention, a trim or a lost broker",
        )
        failure.__cause__ = KafkaException(error)
        return failure

    def _translated(self, error: KafkaException, what: str) -> ZkcoordError:
        client = self._use()
        # Only poll lets the client tell its causes; what else it yields is kept for `read`.
        message = client.poll(0)
        if message is not None:
            self._held.append(message)
        what = f"{what} at {self._bootstrap}"
        return translate.stream_error(translate.of(error), what, self._causes)

    def _why(self) -> str:
        text = self.causes()
        return f" at {self._bootstrap}" + (f"; likely cause: {text}" if text else "")
