"""Sends an agent's reports, many to a record, and does not forget one before it is acknowledged.

A record whose delivery failed is sent again, with growing pauses, until the broker has it or the
incarnation ends; the leader drops what it knows already. What waits is bounded by the executor,
which takes no new orders while too many reports are without acknowledgement.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from zkcoord.core.records import (
    VERSION,
    DidFail,
    DidReceive,
    DidStart,
    DidSucceed,
    Report,
    Reports,
)
from zkcoord.errors import BufferFull, ProducerBroken, StreamError, TaskTooLarge
from zkcoord.queue.attempt import Attempt

_log = logging.getLogger(__name__)

RECORD_REPORTS = 2000
"""Most reports in one record."""

RECORD_BYTES = 500_000
"""A record is closed when its results and errors reach this many bytes."""

BUSY_REPORTS = 8
BUSY_FACTOR = 3
"""After a flush of `BUSY_REPORTS` reports the next waits `BUSY_FACTOR` times as long."""

POLL_S = 0.005
RETRY_S = (0.1, 2.0)  # first and longest pause before sending again

_encode = msgspec.msgpack.Encoder().encode


class _Record(NamedTuple):
    number: int
    value: bytes
    size: int  # how many reports are in it
    weight: int  # and their bytes, about


class Sending(Protocol):
    """What the reporter asks of a producer; see :class:`zkcoord.kafka.Producer`."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int | None = None,
        on_ack: Callable[[int | None, StreamError | None], None] | None = None,
    ) -> None:
        """Queue one record."""

    def poll(self, timeout: float = 0.0) -> int:
        """Deliver acknowledgements."""

    def close(self, timeout: float = 5.0) -> None:
        """Free the client."""


