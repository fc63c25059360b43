"""Sending and reading records on a real broker."""

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from zkcoord.config import KafkaConfig
from zkcoord.errors import (
    BufferFull,
    ConfigError,
    RecordsTrimmed,
    StreamClosed,
    TaskTooLarge,
    TopicMismatch,
)
from zkcoord.kafka import BEGINNING, END, Admin, Ends, Producer, Reader, Record, TopicSpec


@pytest.fixture
def config(kafka: str) -> KafkaConfig:
    return KafkaConfig(bootstrap=kafka)


@pytest.fixture
def admin(config: KafkaConfig) -> Iterator[Admin]:
    with Admin(config) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin, queue_name: str) -> Iterator[str]:
    name = f"test.{queue_name}.records"
    admin.create([TopicSpec(name=name, partitions=3, replication=1)])
    yield name
    admin.delete([name])


def read_until(reader: Reader, count: int, timeout: float = 20.0) -> list[Record]:
    deadline = time.monotonic() + timeout
    records: list[Record] = []
    while len(records) < count:
        left = deadline - time.monotonic()
        assert left > 0, f"only {len(records)} of {count} records came"
        records += reader.read(1000, min(left, 0.5))
    return records


def fill(config: KafkaConfig, topic: str, values: list[bytes], partition: int = 0) -> None:
    errors = []
    with Producer(config, client_id="fill", linger_s=0.005) as producer:
        for value in values:
            producer.send(
                topic, value, partition=partition, on_ack=lambda _, error: errors.append(error)
            )
        assert producer.flush(20) == 0
    assert errors == [None] * len(values)


def test_a_record_comes_back_as_it_was(config: KafkaConfig, topic: str) -> None:
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None), ("a", b"\xff\x00")]
    before = time.time()
    with (
        Producer(config, client_id="t") as producer,
        Reader(config, client_id="t") as reader,
    ):
        offsets = []
        producer.send(
            topic,
            b"\x00value",
            key=b"key",
            headers=headers,
            partition=1,
            on_ack=lambda offset, error: offsets.append((offset, error)),
        )
        producer.send(topic, None, key=b"", partition=2)
        assert producer.flush(10) == 0
        assert offsets == [(0, None)]
        reader.assign({(topic, 1): 0, (topic, 2): 0})
        one, two = sorted(read_until(reader, 2), key=lambda r: r.partition)
    assert one[:3] == (topic, 1, 0)
    assert (one.key, one.value, one.headers) == (b"key", b"\x00value", headers)
    assert before - 1 < one.timestamp < time.time() + 1
    assert (two.key, two.value, two.headers) == (b"", None, [])


def test_order_holds_per_partition_and_positions_follow(config: KafkaConfig, topic: str) -> None:
    for partition in range(3):
        fill(config, topic, [b"%d" % n for n in range(500)], partition)
    with Reader(config, client_id="t", prefetch_records=50) as reader:
        reader.assign({(topic, partition): BEGINNING for partition in range(3)})
        records = read_until(reader, 1500)
        for partition in range(3):
            values = [r.value for r in records if r.partition == partition]
            assert values == [b"%d" % n for n in range(500)]
        assert reader.positions() == {(topic, partition): 500 for partition in range(3)}
        assert set(reader.lag().values()) == {0}


def test_read_takes_no_more_than_its_limit(config: KafkaConfig, topic: str) -> None:
    fill(config, topic, [b"x"] * 30)
    with Reader(config, client_id="t") as reader:
        reader.assign({(topic, 0): 0})
        first = reader.read(1, 10)
        rest = []
        while len(rest) < 29:
            some = reader.read(7, 10)
            assert 1 <= len(some) <= 7
            rest += some
    assert [r.offset for r in first + rest] == list(range(30))


def test_from_the_end_only_what_comes_later(config: KafkaConfig, topic: str) -> None:
    fill(config, topic, [b"old"] * 3)
    with Reader(config, client_id="t", eof=True) as reader:
        reader.assign({(topic, 0): END})
        deadline = time.monotonic() + 10
        while not reader.at_end():
            assert time.monotonic() < deadline
            assert reader.read(10, 0.2) == []
        assert reader.positions() == {(topic, 0): 3}
        fill(config, topic, [b"new"])
        assert [r.value for r in read_until(reader, 1)] == [b"new"]


