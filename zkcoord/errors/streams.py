"""Errors of Kafka and of a queue's topics."""

from __future__ import annotations

from zkcoord.errors.base import ZkcoordError


class StreamError(ZkcoordError):
    """Something about Kafka or a queue's topics."""


class BrokerUnavailable(StreamError):
    """No broker answered in time."""

    retriable = True


class PublishFailed(StreamError):
    """The broker refused a record."""


class PublishTimeout(PublishFailed, TimeoutError):
    """No acknowledgement in time: the record may or may not have been written."""

    retriable = True


class TaskTooLarge(PublishFailed, ValueError):
    """The record is larger than the topic takes."""


class ProducerBroken(PublishFailed):
    """The producer hit a fatal error and can send nothing more: close it and open a new one.

    What it had not acknowledged may or may not have been written.
    """


class BufferFull(StreamError):
    """The local send buffer is full: back-pressure, not failure."""

    retriable = True


class TopicMismatch(StreamError):
    """A topic is missing, or configured differently from what its readers rely on."""


class RecordsTrimmed(StreamError):
    """Records were deleted before they were read: an incident, never skipped in silence."""


class StreamDenied(StreamError, PermissionError):
    """Kafka refused: an ACL or missing authentication."""


class DecodeError(StreamError, ValueError):
    """Bytes that are not what the topic holds."""


class StreamClosed(StreamError, RuntimeError):
    """A producer, reader or admin was used after its close, or in a forked child."""


class StaleTerm(StreamError):
    """The election's term is not above the highest in the log.

    ZooKeeper was wiped or restored from a backup, so its transaction ids ran backwards.
    """


class Deposed(StreamError):
    """A higher term stands in the log: this leader's writes are void and it must stop."""


class WriterFenced(Deposed):
    """A newer writer took over the transactional id; what was not committed is discarded."""
