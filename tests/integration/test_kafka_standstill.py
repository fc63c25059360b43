"""A reader whose client stops fetching goes on by itself."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from zkcoord.config import KafkaConfig
from zkcoord.kafka import (
    BEGINNING,
    END,
    Admin,
    CompactedWriter,
    LogReader,
    Partition,
    Producer,
    Reader,
    Record,
    TopicSpec,
)
from zkcoord.kafka.question import _Ends
from zkcoord.kafka.standstill import Standstill

WAIT_S = 30.0


class Stuck:
    """A client that yields nothing, until it is assigned `cured_after` more times."""

    def __init__(self, client: Consumer, cured_after: int) -> None:
        self._client = client
        self._left = cured_after
        self.assigned: list[list[TopicPartition]] = []

    def poll(self, timeout: float) -> Any:
        if self._left <= 0:
            return self._client.poll(timeout)
        time.sleep(timeout)
        return None

    def assign(self, places: list[TopicPartition]) -> None:
        self._left -= 1
        self.assigned.append(places)
        self._client.assign(places)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class Quick(Reader):
    stall_s = 0.3


@pytest.fixture
def config(kafka: str) -> KafkaConfig:
    return KafkaConfig(bootstrap=kafka)


@pytest.fixture
def topic(config: KafkaConfig, queue_name: str) -> Iterator[str]:
    name = f"test.{queue_name}.still"
    with Admin(config) as admin:
        admin.create([TopicSpec(name=name, partitions=2, replication=1)])
        yield name
        admin.delete([name])


def fill(config: KafkaConfig, topic: str, count: int, partition: int = 0) -> None:
    with Producer(config, client_id="fill", linger_s=0.005) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=partition)
        assert producer.flush(20) == 0


def stick(reader: Reader, cured_after: int = 1) -> Stuck:
    stuck = Stuck(reader._native, cured_after)
    reader._native = stuck
    return stuck


def read_until(reader: Reader, count: int) -> list[Record]:
    deadline = time.monotonic() + WAIT_S
    records: list[Record] = []
    while len(records) < count:
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records came"
        records += reader.read(100, 0.05)
    return records


def questions(monkeypatch: pytest.MonkeyPatch) -> list[dict[Partition, int]]:
    """The answers that are judged from now on."""
    heard: list[dict[Partition, int]] = []
    judge = Standstill.judge

    def listen(self: Standstill, ends: dict[Partition, int], now: float) -> Any:
        heard.append(ends)
        return judge(self, ends, now)

    monkeypatch.setattr(Standstill, "judge", listen)
    return heard


def read_nothing(reader: Reader, heard: list[dict[Partition, int]], answers: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(heard) < answers:
        assert time.monotonic() < deadline
        assert reader.read(10, 0.05) == []


@pytest.mark.parametrize("start", [0, BEGINNING])
def test_a_client_that_fetches_nothing_is_assigned_anew(
    config: KafkaConfig, topic: str, start: int, caplog: pytest.LogCaptureFixture
) -> None:
    fill(config, topic, 20)
    with Quick(config, client_id="t") as reader:
        reader.assign({(topic, 0): start, (topic, 1): 0})
        stick(reader)
        assert [r.offset for r in read_until(reader, 20)] == list(range(20))
        assert reader.stalls == 1
    said = [r.getMessage() for r in caplog.records if "stands still" in r.getMessage()]
    assert len(said) == 1
    assert f"topic {topic!r} partition 0 stands still at offset {start} of 20" in said[0]


def test_a_client_that_stops_midway_goes_on_from_there(config: KafkaConfig, topic: str) -> None:
    fill(config, topic, 20)
    with Quick(config, client_id="t") as reader:
        reader.assign({(topic, 0): 0})
        assert [r.offset for r in reader.read(2, 10)] == [0, 1]
        stuck = stick(reader)
        assert [r.offset for r in read_until(reader, 18)] == list(range(2, 20))
        assert [[p.offset for p in places] for places in stuck.assigned] == [[2]]


def test_a_client_beyond_help_is_replaced(config: KafkaConfig, topic: str) -> None:
    with Quick(config, client_id="t") as reader:
        reader.assign({(topic, 0): 0})
        assert reader.read(1, 0.5) == []
        reader._native.pause([TopicPartition(topic, 0)])  # outlives an assignment
        fill(config, topic, 3)
        assert [r.offset for r in read_until(reader, 3)] == [0, 1, 2]
        assert reader.stalls == 2


def test_one_partition_stands_still_while_another_flows(config: KafkaConfig, topic: str) -> None:
    with (
        Quick(config, client_id="t") as reader,
        Producer(config, client_id="t") as producer,
    ):
        reader.assign({(topic, 0): 0, (topic, 1): 0})
        assert reader.read(1, 0.5) == []
        reader._native.pause([TopicPartition(topic, 1)])
        fill(config, topic, 3, partition=1)
        deadline = time.monotonic() + WAIT_S
        found: dict[int, list[int]] = {0: [], 1: []}
        while len(found[1]) < 3:
            assert time.monotonic() < deadline
            producer.send(topic, b"flow", partition=0)
            producer.poll(0)
            for record in reader.read(10, 0.02):
                found[record.partition].append(record.offset)
        assert found[1] == [0, 1, 2]
        assert found[0] == list(range(len(found[0])))


def test_what_comes_after_an_end_that_was_never_found_is_not_skipped(
    config: KafkaConfig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(config, topic, 5)
    heard = questions(monkeypatch)
    with Quick(config, client_id="t") as reader:
        reader.assign({(topic, 0): END})
        stick(reader)
        read_nothing(reader, heard, 1)
        fill(config, topic, 4)
        assert [r.offset for r in read_until(reader, 4)] == [5, 6, 7, 8]


def test_the_log_is_watched_too(
    config: KafkaConfig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(config, topic, 3)
    monkeypatch.setattr(Reader, "stall_s", 0.3)
    with LogReader(config, topic, client_id="t") as reader:
        stick(reader._reader)
        assert [r.offset for some in reader.read_to_end(WAIT_S) for r in some] == [0, 1, 2]
        assert reader.stalls == 1


def test_an_idle_reader_asks_and_leaves_everything_alone(
    config: KafkaConfig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(config, topic, 2)
    with Quick(config, client_id="t") as reader:
        reader.assign({(topic, 0): 0, (topic, 1): BEGINNING})
        read_until(reader, 2)
        stuck = stick(reader, cured_after=0)
        heard = questions(monkeypatch)
        read_nothing(reader, heard, 5)
        assert stuck.assigned == []
        assert reader.stalls == 0


def test_a_reader_that_is_not_polled_is_left_alone(config: KafkaConfig, topic: str) -> None:
    fill(config, topic, 20)
    with Quick(config, client_id="t") as reader:
        reader.assign({(topic, 0): 0})
        assert [r.offset for r in reader.read(2, 10)] == [0, 1]
        stuck = stick(reader, cured_after=0)
        time.sleep(4 * Quick.stall_s)
        assert [r.offset for r in read_until(reader, 18)] == list(range(2, 20))
        assert stuck.assigned == []


def test_transactions_and_their_markers_are_no_stall(
    config: KafkaConfig, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"test.{queue_name}.compacted"
    spec = TopicSpec(name=name, partitions=1, replication=1, config={"cleanup.policy": "compact"})
    heard = questions(monkeypatch)
    with (
        Admin(config) as admin,
        CompactedWriter(config, name, client_id="t", transactional_id=name) as writer,
        Quick(config, client_id="t") as reader,
    ):
        admin.create([spec])
        writer.open(20)
        writer.write([(b"a", b"1")], 20)
        reader.assign({(name, 0): 0})
        assert [r.value for r in read_until(reader, 1)] == [b"1"]
        stuck = stick(reader, cured_after=0)
        read_nothing(reader, heard, 4)  # at the marker
        writer._producer.begin()
        writer._producer.send(name, b"2", key=b"a", partition=0)
        assert writer._producer.flush(10) == 0
        read_nothing(reader, heard, len(heard) + 4)  # before an open transaction
        assert stuck.assigned == []
        writer._producer.commit(10)
        assert [r.value for r in read_until(reader, 1)] == [b"2"]
        admin.delete([name])


def test_questions_that_fail_are_no_error(
    config: KafkaConfig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Quick(config, client_id="t") as reader:
        reader.assign({(topic, 0): 0})
        assert reader.read(1, 0.3) == []
        failed: list[float] = []
        unanswered = Standstill.unanswered

        def note(self: Standstill, now: float) -> None:
            failed.append(now)
            unanswered(self, now)

        monkeypatch.setattr(Standstill, "unanswered", note)
        monkeypatch.setattr("zkcoord.kafka.question.ASK_S", 0.0)
        deadline = time.monotonic() + WAIT_S
        while len(failed) < 2:
            assert time.monotonic() < deadline
            assert reader.read(1, 0.05) == []
        assert reader.stalls == 0


def test_a_slow_answer_keeps_nothing_back(
    config: KafkaConfig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, answered = threading.Event(), threading.Event()
    ends = _Ends.ends

    def slow(self: _Ends, places: list[Partition]) -> dict[Partition, int]:
        put.set()
        assert answered.wait(WAIT_S)
        return ends(self, places)

    monkeypatch.setattr(_Ends, "ends", slow)
    heard = questions(monkeypatch)
    with Quick(config, client_id="t") as reader:
        reader.assign({(topic, 0): 0, (topic, 1): 0})
        assert reader.read(1, 0.0) == []
        while not put.is_set():
            assert reader.read(1, 0.05) == []
        fill(config, topic, 3)
        assert [r.offset for r in read_until(reader, 3)] == [0, 1, 2]
        assert heard == []
        answered.set()
        read_nothing(reader, heard, 1)
        assert list(heard[0]) == [(topic, 1)]  # the other has moved since
        assert reader.stalls == 0


def test_readers_share_the_client_that_asks(
    config: KafkaConfig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = questions(monkeypatch)
    with Quick(config, client_id="one") as one, Quick(config, client_id="two") as two:
        assert one._asker is two._asker
        one.assign({(topic, 0): 0})
        two.assign({(topic, 1): 0})
        read_nothing(one, heard, 1)
        read_nothing(two, heard, 2)
        threads = [t for t in threading.enumerate() if t.name == "zkcoord-ends"]
        assert len(threads) == 1
    threads[0].join(WAIT_S)
    assert not threads[0].is_alive()
