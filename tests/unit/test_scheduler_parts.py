"""The leader's helpers, each alone: appending, checkpointing, trimming. Clients are scripted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from zkcoord.errors import BrokerUnavailable, ProducerBroken, PublishTimeout, WriterFenced
from zkcoord.queue import appending, checkpointing
from zkcoord.queue.appending import Appending
from zkcoord.queue.checkpointing import Checkpointing, Entry
from zkcoord.queue.trimming import History, Trimming


def wait_for(holds: Callable[[], Any], timeout: float = 5.0) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


# --- appending --------------------------------------------------------------------------------


class ScriptedAppender:
    def __init__(self) -> None:
        self.appended: list[bytes] = []
        self.acks: list[Any] = []
        self.broken: ProducerBroken | None = None
        self.failing = False
        self.closed = False

    def append(self, value: bytes, on_ack: Any) -> None:
        self.appended.append(value)
        self.acks.append(on_ack)

    def poll(self, timeout: float = 0.0) -> int:
        if self.broken:
            raise self.broken
        acks, self.acks = self.acks, []
        for on_ack in acks:
            on_ack(None if self.failing else 1, PublishTimeout("?") if self.failing else None)
        return len(acks)

    def close(self, timeout: float = 5.0) -> None:
        self.closed = True


@pytest.fixture
def appenders(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedAppender]:
    monkeypatch.setattr(appending, "AGAIN_S", 0.001)
    return []


@pytest.fixture
def log(appenders: list[ScriptedAppender]) -> Appending:
    def connect() -> Any:
        appenders.append(ScriptedAppender())
        return appenders[-1]

    return Appending(connect)


def test_an_append_of_unknown_outcome_is_made_again_with_the_same_bytes(
    log: Appending, appenders: list[ScriptedAppender]
) -> None:
    appenders[0].failing = True
    log.append(b"batch")
    log.serve()
    appenders[0].failing = False
    wait_for(lambda: log.serve() or log.repeats)
    assert appenders[0].appended == [b"batch", b"batch"]


def test_an_append_that_was_read_back_is_not_made_again(
    log: Appending, appenders: list[ScriptedAppender]
) -> None:
    appenders[0].failing = True
    log.append(b"batch")
    log.landed()  # it was in the log although the acknowledgement was lost
    for _ in range(5):
        log.serve()
        time.sleep(0.002)
    assert appenders[0].appended == [b"batch"]


def test_a_broken_appender_is_replaced_and_the_batch_appended_again(
    log: Appending, appenders: list[ScriptedAppender]
) -> None:
    log.append(b"batch")
    appenders[0].broken = ProducerBroken("fatal")
    wait_for(lambda: log.serve() or log.repeats)
    assert appenders[0].closed
    assert appenders[1].appended == [b"batch"]


# --- checkpointing ----------------------------------------------------------------------------


class ScriptedWriter:
    opens = 0

    def __init__(self, topic: Topic) -> None:
        self.topic = topic

    def open(self, timeout: float) -> None:
        self.topic.opened += 1
        self.topic.on_open()

    def write(self, entries: Sequence[Entry], timeout: float) -> None:
        if self.topic.errors:
            raise self.topic.errors.pop(0)
        self.topic.written.append(list(entries))

    def close(self, timeout: float = 5.0) -> None:
        self.topic.closed += 1


class Topic:
    """What the scripted writers did, and what they are to do."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.written: list[list[Entry]] = []
        self.errors: list[Exception] = []
        self.on_open: Callable[[], None] = lambda: None
        self.believed = True


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def checkpoint(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checkpointing]:
    monkeypatch.setattr(checkpointing, "RETRY_S", 0.001)
    writing = Checkpointing("q", lambda: ScriptedWriter(topic), lambda: topic.believed)  # type: ignore[arg-type,return-value]
    yield writing
    writing.close()


def test_entries_that_gather_are_written_together_the_last_of_a_key_counts(
    topic: Topic, checkpoint: Checkpointing
) -> None:
    checkpoint.offer(1, [(b"a", b"1"), (b"b", b"1")])
    checkpoint.offer(2, [(b"a", None)])
    checkpoint.start()
    settled: list[int] = []
    wait_for(lambda: settled.extend(checkpoint.settled()) or len(settled) == 2)
    assert settled == [1, 2]
    assert topic.written == [[(b"b", b"1"), (b"a", None)]]


