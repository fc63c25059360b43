"""What one scheduler process needs to serve one queue, in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zkcoord.config import KafkaConfig, SchedulerConfig
from zkcoord.kafka import (
    INTERNAL_RECORD_BYTES_MAX,
    Admin,
    CompactedWriter,
    LogAppender,
    LogReader,
    Producer,
)
from zkcoord.queue.administration import QueueDescription
from zkcoord.queue.topics import Topics
from zkcoord.zk import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """One queue to serve, and the means.

    Attributes:
        description: the queue, as its config znode has it.
        config: how this process behaves.
        kafka: how to reach Kafka.
        session: of this queue alone: its end ends the leadership of this queue.
        name: of this process, for readers of the log.
        stopping: whether the process was asked to stop.
    """

    description: QueueDescription
    config: SchedulerConfig
    kafka: KafkaConfig
    session: Session
    name: str
    stopping: Callable[[], bool]

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self.description.queue

    @property
    def topics(self) -> Topics:
        """The names of the queue's topics."""
        return self.description.topics

    def client_id(self, part: str) -> str:
        """What brokers call our client for `part`."""
        return f"zkcoord.scheduler.{self.queue}.{part}"

    def output_producer(self) -> Producer:
        """A producer for inboxes, results and dead letters."""
        return Producer(
            self.kafka,
            client_id=self.client_id("outputs"),
            record_bytes_max=INTERNAL_RECORD_BYTES_MAX,
        )

    def appender(self) -> LogAppender:
        """A producer for the log."""
        return LogAppender(self.kafka, self.topics.log, client_id=self.client_id("append"))

    def log_reader(self) -> LogReader:
        """A prompt reader of the log that knows the topic and reads from where it is sought."""
        reader = LogReader(
            self.kafka,
            self.topics.log,
            client_id=self.client_id("log"),
            offset=None,
            group=self.topics.group,
        )
        try:
            reader.connect()
        except BaseException:
            reader.close()
            raise
        return reader

    def checkpoint_writer(self) -> CompactedWriter:
        """The fenced writer of the checkpoint topic; opening it ends every older one."""
        return CompactedWriter(
            self.kafka,
            self.topics.checkpoint,
            client_id=self.client_id("checkpoint"),
            transactional_id=self.topics.transactional_id,
        )

    def admin(self) -> Admin:
        """For partition counts and trimming."""
        return Admin(self.kafka, client_id=self.client_id("admin"))


class Readiness:
    """Clients made while standing by: a new one needs up to half a second until it works.

    What its methods return belongs to the caller.

    Raises:
        TopicMismatch, BrokerUnavailable: the log cannot be reached.
    """

    def __init__(self, duty: Duty) -> None:
        self._duty = duty
        self._reader: LogReader | None = duty.log_reader()
        self._appender: LogAppender | None = duty.appender()
        self._producer: Producer | None = duty.output_producer()

    def appender(self) -> LogAppender:
        """The one that was made ready, once; then new ones."""
        ready, self._appender = self._appender, None
        return ready or self._duty.appender()

    def output_producer(self) -> Producer:
        """The one that was made ready, once; then new ones."""
        ready, self._producer = self._producer, None
        return ready or self._duty.output_producer()

    def log_reader(self) -> LogReader:
        """The one that was made ready, once; then new ones."""
        ready, self._reader = self._reader, None
        return ready or self._duty.log_reader()

    def close(self) -> None:
        """Free what nobody took."""
        for client in (self._appender, self._producer):
            if client is not None:
                client.close(0.0)
        if self._reader is not None:
            self._reader.close()