def test_lag_counts_what_is_unread_even_when_nothing_is_fetched_any_more(
    config: KafkaConfig, topic: str
) -> None:
    fill(config, topic, [b"x" * 1000] * 2000)
    key = (topic, 0)
    with (
        Reader(config, client_id="t", prefetch_bytes=20_000, prefetch_records=10) as reader,
        Ends(config, [key], every_s=0.05) as ends,
    ):
        reader.assign({key: 0})
        read = len(read_until(reader, 1))
        assert reader.lag()[key] == 2000 - read
        fill(config, topic, [b"y"] * 500)
        deadline = time.monotonic() + 10
        while ends.latest().get(key) != 2500:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        reader.note_ends({**ends.latest(), ("other", 7): 9})
        assert reader.lag() == {key: 2500 - read}
        assert reader.ends(5) == {key: 2500}
        assert reader.beginnings(5) == {key: 0}


def test_seek_goes_back_and_forth_and_leaves_the_others_alone(
    config: KafkaConfig, topic: str
) -> None:
    for partition in (0, 1):
        fill(config, topic, [b"%d" % n for n in range(10)], partition)
    with Reader(config, client_id="t") as reader:
        reader.assign({(topic, 0): 0, (topic, 1): 0})
        read_until(reader, 20)
        reader.seek((topic, 0), 8)
        assert [(r.partition, r.offset) for r in read_until(reader, 2)] == [(0, 8), (0, 9)]
        fill(config, topic, [b"more"], 1)
        assert [(r.partition, r.offset) for r in read_until(reader, 1)] == [(1, 10)]


def test_a_failed_call_in_between_loses_no_records(config: KafkaConfig, topic: str) -> None:
    fill(config, topic, [b"%d" % n for n in range(10)])
    with Reader(config, client_id="t") as reader:
        reader.assign({(topic, 0): 0})
        deadline = time.monotonic() + 10
        while len(reader._held) < 2:  # asking for the causes meets records on the way
            assert time.monotonic() < deadline
            reader._translated(KafkaException(KafkaError(KafkaError._TIMED_OUT)), "a call")
        assert [r.offset for r in read_until(reader, 10)] == list(range(10))


def test_a_trimmed_position_is_an_error_until_seek(
    config: KafkaConfig, admin: Admin, topic: str
) -> None:
    fill(config, topic, [b"%d" % n for n in range(10)])
    assert admin.trim({(topic, 0): 6}) == {(topic, 0): 6}
    with Reader(config, client_id="t") as reader:
        reader.assign({(topic, 0): 2})
        for _ in range(2):
            with pytest.raises(RecordsTrimmed, match=r"offset 2 is gone; 6 to 10 stand"):
                for _ in range(50):
                    assert reader.read(10, 0.2) == []
        reader.seek((topic, 0), 6)
        assert [r.offset for r in read_until(reader, 4)] == [6, 7, 8, 9]


def test_a_position_beyond_the_end_is_an_error_too(config: KafkaConfig, topic: str) -> None:
    fill(config, topic, [b"x"])
    with Reader(config, client_id="t") as reader:
        reader.assign({(topic, 0): 100})
        with pytest.raises(RecordsTrimmed, match=r"offset 100 is gone; 0 to 1 stand"):
            for _ in range(50):
                assert reader.read(10, 0.2) == []


def test_a_record_beyond_the_producers_bound_is_refused_at_once(
    config: KafkaConfig, topic: str
) -> None:
    with (
        Producer(config, client_id="t", record_bytes_max=2000) as producer,
        pytest.raises(TaskTooLarge, match=r"2101 bytes.*at most 2000"),
    ):
        producer.send(topic, b"x" * 2000, headers=[("k", b"v" * 100)])


def test_a_record_beyond_the_topics_bound_fails_its_acknowledgement(
    config: KafkaConfig, admin: Admin, queue_name: str
) -> None:
    name = f"test.{queue_name}.small"
    admin.create(
        [TopicSpec(name=name, partitions=1, replication=1, config={"max.message.bytes": "1000"})]
    )
    heard = []
    with Producer(config, client_id="t") as producer:
        producer.send(name, b"x" * 5000, on_ack=lambda _, error: heard.append(error))
        producer.send(name, b"x" * 5000)
        producer.flush(10)
        producer.send(name, b"fits", on_ack=lambda offset, _: heard.append(offset))
        producer.flush(10)
        assert type(heard[0]) is TaskTooLarge
        assert heard[1] == 0
        count, last = producer.failures
        assert (count, type(last)) == (1, TaskTooLarge)
    admin.delete([name])


