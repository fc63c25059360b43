from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner, Result

from zkcoord.config import KafkaConfig
from zkcoord.core.outputs import POSITION_KEY
from zkcoord.core.records import VERSION, Position, Source
from zkcoord.kafka import Admin, CompactedWriter, Producer
from zkcoord.queue.administration import QueueDescription, create_queue
from zkcoord.zk import Session
from zkcoord_cli.main import cli


@pytest.fixture
def queue(zookeeper: str, kafka: str, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ZKCOORD_ZOOKEEPER", zookeeper)
    monkeypatch.setenv("ZKCOORD_KAFKA", kafka)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    config = KafkaConfig(bootstrap=kafka)
    description = QueueDescription(queue=queue_name)
    with Session(zookeeper) as session, Admin(config) as admin:
        create_queue(session, admin, description)
    producer = Producer(config, client_id="test")
    for topic in (description.topics.high, description.topics.log):
        for _ in range(5):
            producer.send(topic, b"{}")
    assert producer.flush(30) == 0
    producer.close(5)
    return queue_name


def checkpoint(kafka: str, queue: str, *, consumed: int, log: int) -> None:
    position = Position(
        VERSION, log, 1, 0, 1.0, [(int(Source.HIGH), 0, consumed)], -1, False, [], []
    )  # fmt: skip
    topics = QueueDescription(queue=queue).topics
    with CompactedWriter(
        KafkaConfig(bootstrap=kafka),
        topics.checkpoint,
        transactional_id=topics.transactional_id,
        client_id="test",
    ) as writer:
        writer.open(30)
        writer.write([(POSITION_KEY, msgspec.msgpack.encode(position))], 30)


def trim(queue: str, *flags: str) -> Result:
    return CliRunner().invoke(cli, ["queue", "trim", queue, "--json", *flags])


def offsets(kafka: str, queue: str, kind: str) -> tuple[int, int]:
    with Admin(KafkaConfig(bootstrap=kafka)) as admin:
        return admin.offsets(f"zkcoord.{queue}.{kind}")[0]


def test_without_a_checkpoint_nothing_is_known_to_be_consumed(kafka: str, queue: str) -> None:
    ended = trim(queue)
    assert ended.exit_code == 5
    assert "has no checkpoint yet" in ended.stderr
    assert offsets(kafka, queue, "high") == (0, 5)


def test_consumed_records_go_and_unread_ones_stay(kafka: str, queue: str) -> None:
    checkpoint(kafka, queue, consumed=3, log=4)
    span = {"topic": f"zkcoord.{queue}.high", "partition": 0, "from": 0, "to": 3}
    dry = json.loads(trim(queue, "--dry-run").stdout)
    assert (dry["done"], dry["items"]) == (False, [span])
    assert offsets(kafka, queue, "high") == (0, 5)
    done = json.loads(trim(queue).stdout)
    assert (done["done"], done["items"]) == (True, [span])
    assert offsets(kafka, queue, "high") == (3, 5)
    assert offsets(kafka, queue, "log") == (0, 5), "histories stay unless asked for"
    assert json.loads(trim(queue).stdout)["items"] == []


def test_a_position_beyond_the_end_deletes_no_more_than_there_is(kafka: str, queue: str) -> None:
    checkpoint(kafka, queue, consumed=50, log=0)
    assert trim(queue).exit_code == 0
    assert offsets(kafka, queue, "high") == (5, 5)


def test_the_log_goes_only_with_yes(kafka: str, queue: str) -> None:
    checkpoint(kafka, queue, consumed=0, log=4)
    assert trim(queue, "--log").exit_code == 8
    assert offsets(kafka, queue, "log") == (0, 5)
    assert trim(queue, "--log", "--yes").exit_code == 0
    assert offsets(kafka, queue, "log") == (4, 5)