class Reporter:
    """The reports of one agent. All methods are for the thread of `loop`.

    Args:
        loop: the agent's event loop.
        open_producer: makes a producer; called again when one broke.
        topic: the reports topic.
        agent: the agent's name, told in every record.
        report_s: the longest a report waits for others, seconds; not at all when the last
            flush is longer ago, and `BUSY_FACTOR` times as long after a flush of many reports.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        open_producer: Callable[[], Sending],
        *,
        topic: str,
        agent: str,
        report_s: float,
    ) -> None:
        self._loop = loop
        self._open = open_producer
        self._producer = open_producer()
        self._topic = topic
        self._agent = agent
        self._report_s = self._wait_s = report_s
        self._flushed = 0.0  # when, by the loop's clock
        self._news: deque[tuple[float, Attempt]] = deque()  # noted when, by the loop's clock
        self._reports: list[Report] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._polling: asyncio.TimerHandle | None = None
        self._retrying: asyncio.TimerHandle | None = None
        self._pause = RETRY_S[0]
        self._sent: dict[int, _Record] = {}
        self._again: deque[_Record] = deque()  # to be sent, in order
        self._number = 0
        self._unacknowledged = 0
        self._weight = 0
        self._broken = False
        self.resent = 0  # records that were not delivered and had to be sent again
        self._open_for: tuple[int, int, int] | None = None  # inbox, incarnation, report partition
        self._term = -1

    @property
    def unacknowledged(self) -> int:
        """Reports of this incarnation that the broker has not confirmed."""
        return self._unacknowledged

    @property
    def unacknowledged_bytes(self) -> int:
        """About how many bytes these are."""
        return self._weight

    def begin(self, inbox: int, incarnation: int, partition: int) -> None:
        """Report for this incarnation, to this partition of the reports topic.

        One agent keeps to one partition, so that its reports stay in order.
        """
        self.end()
        self._open_for = (inbox, incarnation, partition)
        self._term = -1

    def end(self) -> None:
        """The incarnation is over: forget what it had to report; nobody would act on it."""
        self._open_for = None
        self._news.clear()
        self._reports.clear()
        self._again.clear()
        self._sent.clear()
        self._unacknowledged = self._weight = 0
        for timer in (self._flushing, self._polling, self._retrying):
            if timer is not None:
                timer.cancel()
        self._flushing = self._polling = self._retrying = None

    def heard(self, term: int) -> None:
        """The highest term that the inbox has shown."""
        self._term = term

    def note(self, attempt: Attempt) -> None:
        """It arrived or started: to be told unless it ends before the next report."""
        self._news.append((self._loop.time(), attempt))
        if self._flushing is None:
            self._flushing = self._loop.call_later(self._wait_s, self.flush)

    def add(self, report: Report) -> None:
        """Report this soon."""
        if self._open_for is None:
            return
        self._put(report)
        if len(self._reports) >= RECORD_REPORTS:
            self.flush()
        else:
            self._soon()

    def flush(self) -> None:
        """Send all that there is to tell."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self._open_for is None:
            return
        self._tell_news()
        reports, self._reports = self._reports, []
        # Under load fewer, larger records: a record costs broker and leader more than a report.
        self._flushed = self._loop.time()
        self._wait_s = self._report_s * (BUSY_FACTOR if len(reports) >= BUSY_REPORTS else 1)
        size, begin = 0, 0
        for end, report in enumerate(reports):
            size += _size(report)
            if size >= RECORD_BYTES or end - begin >= RECORD_REPORTS:
                self._send(reports[begin : end + 1])
                size, begin = 0, end + 1
        if begin < len(reports):
            self._send(reports[begin:])
        if self._news:
            self._flushing = self._loop.call_at(self._news[0][0] + self._wait_s, self.flush)
        self._poll()

    async def drain(self, within: float) -> bool:
        """Flush, and wait until all is acknowledged; whether it was within so many seconds."""
        until = self._loop.time() + within
        self.flush()
        while self._unacknowledged and self._loop.time() < until:  # noqa: ASYNC110 - also a clock
            await asyncio.sleep(min(POLL_S, max(0.0, until - self._loop.time())))
        return self._unacknowledged == 0

    async def close(self, within: float) -> None:
        """Free the producer; what is not acknowledged within so many seconds is forgotten."""
        self.end()
        await asyncio.to_thread(self._producer.close, within)

    def _soon(self) -> None:
        """Flush: at once after a quiet while, else when the wait since the last flush is over."""
        due = self._flushed + self._wait_s
        if self._flushing is not None:
            if self._flushing.when() <= due:
                return
            self._flushing.cancel()
        self._flushing = self._loop.call_at(due, self.flush)

    def _tell_news(self) -> None:
        """Tell what is older than the wait: what ends sooner needs no announcement."""
        news = self._news
        ripe = self._loop.time() - self._wait_s
        while news and news[0][0] <= ripe:
            _, attempt = news.popleft()
            if attempt.ended or attempt.answered:
                continue
            order = attempt.order
            attempt.announced = True
            told: Report
            if attempt.started:
                told = DidStart(order.id, order.attempt, attempt.started)
            else:
                told = DidReceive(order.id, order.attempt)
            self._put(told)

    def _put(self, report: Report) -> None:
        self._reports.append(report)
        self._unacknowledged += 1
        self._weight += _size(report)

    def _send(self, reports: list[Report]) -> None:
        assert self._open_for is not None
        inbox, incarnation, _ = self._open_for
        record = Reports(VERSION, inbox, incarnation, self._agent, self._term, reports)
        weight = sum(map(_size, reports))
        self._again.append(_Record(self._number, _encode(record), len(reports), weight))
        self._number += 1
        if self._retrying is None:
            self._send_waiting()

    def _send_waiting(self) -> None:
        """Hand to the producer what waits, oldest first."""
        self._retrying = None
        if self._open_for is None:
            return
        if self._broken and not self._reopen():
            self._retry_later()
            return
        partition = self._open_for[2]
        while self._again:
            record = self._again[0]
            acked = partial(self._acked, record.number)
            self._sent[record.number] = record
            try:
                self._producer.send(self._topic, record.value, partition=partition, on_ack=acked)
            except StreamError as error:
                del self._sent[record.number]
                if isinstance(error, TaskTooLarge):
                    self._again.popleft()
                    self._give_up(record, error)
                    continue
                self._broken = self._broken or isinstance(error, ProducerBroken)
                if not isinstance(error, BufferFull):
                    _log.warning("reports wait: %s", error)
                self._retry_later()
                break
            self._again.popleft()
        self._watch()

    def _acked(self, number: int, _: int | None, error: StreamError | None) -> None:
        """Called from poll, on the loop's thread."""
        record = self._sent.pop(number, None)
        if record is None:
            return  # of an incarnation that is over
        if error is None:
            self._settle(record)
            self._pause = RETRY_S[0]
        elif isinstance(error, TaskTooLarge):
            self._give_up(record, error)
        else:
            self._broken = self._broken or isinstance(error, ProducerBroken)
            _log.warning("%d reports were not delivered, to be sent again: %s", record.size, error)
            self.resent += 1
            self._put_back([record])
            self._retry_later()

    def _give_up(self, record: _Record, error: StreamError) -> None:
        """The broker will never take it: the leader finds out when it asks what is held."""
        self._settle(record)
        _log.error("%d reports are too large to send and are lost: %s", record.size, error)

    def _settle(self, record: _Record) -> None:
        self._unacknowledged -= record.size
        self._weight -= record.weight

    def _put_back(self, records: Iterable[_Record]) -> None:
        """Send these again, before younger ones."""
        self._again = deque(sorted([*records, *self._again]))

    def _retry_later(self) -> None:
        if self._retrying is None:
            self._retrying = self._loop.call_later(self._pause, self._send_waiting)
            self._pause = min(2 * self._pause, RETRY_S[1])

    def _reopen(self) -> bool:
        old = self._producer
        try:
            self._producer = self._open()
        except StreamError as error:
            _log.warning("no new producer for reports: %s", error)
            return False
        self._broken = False
        self._put_back(self._sent.values())  # the old one will not tell their outcome any more
        self._sent.clear()
        self._loop.run_in_executor(None, partial(old.close, 0.0))
        return True

    def _poll(self) -> None:
        self._polling = None
        try:
            self._producer.poll(0.0)
        except StreamError as error:
            self._broken = self._broken or isinstance(error, ProducerBroken)
            _log.warning("the producer of reports: %s", error)
            self._retry_later()
        self._watch()

    def _watch(self) -> None:
        """While something is in flight, look for its acknowledgement."""
        if self._sent and self._polling is None:
            self._polling = self._loop.call_later(POLL_S, self._poll)


def _size(report: Report) -> int:
    if isinstance(report, DidSucceed):
        return len(report.result) + 100
    return len(report.error) + 100 if isinstance(report, DidFail) else 100