def test_a_full_buffer_is_back_pressure(config: KafkaConfig, topic: str) -> None:
    acknowledged = []
    with Producer(config, client_id="t", buffer_records=100, linger_s=0.5) as producer:
        with pytest.raises(BufferFull, match="buffer is full"):
            for _ in range(1000):
                producer.send(topic, b"x", on_ack=lambda offset, _: acknowledged.append(offset))
        assert producer.unacknowledged >= 100
        assert producer.flush(10) == 0
        producer.send(topic, b"x", on_ack=lambda offset, _: acknowledged.append(offset))
        producer.flush(10)
    assert len(acknowledged) == 101


def test_acknowledgements_go_to_whom_they_belong(config: KafkaConfig, topic: str) -> None:
    heard: dict[str, list[int | None]] = {"a": [], "b": []}
    with Producer(config, client_id="t", linger_s=0.005) as producer:

        def sender(name: str) -> None:
            for _ in range(300):
                producer.send(
                    topic,
                    name.encode(),
                    partition=0,
                    on_ack=lambda offset, _: heard[name].append(offset),
                )

        threads = [threading.Thread(target=sender, args=(name,)) for name in heard]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.flush(10) == 0
    with Reader(config, client_id="t") as reader:
        reader.assign({(topic, 0): 0})
        records = read_until(reader, 600)
    for name, offsets in heard.items():
        assert offsets == [r.offset for r in records if r.value == name.encode()]


def test_what_on_ack_raises_comes_out_of_poll(config: KafkaConfig, topic: str) -> None:
    def broken(_: int | None, __: object) -> None:
        raise LookupError("mine")

    with Producer(config, client_id="t") as producer:
        producer.send(topic, b"x", on_ack=broken)
        with pytest.raises(LookupError, match="mine"):
            producer.flush(10)


def test_a_missing_topic_is_named(config: KafkaConfig, queue_name: str) -> None:
    name = f"test.{queue_name}.missing"
    heard = []
    with Producer(config, client_id="t") as producer, Reader(config, client_id="t") as reader:
        producer.send(name, b"x", on_ack=lambda _, error: heard.append(error))
        with pytest.raises(TopicMismatch, match=name):
            reader.partitions(name, 5)
        producer.flush(15)
    assert type(heard[0]) is TopicMismatch
    assert name in str(heard[0])


def test_a_missing_partition_is_refused_and_a_new_one_is_found(
    config: KafkaConfig, admin: Admin, topic: str
) -> None:
    with Producer(config, client_id="t") as producer, Reader(config, client_id="t") as reader:
        producer.send(topic, b"warm", partition=0)
        producer.flush(10)
        with pytest.raises(TopicMismatch, match="partition 3"):
            producer.send(topic, b"x", partition=3)
        assert admin.add_partitions(topic, 4) == 4
        deadline = time.monotonic() + 10
        while True:
            try:
                producer.send(topic, b"new", partition=3)
                break
            except TopicMismatch:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert producer.flush(10) == 0
        assert reader.partitions(topic, 5) == [0, 1, 2, 3]
        reader.assign({(topic, 3): 0})
        assert [r.value for r in read_until(reader, 1)] == [b"new"]


def test_closed_means_closed_and_close_may_come_twice(config: KafkaConfig, topic: str) -> None:
    producer = Producer(config, client_id="t")
    reader = Reader(config, client_id="t")
    admin = Admin(config)
    heard = []
    producer.send(topic, b"x", on_ack=lambda offset, _: heard.append(offset))
    for handle in (producer, reader, admin):
        handle.close()
        handle.close()
        assert "closed" in repr(handle)
    assert heard == [0]
    for call in (
        lambda: producer.send(topic, b"x"),
        lambda: producer.poll(0),
        lambda: reader.read(1, 0),
        reader.lag,
        admin.topics,
    ):
        with pytest.raises(StreamClosed, match="is closed"):
            call()


def test_transactions_need_their_id(config: KafkaConfig) -> None:
    with Producer(config, client_id="t") as producer, pytest.raises(ConfigError):
        producer.fence(1)
