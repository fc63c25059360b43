"""Logs and compacted topics on a real broker."""

import time
from collections.abc import Iterator

import pytest

from zkcoord.config import KafkaConfig
from zkcoord.errors import (
    BrokerUnavailable,
    Deposed,
    StreamError,
    TaskTooLarge,
    TopicMismatch,
    WriterFenced,
)
from zkcoord.kafka import (
    Admin,
    CompactedWriter,
    LogAppender,
    LogReader,
    Producer,
    TopicSpec,
    read_compacted,
)


@pytest.fixture
def config(kafka: str) -> KafkaConfig:
    return KafkaConfig(bootstrap=kafka)


@pytest.fixture
def log(config: KafkaConfig, queue_name: str) -> Iterator[str]:
    name = f"test.{queue_name}.log"
    with Admin(config) as admin:
        admin.create(
            [
                TopicSpec(
                    name=name,
                    partitions=1,
                    replication=1,
                    config={"max.message.bytes": "2200000"},
                )
            ]
        )
        yield name
        admin.delete([name])


@pytest.fixture
def table(config: KafkaConfig, queue_name: str) -> Iterator[str]:
    name = f"test.{queue_name}.table"
    with Admin(config) as admin:
        admin.create(
            [
                TopicSpec(
                    name=name,
                    partitions=1,
                    replication=1,
                    config={"cleanup.policy": "compact", "max.message.bytes": "2200000"},
                )
            ]
        )
        yield name
        admin.delete([name])


def read_settled(config: KafkaConfig, topic: str, size: int) -> dict[bytes, bytes]:
    """The table once it has `size` keys: commits become visible a little behind their reply."""
    deadline = time.monotonic() + 30
    while True:
        table = read_compacted(config, topic, client_id="t", timeout=30)
        if len(table) == size or time.monotonic() > deadline:
            return table


def test_what_is_appended_is_read_back_in_order(config: KafkaConfig, log: str) -> None:
    acknowledged = []
    with (
        LogAppender(config, log, client_id="t") as appender,
        LogReader(config, log, client_id="t", offset=0) as reader,
    ):
        read = []
        for n in range(50):
            appender.append(b"%d" % n, lambda offset, _: acknowledged.append(offset))
            while len(read) <= n:
                read += reader.read(10, 5)
        assert appender.flush(10) == 0
        assert [r.value for r in read] == [b"%d" % n for n in range(50)]
        assert reader.position == 50
        assert reader.lag() == 0
    assert acknowledged == list(range(50))


def test_read_to_end_stops_where_the_log_ended(config: KafkaConfig, log: str) -> None:
    with (
        LogAppender(config, log, client_id="t") as appender,
        LogReader(config, log, client_id="t") as reader,
    ):
        assert list(reader.read_to_end(10)) == []
        for n in range(100):
            appender.append(b"%d" % n)
        appender.flush(10)
        lists = list(reader.read_to_end(10, limit=7))
        assert [r.value for some in lists for r in some] == [b"%d" % n for n in range(100)]
        assert max(map(len, lists)) <= 7
        assert list(reader.read_to_end(10)) == []
        assert (reader.beginning(5), reader.end(5), reader.position) == (0, 100, 100)
        reader.seek(98)
        assert [r.offset for some in reader.read_to_end(10) for r in some] == [98, 99]


def test_read_to_end_of_a_log_trimmed_to_nothing(config: KafkaConfig, log: str) -> None:
    with LogAppender(config, log, client_id="t") as appender:
        for _ in range(5):
            appender.append(b"x")
        appender.flush(10)
        with Admin(config) as admin:
            admin.trim({(log, 0): 5})
            assert admin.offsets(log) == {0: (5, 5)}
        with LogReader(config, log, client_id="t") as reader:
            assert list(reader.read_to_end(10)) == []
            appender.append(b"y")
            appender.flush(10)
            assert [r.offset for some in reader.read_to_end(10) for r in some] == [5]


def test_read_to_end_passes_over_what_is_no_record(config: KafkaConfig, log: str) -> None:
    with Producer(config, client_id="t", transactional_id=f"{log}.stray") as producer:
        producer.fence(20)
        producer.begin()
        producer.send(log, b"x", partition=0)
        producer.commit(10)  # leaves a marker at the end, which is never delivered
    with LogReader(config, log, client_id="t", offset=0) as reader:
        deadline = time.monotonic() + 10
        while reader.end(5) != 2:  # the marker is written behind the commit's back
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [r.value for some in reader.read_to_end(10) for r in some] == [b"x"]
        assert reader.position == 2


def test_an_open_transaction_does_not_stop_a_logs_reader(config: KafkaConfig, log: str) -> None:
    with (
        Producer(config, client_id="t", transactional_id=f"{log}.stray") as producer,
        LogAppender(config, log, client_id="t") as appender,
        LogReader(config, log, client_id="t", offset=0) as reader,
    ):
        producer.fence(20)
        producer.begin()
        producer.send(log, b"open", partition=0)
        producer.flush(10)
        appender.append(b"x")
        appender.flush(10)
        assert [r.value for some in reader.read_to_end(10) for r in some] == [b"open", b"x"]
        producer.abort(10)


