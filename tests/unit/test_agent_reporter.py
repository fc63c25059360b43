"""The reporter without a broker: a producer that acknowledges, refuses or breaks on request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from zkcoord.core.records import (
    DidFail,
    DidReceive,
    DidReturn,
    DidStart,
    DidSucceed,
    Report,
    Reports,
    Run,
)
from zkcoord.errors import (
    BrokerUnavailable,
    BufferFull,
    ProducerBroken,
    PublishTimeout,
    StreamError,
    TaskTooLarge,
)
from zkcoord.queue import reporter as reporting
from zkcoord.queue.attempt import Attempt
from zkcoord.queue.handlers import Handler
from zkcoord.queue.reporter import RECORD_REPORTS, Reporter

Ack = Callable[[int | None, StreamError | None], None]


class Broker:
    """Hands out producers; what they send is answered as `answers` says, in order, else taken."""

    def __init__(self) -> None:
        self.records: list[Reports] = []
        self.answers: list[StreamError | None] = []
        self.refusals: list[StreamError] = []
        self.silent = False
        self.opened = 0

    def open(self) -> FakeProducer:
        self.opened += 1
        return FakeProducer(self)

    @property
    def reports(self) -> list[Report]:
        return [report for record in self.records for report in record.reports]


class FakeProducer:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.waiting: list[tuple[bytes, Ack]] = []
        self.partitions: set[int | None] = set()
        self.closed = False
        self.broken = False

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int | None = None,
        on_ack: Ack | None = None,
    ) -> None:
        if self.broker.refusals:
            refusal = self.broker.refusals.pop(0)
            self.broken = self.broken or isinstance(refusal, ProducerBroken)
            raise refusal
        assert topic == "reports"
        assert value is not None
        assert on_ack is not None
        self.partitions.add(partition)
        self.waiting.append((value, on_ack))

    def poll(self, timeout: float = 0.0) -> int:
        if self.broken:
            raise ProducerBroken("fatal")
        if self.broker.silent:
            return 0
        waiting, self.waiting = self.waiting, []
        for value, on_ack in waiting:
            error = self.broker.answers.pop(0) if self.broker.answers else None
            if error is None:
                self.broker.records.append(msgspec.msgpack.decode(value, type=Reports))
                on_ack(0, None)
            else:
                on_ack(None, error)
        return len(waiting)

    def close(self, timeout: float = 5.0) -> None:
        self.closed = True


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
async def reporter(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Reporter:
    monkeypatch.setattr(reporting, "RETRY_S", (0.001, 0.002))
    made = Reporter(
        asyncio.get_running_loop(), broker.open, topic="reports", agent="one", report_s=0.001
    )
    made.begin(5, 70, 1)
    return made


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.001)


def succeeded(number: int, size: int = 4) -> DidSucceed:
    return DidSucceed(str(number), 1, b"x" * size, 1.0, 2.0)


def attempt(task_id: str) -> Attempt:
    order = Run(task_id, 1, 1, "t", 2, b"{}", [], None, 30.0, None, None)
    return Attempt(order, Handler("t", lambda: None))


async def test_reports_of_a_moment_go_in_one_record(reporter: Reporter, broker: Broker) -> None:
    reporter.heard(9)
    for number in range(3):
        reporter.add(succeeded(number))
    assert reporter.unacknowledged == 3
    assert await reporter.drain(5)
    [record] = broker.records
    assert (record.partition, record.incarnation, record.agent, record.term) == (5, 70, "one", 9)
    assert record.reports == [succeeded(0), succeeded(1), succeeded(2)]
    assert reporter.unacknowledged == 0


async def test_news_tell_only_what_still_goes_on(reporter: Reporter, broker: Broker) -> None:
    waits, runs, over = attempt("waits"), attempt("runs"), attempt("over")
    for each in (waits, runs, over):
        reporter.note(each)
    runs.started = 3.5
    over.ended = True
    await until(lambda: broker.records)
    assert broker.reports == [DidReceive("waits", 1), DidStart("runs", 1, 3.5)]
    assert waits.announced
    assert runs.announced
    assert not over.announced


async def test_records_are_bounded_in_count_and_bytes(reporter: Reporter, broker: Broker) -> None:
    for number in range(RECORD_REPORTS + 5):
        reporter.add(succeeded(number))
    assert await reporter.drain(5)
    assert all(len(record.reports) <= RECORD_REPORTS + 1 for record in broker.records)
    assert len(broker.reports) == RECORD_REPORTS + 5
    broker.records.clear()
    for number in range(4):
        reporter.add(succeeded(number, size=300_000))
    assert reporter.unacknowledged_bytes > 1_200_000
    assert await reporter.drain(5)
    assert [len(record.reports) for record in broker.records] == [2, 2]
    assert reporter.unacknowledged_bytes == 0


async def test_what_was_not_delivered_is_sent_again(reporter: Reporter, broker: Broker) -> None:
    broker.answers = [PublishTimeout("slow"), PublishTimeout("slow"), None]
    reporter.add(succeeded(1))
    assert await reporter.drain(5)
    assert broker.reports == [succeeded(1)]
    assert reporter.resent == 2


async def test_older_reports_are_sent_again_before_younger_ones(
    reporter: Reporter, broker: Broker
) -> None:
    broker.silent = True
    for number in range(3):
        if number == 2:
            broker.refusals = [BufferFull("full")]
        reporter.add(succeeded(number))
        reporter.flush()
    broker.answers = [PublishTimeout("slow")]
    broker.silent = False
    assert await reporter.drain(5)
    assert broker.reports == [succeeded(1), succeeded(0), succeeded(2)]


async def test_a_full_buffer_is_waited_for(reporter: Reporter, broker: Broker) -> None:
    broker.refusals = [BufferFull("full"), BrokerUnavailable("away")]
    reporter.add(succeeded(1))
    reporter.add(DidReturn("2", 1, "drained"))
    assert await reporter.drain(5)
    assert broker.reports == [succeeded(1), DidReturn("2", 1, "drained")]


async def test_a_broken_producer_is_replaced(reporter: Reporter, broker: Broker) -> None:
    first = reporter._producer
    assert isinstance(first, FakeProducer)
    broker.silent = True
    reporter.add(succeeded(1))
    reporter.flush()
    broker.refusals = [ProducerBroken("fatal")]
    reporter.add(succeeded(2))
    reporter.flush()
    broker.silent = False
    assert await reporter.drain(5)
    # The fate of the first record is unknown: it may be there twice, but it must be there.
    assert {report.id for report in broker.reports} == {"1", "2"}  # type: ignore[union-attr]
    assert broker.opened == 2
    await until(lambda: first.closed)


async def test_a_report_that_fits_nowhere_stops_nothing(
    reporter: Reporter, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.refusals = [TaskTooLarge("too large")]
    reporter.add(succeeded(1))
    reporter.flush()
    reporter.add(succeeded(2))
    assert await reporter.drain(5)
    assert broker.reports == [succeeded(2)]
    assert "too large" in caplog.text


async def test_an_ended_incarnation_is_silent(reporter: Reporter, broker: Broker) -> None:
    broker.silent = True
    reporter.add(succeeded(1))
    reporter.flush()
    reporter.add(succeeded(2))
    reporter.note(attempt("a"))
    reporter.end()
    assert reporter.unacknowledged == 0
    reporter.add(succeeded(3))
    broker.answers = [PublishTimeout("slow")]
    broker.silent = False
    reporter.begin(6, 80, 0)
    reporter.add(DidFail("4", 1, "error", "x", None, 1.0, 2.0))
    assert await reporter.drain(5)
    assert broker.reports == [DidFail("4", 1, "error", "x", None, 1.0, 2.0)]
    assert broker.records[0].incarnation == 80
    assert reporter.resent == 0


async def test_drain_gives_up_in_time(reporter: Reporter, broker: Broker) -> None:
    broker.silent = True
    reporter.add(succeeded(1))
    assert not await reporter.drain(0.02)
    reporter.end()
