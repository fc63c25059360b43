"""Lanes of outputs: order, re-sending, settlement. The producer is scripted."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from zkcoord.errors import BufferFull, ProducerBroken, PublishTimeout, TaskTooLarge
from zkcoord.queue import outputs
from zkcoord.queue.outputs import Outbox


class ScriptedProducer:
    """Takes records; the test says which are acknowledged and which fail."""

    def __init__(self) -> None:
        self.wire: list[tuple[str, int, bytes]] = []
        self.pending: deque[tuple[tuple[str, int, bytes], Any]] = deque()
        self.events: deque[tuple[Any, Any]] = deque()
        self.broken: ProducerBroken | None = None
        self.room = 1000
        self.closed = False

    def send(
        self,
        topic: str,
        value: bytes,
        *,
        partition: int,
        on_ack: Any,
        key: Any = None,
        headers: Any = None,
    ) -> None:
        if self.broken is not None:
            raise self.broken
        if len(self.pending) >= self.room:
            raise BufferFull("full")
        if value == b"huge":
            raise TaskTooLarge("huge")
        record = (topic, partition, value)
        self.wire.append(record)
        self.pending.append((record, on_ack))

    def ack(self, count: int = 1) -> None:
        for _ in range(count):
            self.events.append((self.pending.popleft()[1], None))

    def fail(self, error: Exception | None = None) -> None:
        self.events.append((self.pending.popleft()[1], error or PublishTimeout("no answer")))

    def poll(self, timeout: float = 0.0) -> int:
        if self.broken is not None:
            raise self.broken
        heard = 0
        while self.events:
            on_ack, error = self.events.popleft()
            on_ack(None if error else 1, error)
            heard += 1
        return heard

    def close(self, timeout: float = 5.0) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "RESEND_PAUSE_S", 0.0)


@pytest.fixture
def producers() -> list[ScriptedProducer]:
    return []


@pytest.fixture
def outbox(producers: list[ScriptedProducer]) -> Outbox:
    def connect() -> Any:
        producers.append(ScriptedProducer())
        return producers[-1]

    return Outbox(connect, records_max=10)


def sent(producer: ScriptedProducer, partition: int = 0) -> list[bytes]:
    return [value for _, p, value in producer.wire if p == partition]


def test_a_batch_is_settled_when_its_last_record_is_acknowledged(
    outbox: Outbox, producers: list[ScriptedProducer]
) -> None:
    outbox.send("inbox", 0, b"a", offset=7)
    outbox.send("inbox", 1, b"b", offset=7)
    outbox.send("inbox", 1, b"c", offset=8)
    producers[0].ack(1)
    assert outbox.serve() == []
    producers[0].ack(1)
    assert outbox.serve() == [7]
    producers[0].ack(1)
    assert outbox.serve() == [8]
    assert outbox.unacknowledged == 0


def test_a_held_batch_is_not_settled_before_all_of_it_was_handed_in(
    outbox: Outbox, producers: list[ScriptedProducer]
) -> None:
    outbox.hold(7)
    outbox.send("inbox", 0, b"a", offset=7)
    producers[0].ack()
    assert outbox.serve() == []
    outbox.settle_when_sent(7)
    assert outbox.serve() == [7]


def test_what_failed_is_sent_again_with_all_that_follows_it_and_nothing_else(
    outbox: Outbox, producers: list[ScriptedProducer]
) -> None:
    for value in (b"a", b"b", b"c"):
        outbox.send("inbox", 0, value, offset=1)
    outbox.send("inbox", 1, b"other", offset=1)
    (producer,) = producers
    producer.ack()
    producer.fail()
    assert outbox.serve() == []
    assert sent(producer) == [b"a", b"b", b"c"], (
        "c is in flight: nothing is sent before it is known"
    )
    producer.ack(2)
    outbox.serve()
    assert sent(producer) == [b"a", b"b", b"c", b"b", b"c"]
    assert sent(producer, 1) == [b"other"]
    producer.ack(1)
    assert outbox.serve() == []
    producer.ack(1)
    assert outbox.serve() == [1]


def test_records_for_a_broken_lane_wait_their_turn(
    outbox: Outbox, producers: list[ScriptedProducer]
) -> None:
    outbox.send("inbox", 0, b"a", offset=1)
    outbox.send("inbox", 0, b"b", offset=1)
    (producer,) = producers
    producer.fail()
    outbox.serve()
    outbox.send("inbox", 0, b"c", offset=2)
    assert sent(producer) == [b"a", b"b"]
    producer.fail()
    outbox.serve()
    assert sent(producer) == [b"a", b"b", b"a", b"b", b"c"]
    producer.ack(3)
    assert outbox.serve() == [1, 2]


def test_a_full_buffer_delays_and_keeps_the_order(
    outbox: Outbox, producers: list[ScriptedProducer]
) -> None:
    (producer,) = producers
    producer.room = 1
    for value in (b"a", b"b", b"c"):
        outbox.send("inbox", 0, value, offset=1)
    for _ in range(3):
        producer.ack()
        settled = outbox.serve()
    assert sent(producer) == [b"a", b"b", b"c"]
    assert settled in ([], [1])
    assert outbox.serve() + settled == [1]


def test_nothing_overtakes_what_waits_for_room(
    outbox: Outbox, producers: list[ScriptedProducer]
) -> None:
    (producer,) = producers
    producer.room = 1
    outbox.send("inbox", 0, b"a", offset=1)
    outbox.send("inbox", 0, b"b", offset=1)
    producer.ack()  # there is room now
    outbox.send("inbox", 0, b"c", offset=1)
    outbox.serve()
    producer.ack()
    outbox.serve()
    assert sent(producer) == [b"a", b"b", b"c"]


def test_what_waits_for_room_does_not_overtake_what_failed(
    outbox: Outbox, producers: list[ScriptedProducer]
) -> None:
    (producer,) = producers
    producer.room = 1
    outbox.send("inbox", 0, b"a", offset=1)
    outbox.send("inbox", 0, b"b", offset=1)
    producer.fail()
    outbox.serve()
    producer.ack()
    outbox.serve()
    assert sent(producer) == [b"a", b"a", b"b"]


def test_a_broken_producer_is_replaced_and_everything_is_sent_again(
    outbox: Outbox, producers: list[ScriptedProducer]
) -> None:
    outbox.send("inbox", 0, b"a", offset=1)
    outbox.send("inbox", 1, b"b", offset=1)
    first = producers[0]
    first.broken = ProducerBroken("fatal")
    outbox.send("inbox", 1, b"c", offset=2)
    outbox.serve()
    second = producers[1]
    assert first.closed
    assert sent(second, 0) == [b"a"]
    assert sent(second, 1) == [b"b", b"c"]
    first.broken = None
    first.ack(2)  # late news from the old one count for nothing
    first.poll()
    assert outbox.unacknowledged == 3
    second.ack()
    second.fail()  # b, while c is in flight: the late news did not count for c
    assert outbox.serve() == []
    assert sent(second, 1) == [b"b", b"c"]
    second.ack()
    outbox.serve()
    second.ack(2)
    assert outbox.serve() == [1, 2]


def test_a_record_that_can_never_be_sent_does_not_stop_the_queue(
    outbox: Outbox, producers: list[ScriptedProducer], caplog: pytest.LogCaptureFixture
) -> None:
    outbox.send("results", 0, b"huge", offset=1)
    assert outbox.serve() == [1]
    assert "dropped" in caplog.text


def test_it_says_when_it_is_full(outbox: Outbox, producers: list[ScriptedProducer]) -> None:
    for number in range(10):
        assert not outbox.is_full
        outbox.send("inbox", 0, b"x", offset=number)
    assert outbox.is_full
    producers[0].ack()
    outbox.serve()
    assert not outbox.is_full
