"""Tasks from a producer that knows nothing of zkcoord: kcat, from Debian."""

import os
import shutil
import subprocess

import pytest

from zkcoord.config import KafkaConfig
from zkcoord.core.records import Origin, Priority, Submission
from zkcoord.core.wire import Malformed, decode_call, parse
from zkcoord.kafka import BEGINNING, Admin, Reader
from zkcoord.queue import topics as queue_topics
from zkcoord.queue.topics import Topics

WAIT_S = 30.0
KCAT = shutil.which("kcat") or ""

pytestmark = pytest.mark.skipif(
    not KCAT and os.environ.get("CI") != "true",
    reason="kcat is not installed (Debian: apt-get install kcat)",
)


class Foreigner:
    """Sends with kcat to one queue's topics."""

    def __init__(self, kafka: str, queue: str) -> None:
        self.kafka = kafka
        self.topics = Topics(queue)
        with_admin = Admin(KafkaConfig(bootstrap=kafka), client_id="test")
        queue_topics.create(with_admin, self.topics, partitions=1, inboxes=1)
        with_admin.close()

    def send(self, priority: Priority, line: str, *options: str) -> None:
        topic = self.topics.priorities[priority]
        subprocess.run(
            [KCAT, "-P", "-b", self.kafka, "-t", topic, *options],
            input=line.encode(),
            check=True,
            timeout=WAIT_S,
            capture_output=True,
        )

    def read(self, priority: Priority) -> Submission | Malformed:
        topic = self.topics.priorities[priority]
        with Reader(KafkaConfig(bootstrap=self.kafka), client_id="test") as reader:
            reader.assign({(topic, 0): BEGINNING})
            (record,) = reader.read(1, WAIT_S)
        origin = Origin(priority, record.partition, record.offset, record.timestamp)
        return parse(origin, record.key, record.value, record.headers)


@pytest.fixture
def kcat(kafka: str, queue_name: str) -> Foreigner:
    return Foreigner(kafka, queue_name)


def test_bare(kcat: Foreigner) -> None:
    kcat.send(Priority.HIGH, '{"task":"email.send","args":[42]}\n')
    read = kcat.read(Priority.HIGH)
    assert isinstance(read, Submission), read
    assert (read.id, read.task, read.priority) == ("high/0/0", "email.send", Priority.HIGH)
    assert (read.key, read.headers, read.reply) == (None, [], None)
    assert decode_call(read.value, read.headers, read.key) == ("email.send", [42], {})


def test_binary(kcat: Foreigner) -> None:
    headers = (
        *("-H", "ce_specversion=1.0", "-H", "ce_id=01J8ZQ", "-H", "ce_source=/shop"),
        *("-H", "ce_type=zkcoord.task.submit.v1", "-H", "ce_zktask=email.send"),
        *("-H", "content-type=application/json", "-H", "ce_zktenant=one", "-H", "ce_zktenant=shop"),
        *("-H", "ce_expirytime=2999-01-01T00:00:00Z", "-H", "zkattempt=9"),
        *("-H", "traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    )
    kcat.send(Priority.CRITICAL, '{"args":[42]}\n', "-k", "user-42", *headers)
    read = kcat.read(Priority.CRITICAL)
    assert isinstance(read, Submission), read
    assert (read.id, read.task, read.tenant) == ("01J8ZQ", "email.send", "shop")
    assert (read.key, read.expires_at) == (b"user-42", 32_472_144_000.0)
    assert read.trace == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert decode_call(read.value, read.headers, read.key) == ("email.send", [42], {})


def test_structured(kcat: Foreigner) -> None:
    kcat.send(
        Priority.LOW,
        '{"specversion":"1.0","id":"01J8ZQ","source":"/shop","type":"zkcoord.task.submit.v1",'
        '"zktask":"email.send","zkmaxattempts":3,"data":{"kwargs":{"to":"ä@example.org"}}}\n',
        *("-H", "content-type=application/cloudevents+json"),
    )
    read = kcat.read(Priority.LOW)
    assert isinstance(read, Submission), read
    assert (read.id, read.task, read.attempts) == ("01J8ZQ", "email.send", 3)
    assert decode_call(read.value, read.headers, read.key).kwargs == {"to": "ä@example.org"}


def test_what_is_no_task(kcat: Foreigner) -> None:
    kcat.send(Priority.NORMAL, "hello\n", "-H", "ce_id=i")
    read = kcat.read(Priority.NORMAL)
    assert isinstance(read, Malformed)
    assert (read.reason, read.id) == ("malformed", "i")
