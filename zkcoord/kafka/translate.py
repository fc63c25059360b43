"""From the client's errors to zkcoord's, with the cause that the client mentions only in passing.

librdkafka answers a failed connection, a refused certificate and a wrong password alike: by a
timeout. What went wrong reaches only the error callback. :class:`Causes` remembers it, so that the
error which a caller finally gets can name it.

Source: Kafka protocol error codes, kafka.apache.org/protocol; librdkafka ``rdkafka.h``.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque

from confluent_kafka import KafkaError, KafkaException

from zkcoord.errors import (
    BrokerUnavailable,
    BufferFull,
    ConfigError,
    ProducerBroken,
    PublishFailed,
    PublishTimeout,
    RecordsTrimmed,
    StreamDenied,
    StreamError,
    TaskTooLarge,
    TopicMismatch,
    WriterFenced,
    ZkcoordError,
)
from zkcoord.kafka import codes

log = logging.getLogger("zkcoord.kafka")

_CAUSE_AGE_S = 60.0

_CONNECT = re.compile(r"Connect to (?:ipv[46]#)?(?P<at>\S+) failed: (?P<why>.+)")
_RESOLVE = re.compile(r"Failed to resolve '(?P<at>[^']+)': (?P<why>.+)")
_TIMES = re.compile(r"\s*\((?:after |\d+ identical)[^()]*(?:\(s\)[^()]*)?\)")
_INSTANCE = re.compile(r"^\[thrd:[^\]]*\]:\s*")
_BROKER = re.compile(r"^(?:(?:sasl_)?(?:plaintext|ssl)://)?(?P<at>[^\s/]+:\d+)/\S+: (?P<why>.+)")


class Causes:
    """The last few reasons that the client gave for not getting through."""

    __slots__ = ("_recent", "fatal")

    def __init__(self) -> None:
        self._recent: deque[tuple[float, int, str]] = deque(maxlen=4)
        self.fatal: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """The client's error callback."""
        if error.fatal():
            self.fatal = error
        code = error.code()
        # "all brokers down" only repeats what the errors before it said.
        if code == codes.ALL_DOWN and self._recent:
            return
        text = plain(error.str())
        log.debug("kafka client: %s", text)
        now = time.monotonic()
        kept = [entry for entry in self._recent if entry[2] != text]
        self._recent = deque([*kept, (now, code, text)], maxlen=4)

    def denied(self) -> bool:
        """Whether a server recently refused who we are."""
        return any(code == codes.NOT_AUTHENTICATED for _, code, _ in self._fresh())

    def text(self) -> str:
        """The fresh causes, latest first, or the empty string."""
        return "; ".join(text for _, _, text in reversed(self._fresh()))

    def _fresh(self) -> list[tuple[float, int, str]]:
        oldest = time.monotonic() - _CAUSE_AGE_S
        return [entry for entry in self._recent if entry[0] >= oldest]


def plain(text: str) -> str:
    """One cause as a person would say it: ``connection refused at 127.0.0.1:9092``."""
    text = _TIMES.sub("", _INSTANCE.sub("", text)).strip()
    found = _CONNECT.search(text) or _RESOLVE.search(text) or _BROKER.search(text)
    if found is None:
        return text
    why = found["why"].strip().rstrip(".")
    if why[1:2].islower():
        why = why[0].lower() + why[1:]
    return f"{why} at {found['at']}"


def _because(error: KafkaError, causes: Causes | None) -> str:
    said = plain(error.str())
    cause = causes.text() if causes is not None else ""
    return f"{said}; likely cause: {cause}" if cause and cause != said else said


def publish_error(error: KafkaError, what: str, causes: Causes | None = None) -> StreamError:
    """For a record that was not acknowledged. `what` names the record and its topic."""
    code = error.code()
    message = f"{what}: {_because(error, causes)}"
    if code in codes.TOO_LARGE:
        return TaskTooLarge(message, hint="send a reference to the data instead of the data")
    if code in codes.FENCED:
        return WriterFenced(message)
    if error.fatal() or code == codes.FATAL:
        return ProducerBroken(message, hint="close this producer and open a new one")
    if code in codes.DENIED:
        return StreamDenied(message, hint="the topic's ACL must allow WRITE")
    if code in codes.TOPIC:
        return TopicMismatch(message, hint="create the queue's topics first")
    if code in codes.TIMEOUT or code in codes.AWAY:
        return PublishTimeout(message, hint="the record may or may not have been written")
    if code == codes.QUEUE_FULL:
        return BufferFull(message)
    return PublishFailed(message)


def stream_error(error: KafkaError, what: str, causes: Causes | None = None) -> ZkcoordError:
    """For everything but records being sent. `what` names the call and what it was about."""
    code = error.code()
    message = f"{what}: {_because(error, causes)}"
    if code in codes.CONFIG:
        return ConfigError(message)
    if code in codes.FENCED:
        return WriterFenced(message)
    if code in codes.TRIMMED:
        return RecordsTrimmed(message)
    if code in codes.DENIED or (code in codes.AWAY and causes is not None and causes.denied()):
        return StreamDenied(message, hint="check the name, the secret and the ACLs")
    if code in codes.TOPIC:
        return TopicMismatch(message, hint="create the queue's topics first")
    if error.fatal() or code == codes.FATAL:
        return ProducerBroken(message, hint="close this producer and open a new one")
    if code in codes.AWAY or error.retriable():
        return BrokerUnavailable(message, hint="check the bootstrap address and the brokers")
    return StreamError(message)


def of(exception: KafkaException) -> KafkaError:
    """The KafkaError inside a KafkaException."""
    error = exception.args[0]
    if isinstance(error, KafkaError):
        return error
    return KafkaError(codes.FAIL, str(error))  # never seen; keeps the promise of types
