"""What one scheduler process needs to serve one queue, in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zkcoord.config import KafkaConfig, SchedulerConfig
from zkcoord.kafka import INTERNAL_RECORD_BYTES_MAX, Admin, CompactedWriter, LogAppender, Producer
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
    """Producers made while standing by: a new one needs half a second until it can send.

    What :meth:`appender` and :meth:`output_producer` return belongs to the caller.
    """

    def __init__(self, duty: Duty) -> None:
        self._duty = duty
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

    def close(self) -> None:
        """Free what nobody took."""
        for client in (self._appender, self._producer):
            if client is not None:
                client.close(0.0)
