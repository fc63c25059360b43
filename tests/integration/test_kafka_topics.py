"""A queue's topics on a real broker."""

import logging
from collections.abc import Iterator

import pytest

from zkcoord.config import KafkaConfig
from zkcoord.errors import BrokerUnavailable, ConfigError, TopicMismatch
from zkcoord.kafka import Admin, Producer, TopicSpec
from zkcoord.queue import topics as queue_topics
from zkcoord.queue.topics import Topics


@pytest.fixture
def admin(kafka: str) -> Iterator[Admin]:
    with Admin(KafkaConfig(bootstrap=kafka)) as admin:
        yield admin


@pytest.fixture
def topics(admin: Admin, queue_name: str) -> Iterator[Topics]:
    topics = Topics(queue_name, namespace="test")
    yield topics
    queue_topics.delete(admin, topics)


def test_create_makes_the_whole_table_and_check_finds_nothing(admin: Admin, topics: Topics) -> None:
    assert sorted(queue_topics.create(admin, topics, inboxes=3)) == sorted(topics.all)
    assert queue_topics.check(admin, topics) == []
    queue_topics.require(admin, topics)
    found = admin.describe(topics.all)
    assert found[topics.inbox].partitions == 3
    assert found[topics.log].partitions == 1
    assert found[topics.checkpoint].config["cleanup.policy"] == "compact"
    assert set(topics.all) <= set(admin.topics())


def test_create_again_changes_nothing_and_completes_what_is_missing(
    admin: Admin, topics: Topics
) -> None:
    queue_topics.create(admin, topics, inboxes=2)
    assert queue_topics.create(admin, topics, inboxes=2) == []
    admin.delete([topics.dead])
    assert [str(f) for f in queue_topics.check(admin, topics)] == [
        f"{topics.dead}: the topic must be there, is missing"
    ]
    assert queue_topics.create(admin, topics, inboxes=2) == [topics.dead]


def test_a_wrong_topic_is_named_with_every_setting(admin: Admin, topics: Topics) -> None:
    admin.create(
        [
            TopicSpec(
                name=topics.log,
                partitions=2,
                replication=1,
                config={"retention.ms": "604800000", "cleanup.policy": "compact,delete"},
            )
        ]
    )
    with pytest.raises(TopicMismatch) as caught:
        queue_topics.create(admin, topics)
    message = str(caught.value)
    assert f"{topics.log}: partitions must be 1, is 2" in message
    assert f"{topics.log}: retention.ms must be -1, is 604800000" in message
    assert f"{topics.log}: cleanup.policy must be delete, is " in message
    assert topics.critical not in message
    with pytest.raises(TopicMismatch):
        queue_topics.require(admin, topics)


def test_inboxes_grow_and_never_shrink(admin: Admin, topics: Topics) -> None:
    with pytest.raises(TopicMismatch, match="does not exist"):
        queue_topics.grow_inboxes(admin, topics, 4)
    queue_topics.create(admin, topics, inboxes=2)
    assert queue_topics.grow_inboxes(admin, topics, 5) == 5
    assert queue_topics.grow_inboxes(admin, topics, 3) == 5
    assert admin.describe([topics.inbox])[topics.inbox].partitions == 5
    assert queue_topics.check(admin, topics) == []
    with pytest.raises(ConfigError):
        queue_topics.grow_inboxes(admin, topics, 0)


def test_a_single_copy_is_warned_of_once(
    admin: Admin, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "zkcoord.queue"):
        queue_topics.create(admin, topics)
        queue_topics.create(admin, topics)
    lines = [r.getMessage() for r in caplog.records if topics.queue in r.getMessage()]
    assert len(lines) == 1
    assert "one copy" in lines[0]


def test_more_copies_than_brokers_are_refused_with_the_numbers(
    admin: Admin, topics: Topics
) -> None:
    with pytest.raises(BrokerUnavailable, match="needs 3 brokers, 1 are up"):
        queue_topics.create(admin, topics, replication=3)


def test_deleting_twice_is_fine(admin: Admin, topics: Topics) -> None:
    queue_topics.create(admin, topics)
    assert sorted(queue_topics.delete(admin, topics)) == sorted(topics.all)
    assert queue_topics.delete(admin, topics) == []
    assert admin.describe(topics.all) == {}


def test_priority_topics_refuse_a_compressed_bomb_and_take_honest_compression(
    kafka: str, admin: Admin, topics: Topics
) -> None:
    queue_topics.create(admin, topics)
    config = KafkaConfig(bootstrap=kafka, librdkafka={"compression.codec": "zstd"})
    heard = []
    with Producer(config, client_id="t", record_bytes_max=8_000_000) as producer:
        for value in (b"\0" * 5_000_000, b"fine" * 1000):
            producer.send(
                topics.critical, value, on_ack=lambda offset, error: heard.append((offset, error))
            )
            producer.flush(15)
    bomb, honest = heard
    assert bomb[0] is None
    assert "too large" in str(bomb[1]).lower() or "larger" in str(bomb[1]).lower()
    assert honest == (0, None)


def test_cluster_names_its_brokers(kafka: str, admin: Admin) -> None:
    cluster = admin.cluster()
    assert cluster.brokers == tuple(kafka.split(","))
    assert cluster.id
