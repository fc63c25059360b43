"""Sending records."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as Client

from zkcoord.config import KafkaConfig
from zkcoord.errors import BufferFull, StreamError, ZkcoordError
from zkcoord.kafka import codes, translate
from zkcoord.kafka.handle import Handle, log
from zkcoord.kafka.options import producer_properties
from zkcoord.kafka.record import RECORD_BYTES_MAX, Headers, OnAck

_CLOSE_GRACE_S = 1.0
_LOOK_S = 1.0

Delivered: TypeAlias = Callable[[KafkaError | None, Message], None]


class Producer(Handle):
    """Sends records: in order per partition, ``acks=all``, no duplicates by its own retries.

    Open it ahead of need: the client waits half a second after its start before it asks a broker
    for the id that makes it idempotent, and no record leaves before it has one.

    Any thread may send. Transactions are for one thread at a time.
    Acknowledgements are delivered inside `poll`, `flush` and `close`, in the calling thread; an
    exception that an `on_ack` raises comes out of that call.

    Args:
        config: how to reach Kafka.
        client_id: shown in the broker's logs and quotas.
        linger_s: wait this long to fill a batch. 0, the default, sends at once; 0.005 suits bulk.
        record_bytes_max: key, value and headers of one record; more raises TaskTooLarge.
        transactional_id: makes `fence`, `begin`, `commit` and `abort` usable (and needed).
        buffer_records, buffer_bytes: bounds on what is not acknowledged; beyond: BufferFull.

    Raises:
        ConfigError: a bad bound, or a refused property in ``config.librdkafka``.
    """

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
    ) -> None:
        super().__init__(config, client_id)
        properties = producer_properties(
            config,
            client_id=client_id,
            linger_s=linger_s,
            record_bytes_max=record_bytes_max,
            buffer_records=buffer_records,
            buffer_bytes=buffer_bytes,
            transactional_id=transactional_id,
        )
        self._record_bytes_max = record_bytes_max
        self._look_again = 0.0
        self._unheard = 0
        self._unheard_error: StreamError | None = None
        # The callback of the last `on_ack`, kept because the records of a batch share theirs; one
        # tuple, so that two sending threads cannot mix them up.
        self._last: tuple[OnAck | None, Delivered] = (None, self._note_unheard)
        self._open(Client, properties)

    @property
    def failures(self) -> tuple[int, StreamError | None]:
        """Records sent without `on_ack` that were not acknowledged: how many, and the last why."""
        return self._unheard, self._unheard_error

    @property
    def unacknowledged(self) -> int:
        """Records, requests and events not yet done with."""
        return len(self._use())

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
        """Queue one record for sending; does not block.

        Except once: for a partition that was added since the client last looked, it looks again,
        for at most a second and at most once a second.

        `on_ack(offset, None)` or `on_ack(None, error)` is called once, from poll, flush or close.
        Give the same `on_ack` to the records of a batch: a new one costs an allocation. The error
        is :class:`PublishTimeout` when the record may have been written all the same.

        Raises:
            BufferFull: poll, wait and try again.
            TaskTooLarge: the record exceeds `record_bytes_max`.
            TopicMismatch: the topic has no such partition. (A missing topic shows in `on_ack`.)
            BrokerUnavailable: nobody could be asked about a partition that is new to the client.
            ProducerBroken, WriterFenced: this producer is finished; open a new one.
            StreamClosed: after close, or in a forked child.
        """
        client = self._use()
        last = self._last
        if on_ack is not last[0]:
            last = (on_ack, self._note_unheard if on_ack is None else self._wrap(on_ack))
            self._last = last
        to = -1 if partition is None else partition
        try:
            try:
                client.produce(topic, value, key, to, last[1], headers=headers)
            except KafkaException as error:
                if translate.of(error).code() != codes.UNKNOWN_PARTITION or not self._look(topic):
                    raise
                client.produce(topic, value, key, to, last[1], headers=headers)
        except BufferError as error:
            self._raise_if_broken(error)
            raise BufferFull(
                f"Producer {self._client_id!r}: the send buffer is full"
                f" ({len(client)} records wait for acknowledgement)",
                hint="slow down, or raise buffer_records and buffer_bytes",
            ) from error
        except KafkaException as error:
            self._raise_if_broken(error)
            reason = translate.of(error)
            what = f"record of {_size(key, value, headers)} bytes for topic {topic!r}"
            if reason.code() == codes.LARGE:
                what += f" (at most {self._record_bytes_max})"
            elif reason.code() == codes.UNKNOWN_PARTITION:
                what += f" partition {to}"
            raise translate.publish_error(reason, what, self._causes) from error

    def poll(self, timeout: float = 0.0) -> int:
        """Deliver acknowledgements; wait at most `timeout` seconds for the first.

        Raises:
            ProducerBroken, WriterFenced: a fatal error was met.
        """
        client = self._use()
        try:
            events: int = client.poll(timeout)
        except KafkaException as error:
            raise self._noted(error, "poll") from error
        if self._causes.fatal is not None:
            self._raise_if_broken()
        return events

    def flush(self, timeout: float) -> int:
        """Wait at most `timeout` seconds until all is acknowledged; returns how much is left."""
        client = self._use()
        try:
            left: int = client.flush(timeout)
        except KafkaException as error:
            raise self._noted(error, "flush") from error
        if self._causes.fatal is not None:
            self._raise_if_broken()
        return left

    def fence(self, timeout: float) -> None:
        """Stop every older producer of this transactional id; once, before `begin`.

        Their open transaction is aborted. Their next call raises WriterFenced.

        Raises:
            BrokerUnavailable: not in time; call again.
        """
        self._transact("init_transactions", timeout)

    def begin(self) -> None:
        """Begin a transaction; local, no network."""
        self._transact("begin_transaction")

    def commit(self, timeout: float) -> None:
        """Flush and commit. Takes 4-40 ms.

        Raises:
            WriterFenced: a newer producer has this transactional id; nothing was committed.
            BrokerUnavailable: not in time; the outcome is unknown, calling again is safe.
            StreamError: the transaction failed and was aborted.
        """
        self._transact("commit_transaction", timeout)

    def abort(self, timeout: float) -> None:
        """Abort the open transaction."""
        self._transact("abort_transaction", timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Flush for at most `timeout` seconds, fail what is left, free the client.

        What was left gets its `on_ack` with an error. Harmless when closed, or in a forked child.
        """
        client = self._release()
        if client is None:
            return
        try:
            if client.flush(max(0.0, timeout)):
                client.purge()
                client.flush(_CLOSE_GRACE_S)
        except KafkaException as error:
            log.debug("producer %s: close: %s", self._client_id, error)
        last = [client]
        del client
        self._free(last)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _look(self, topic: str) -> bool:
        """Have the client learn of new partitions; False when it was asked just now."""
        now = time.monotonic()
        if now < self._look_again:
            return False
        self._look_again = now + _LOOK_S
        try:
            self._use().list_topics(topic, timeout=_LOOK_S)
        except KafkaException as error:
            what = f"partitions of topic {topic!r} at {self._bootstrap}"
            raise translate.stream_error(translate.of(error), what, self._causes) from error
        return True

    def _transact(self, call: str, *arguments: float) -> None:
        client = self._use()
        what = f"{call.replace('_', ' ')} of {self._client_id!r}"
        try:
            getattr(client, call)(*arguments)
        except KafkaException as error:
            reason = translate.of(error)
            self._serve_callbacks()
            failure = self._noted(error, what)
            if reason.txn_requires_abort() and not reason.fatal():
                self._abort_quietly(*arguments)
            raise failure from error

    def _abort_quietly(self, timeout: float = 5.0) -> None:
        try:
            self._use().abort_transaction(timeout)
        except KafkaException as error:
            log.debug("producer %s: abort: %s", self._client_id, error)

    def _serve_callbacks(self) -> None:
        """Let the client tell causes it has not told yet."""
        try:
            self._use().poll(0)
        except KafkaException as error:  # it raises what is fatal
            self._noted(error, "poll")

    def _noted(self, error: KafkaException, what: str) -> ZkcoordError:
        """What to raise for `error`; a fatal one is remembered and answers every later call."""
        reason = translate.of(error)
        if reason.fatal() and self._causes.fatal is None:
            self._causes.fatal = reason
        if self._causes.fatal is not None:
            what = f"Producer {self._client_id!r}: {what}"
            return translate.publish_error(self._causes.fatal, what, self._causes)
        return translate.stream_error(reason, what, self._causes)

    def _raise_if_broken(self, cause: BaseException | None = None) -> None:
        fatal = self._causes.fatal
        if fatal is not None:
            raise translate.publish_error(fatal, f"Producer {self._client_id!r}") from cause

    def _wrap(self, on_ack: OnAck) -> Delivered:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                on_ack(message.offset(), None)
            else:
                on_ack(None, self._failure(error, message))

        return delivered

    def _note_unheard(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._unheard += 1
            self._unheard_error = self._failure(error, message)

    def _failure(self, error: KafkaError, message: Message) -> StreamError:
        what = f"record for topic {message.topic()!r}"
        if message.partition() is not None:
            what += f" partition {message.partition()}"
        # After a fatal error the records behind it say only "purged".
        return translate.publish_error(self._causes.fatal or error, what, self._causes)


def _size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    size = len(key or b"") + len(value or b"")
    return size + sum(len(name) + len(content or b"") for name, content in headers or ())
