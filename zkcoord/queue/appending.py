"""Append a leader's batches to the log, again for as long as their outcome is unknown.

The same bytes are appended under the same ``(term, n)``: every reader of the log counts the first
that lands and takes the others for void, so appending again is always safe (DESIGN D1).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from zkcoord.errors import BufferFull, ProducerBroken, StreamError
from zkcoord.kafka import LogAppender

log = logging.getLogger("zkcoord.queue")

AGAIN_S = 0.1
AGAIN_S_MAX = 5.0


class Appending:
    """Appends one record at a time. Not thread-safe: one leader's loop owns it."""

    def __init__(self, connect: Callable[[], LogAppender]) -> None:
        self._connect = connect
        self._appender = connect()
        self._value: bytes | None = None
        self._failed_at: float | None = None
        self._pause = AGAIN_S
        self.repeats = 0

    def append(self, value: bytes) -> None:
        """Append `value`; call :meth:`serve` until it was read back, then :meth:`landed`."""
        self._value = value
        self._pause = AGAIN_S
        self._send()

    def landed(self) -> None:
        """The record was read back: nothing is in flight any more."""
        self._value = None
        self._failed_at = None

    def serve(self) -> None:
        """Hear acknowledgements; append again what failed, after a growing pause."""
        try:
            self._appender.poll(0.0)
        except ProducerBroken as error:
            log.warning("a new producer of the log is made, the old one ended: %s", error)
            self._appender.close(0.0)
            self._appender = self._connect()
            self._failed_at = self._failed_at or time.monotonic()
        if self._failed_at is None or time.monotonic() - self._failed_at < self._pause:
            return
        self._failed_at = None
        self._pause = min(2 * self._pause, AGAIN_S_MAX)
        self.repeats += 1
        self._send()

    def close(self, timeout: float = 0.5) -> None:
        """Stop; an append under way may still land."""
        self._appender.close(timeout)

    def _send(self) -> None:
        value = self._value
        if value is None:
            return
        try:
            self._appender.append(value, self._heard)
        except (BufferFull, ProducerBroken):
            self._failed_at = time.monotonic()

    def _heard(self, _offset: int | None, error: StreamError | None) -> None:
        if error is None or self._value is None:
            return
        log.warning("append to the log failed, it is made again: %s", error)
        self._failed_at = time.monotonic()