def test_a_log_takes_records_of_two_megabytes_and_no_more(config: KafkaConfig, log: str) -> None:
    with (
        LogAppender(config, log, client_id="t") as appender,
        LogReader(config, log, client_id="t", offset=0) as reader,
    ):
        appender.append(b"x" * 1_999_000)
        with pytest.raises(TaskTooLarge):
            appender.append(b"x" * 2_000_001)
        appender.flush(10)
        (records,) = list(reader.read_to_end(10))
        assert len(records[0].value or b"") == 1_999_000


def test_a_compacted_topic_is_the_latest_value_of_each_key(config: KafkaConfig, table: str) -> None:
    assert read_compacted(config, table, client_id="t", timeout=20) == {}
    with CompactedWriter(config, table, client_id="t", transactional_id=table) as writer:
        writer.open(20)
        writer.write([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], 10)
        writer.write([(b"a", b"2"), (b"b", None)], 10)
        writer.write([], 10)
    assert read_settled(config, table, 2) == {b"a": b"2", b"c": b"1"}


def test_a_batch_larger_than_the_buffer_is_written_whole(config: KafkaConfig, table: str) -> None:
    entries = [(b"%d" % n, b"x" * 100_000) for n in range(800)]  # 80 MB, the buffer holds 64
    with CompactedWriter(config, table, client_id="t", transactional_id=table) as writer:
        writer.open(20)
        writer.write(entries, 60)
    assert len(read_settled(config, table, 800)) == 800


def test_a_newer_writer_fences_the_older_one(config: KafkaConfig, table: str) -> None:
    with (
        CompactedWriter(config, table, client_id="old", transactional_id=table) as old,
        CompactedWriter(config, table, client_id="new", transactional_id=table) as new,
    ):
        old.open(20)
        old.write([(b"a", b"old")], 10)
        new.open(20)
        new.write([(b"a", b"new")], 10)
        for _ in range(2):
            with pytest.raises(WriterFenced) as caught:
                old.write([(b"a", b"zombie")], 10)
            assert isinstance(caught.value, Deposed)
        new.write([(b"b", b"new")], 10)
    assert read_settled(config, table, 2) == {b"a": b"new", b"b": b"new"}


def test_what_a_fenced_writer_had_open_is_never_seen(config: KafkaConfig, table: str) -> None:
    with (
        Producer(config, client_id="old", transactional_id=table) as old,
        CompactedWriter(config, table, client_id="new", transactional_id=table) as new,
    ):
        old.fence(20)
        old.begin()
        old.send(table, b"zombie", key=b"a")
        old.flush(10)
        new.open(20)  # aborts it, so that readers need not wait for its time to run out
        new.write([(b"b", b"new")], 10)
        assert read_settled(config, table, 1) == {b"b": b"new"}
        with pytest.raises(WriterFenced):
            old.commit(10)
        with pytest.raises(WriterFenced):
            old.send(table, b"zombie", key=b"a")


def test_a_batch_with_a_record_too_large_is_not_written_at_all(
    config: KafkaConfig, table: str
) -> None:
    with CompactedWriter(config, table, client_id="t", transactional_id=table) as writer:
        writer.open(20)
        with pytest.raises(TaskTooLarge):
            writer.write([(b"a", b"1"), (b"b", b"x" * 2_000_001)], 10)
        writer.write([(b"c", b"1")], 10)  # and the writer goes on
    assert read_settled(config, table, 1) == {b"c": b"1"}


def test_a_batch_for_a_missing_topic_says_so(config: KafkaConfig, queue_name: str) -> None:
    name = f"test.{queue_name}.missing"
    with CompactedWriter(config, name, client_id="t", transactional_id=name) as writer:
        writer.open(20)
        with pytest.raises(TopicMismatch, match=name):
            writer.write([(b"a", b"1")], 15)
    with pytest.raises(TopicMismatch, match=name):
        read_compacted(config, name, client_id="t", timeout=10)


def test_a_compacted_topic_cannot_be_trimmed(config: KafkaConfig, table: str) -> None:
    with CompactedWriter(config, table, client_id="t", transactional_id=table) as writer:
        writer.open(20)
        writer.write([(b"a", b"1")], 10)
    with Admin(config) as admin, pytest.raises(StreamError, match="compacted"):
        admin.trim({(table, 0): 1})


def test_opening_a_writer_settles_what_the_one_before_committed(
    config: KafkaConfig, table: str
) -> None:
    for n in range(3):
        with CompactedWriter(config, table, client_id="t", transactional_id=table) as writer:
            writer.open(20)
            assert len(read_compacted(config, table, client_id="t", timeout=20)) == n
            writer.write([(b"%d" % n, b"x")], 10)


def test_reading_a_table_keeps_its_deadline(config: KafkaConfig, table: str) -> None:
    with CompactedWriter(config, table, client_id="t", transactional_id=table) as writer:
        writer.open(20)
        writer.write([(b"a", b"1")], 10)
    begun = time.monotonic()
    with pytest.raises(BrokerUnavailable):
        read_compacted(config, table, client_id="t", timeout=0.0)
    assert time.monotonic() - begun < 5