def test_a_failed_transaction_is_written_again_by_a_new_writer(
    topic: Topic, checkpoint: Checkpointing
) -> None:
    topic.errors = [BrokerUnavailable("away")]
    checkpoint.offer(1, [(b"a", b"1")])
    checkpoint.start()
    wait_for(lambda: topic.written)
    assert topic.opened == 2
    wait_for(lambda: checkpoint.settled() == [1])


def test_a_lease_that_ended_before_opening_was_done_writes_nothing(
    topic: Topic, checkpoint: Checkpointing
) -> None:
    def lose() -> None:
        topic.believed = False

    topic.on_open = lose
    checkpoint.offer(1, [(b"a", b"1")])
    checkpoint.start()
    wait_for(lambda: topic.closed)
    assert topic.written == []
    assert checkpoint.settled() == []


def test_a_fenced_writer_whose_lease_is_over_never_opens_again(
    topic: Topic, checkpoint: Checkpointing
) -> None:
    reached = threading.Event()

    class Fence(WriterFenced):
        def __init__(self) -> None:
            topic.believed = False
            reached.set()
            super().__init__("a newer writer")

    checkpoint.start()
    wait_for(lambda: topic.opened)
    topic.errors = [Fence()]
    checkpoint.offer(1, [(b"a", b"1")])
    wait_for(lambda: topic.closed)
    assert reached.is_set()
    assert topic.opened == 1
    assert topic.written == []


def test_a_fenced_writer_whose_lease_holds_takes_the_topic_back(
    topic: Topic, checkpoint: Checkpointing
) -> None:
    topic.errors = [WriterFenced("a zombie opened it")]
    checkpoint.offer(1, [(b"a", b"1")])
    checkpoint.start()
    wait_for(lambda: topic.written)
    assert topic.opened == 2


# --- trimming ---------------------------------------------------------------------------------


class ScriptedAdmin:
    def __init__(self) -> None:
        self.trims: list[dict[tuple[str, int], int]] = []
        self.failing = False
        self.closed = False

    def trim(self, offsets: dict[tuple[str, int], int], timeout: float = 10.0) -> None:
        if self.failing:
            raise BrokerUnavailable("away")
        self.trims.append(dict(offsets))

    def close(self) -> None:
        self.closed = True


def test_only_what_rose_is_trimmed_and_nothing_after_the_lease() -> None:
    admin = ScriptedAdmin()
    believed = [True]
    trimming = Trimming("q", admin, lambda: believed[0], interval_s=0.005)  # type: ignore[arg-type]
    trimming.start()
    trimming.offer({("a", 0): 5, ("b", 0): 0})
    wait_for(lambda: admin.trims)
    trimming.offer({("a", 0): 5, ("b", 0): 3})
    wait_for(lambda: len(admin.trims) == 2)
    assert admin.trims == [{("a", 0): 5}, {("b", 0): 3}]
    believed[0] = False
    trimming.offer({("a", 0): 9})
    wait_for(lambda: admin.closed)
    assert len(admin.trims) == 2
    trimming.close()


def test_a_failing_trim_is_told_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    admin = ScriptedAdmin()
    admin.failing = True
    trimming = Trimming("q", admin, lambda: True, interval_s=0.002)  # type: ignore[arg-type]
    trimming.start()
    trimming.offer({("a", 0): 5})
    wait_for(lambda: "not trimmed" in caplog.text)
    time.sleep(0.02)
    admin.failing = False
    wait_for(lambda: admin.trims)
    trimming.close()
    assert caplog.text.count("not trimmed") == 1


def test_history_says_what_is_older_than_its_window_in_bounded_memory() -> None:
    history = History(100.0, samples_max=50)
    for second in range(1000):
        history.note(float(second), second * 10)
    assert history.behind(999.0) <= 8990
    assert history.behind(999.0) >= 8950
    assert len(history._samples) <= 51
