"""Sending records."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as Client

from zkcoord.config import KafkaConfig
from zkcoord.errors import BufferFull, ProducerBroken, StreamError
from zkcoord.kafka import translate
from zkcoord.kafka.handle import Handle, log
from zkcoord.kafka.options import producer_properties
from zkcoord.kafka.record import RECORD_BYTES_MAX, Headers, OnAck

_CLOSE_GRACE_S = 1.0


class Producer(Handle):
    """Sends records: in order per partition, ``acks=all``, no duplicates by its own retries.

    Not for several threads at once, except that one may `poll` while another sends.
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
        self._unheard = 0
        self._unheard_error: StreamError | None = None
        self._wrapped_for: OnAck | None = None
        self._wrapped: Callable[[KafkaError | None, Message], None] = self._note_unheard
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
        """Queue one record for sending; never blocks.

        `on_ack(offset, None)` or `on_ack(None, error)` is called once, from poll, flush or close.
        Give the same `on_ack` to the records of a batch: a new one costs an allocation. The error
        is :class:`PublishTimeout` when the record may have been written all the same.

        Raises:
            BufferFull: poll, wait and try again.
            TaskTooLarge: the record exceeds `record_bytes_max`.
            ProducerBroken, WriterFenced: this producer is finished; open a new one.
            StreamClosed: after close, or in a forked child.
        """
        client = self._use()
        if on_ack is not self._wrapped_for:
            self._wrapped_for = on_ack
            self._wrapped = self._note_unheard if on_ack is None else self._wrap(on_ack)
        try:
            client.produce(
                topic,
                value,
                key,
                -1 if partition is None else partition,
                self._wrapped,
                headers=headers,
            )
        except BufferError as error:
            self._raise_if_broken()
            raise BufferFull(
                f"Producer {self._client_id!r}: the send buffer is full"
                f" ({len(client)} records wait for acknowledgement)",
                hint="slow down, or raise buffer_records and buffer_bytes",
            ) from error
        except KafkaException as error:
            reason = translate.of(error)
            what = f"record of {_size(key, value, headers)} bytes for topic {topic!r}"
            if reason.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                what += f" (at most {self._record_bytes_max})"
            raise translate.publish_error(reason, what, self._causes) from error

    def poll(self, timeout: float = 0.0) -> int:
        """Deliver acknowledgements; wait at most `timeout` seconds for the first.

        Raises:
            ProducerBroken, WriterFenced: a fatal error was met.
        """
        events: int = self._use().poll(timeout)
        if self._causes.fatal is not None:
            self._raise_if_broken()
        return events

    def flush(self, timeout: float) -> int:
        """Wait at most `timeout` seconds until all is acknowledged; returns how much is left."""
        left: int = self._use().flush(timeout)
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _transact(self, call: str, *arguments: float) -> None:
        client = self._use()
        what = f"{call.replace('_', ' ')} of {self._client_id!r}"
        try:
            getattr(client, call)(*arguments)
        except KafkaException as error:
            reason = translate.of(error)
            self._serve_callbacks()
            failure = translate.stream_error(reason, what, self._causes)
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
        self._use().poll(0)

    def _raise_if_broken(self) -> None:
        fatal = self._causes.fatal
        if fatal is not None:
            raise translate.publish_error(fatal, f"Producer {self._client_id!r}")

    def _wrap(self, on_ack: OnAck) -> Callable[[KafkaError | None, Message], None]:
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
        what = f"record for topic {message.topic()!r} partition {message.partition()}"
        failure = translate.publish_error(error, what, self._causes)
        if self._causes.fatal is not None and not isinstance(failure, (ProducerBroken,)):
            failure = translate.publish_error(self._causes.fatal, what, self._causes)
        return failure


def _size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    size = len(key or b"") + len(value or b"")
    return size + sum(len(name) + len(content or b"") for name, content in headers or ())
