"""A queue's other side, played by hand: reads submissions, publishes pressure, answers tickets."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from zkcoord import Priority, Queue
from zkcoord.config import KafkaConfig, SubmitterConfig
from zkcoord.core import results
from zkcoord.core.records import ClassPressure, Origin, Pressure, Submission
from zkcoord.core.wire import parse
from zkcoord.errors import NodeMissing
from zkcoord.kafka import BEGINNING, Admin, Producer, Reader, Record
from zkcoord.queue.administration import QueueDescription, create_queue, pressure_path
from zkcoord.zk import Session

T = TypeVar("T")
WAIT_S = 20.0


def until(what: str, look: Callable[[], T]) -> T:
    """Wait for a truthy answer."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {what}")


class Desk:
    """A queue's other side: reads what was submitted, publishes pressure, answers tickets."""

    def __init__(self, kafka: str, zookeeper: str, name: str) -> None:
        self.name = name
        self.kafka = kafka
        self.zookeeper = zookeeper
        self.config = KafkaConfig(bootstrap=kafka)
        self.session = Session(zookeeper)
        self.session.start()
        admin = Admin(self.config, client_id="test")
        self.description = create_queue(
            self.session, admin, QueueDescription(queue=name, partitions=2)
        )
        admin.close()
        self.topics = self.description.topics
        self.producer = Producer(self.config, client_id="test")

    def close(self) -> None:
        self.producer.close()
        self.session.close()

    def queue(self, **config: Any) -> Queue:
        return Queue(
            self.name,
            kafka=self.kafka,
            zookeeper=self.zookeeper,
            config=SubmitterConfig(**config),
        )

    def read(self, topic: str, count: int) -> list[Record]:
        with Reader(self.config, client_id="test") as reader:
            reader.assign({(topic, p): BEGINNING for p in reader.partitions(topic, WAIT_S)})
            found: list[Record] = []
            until(
                f"{count} records of {topic}",
                lambda: found.extend(reader.read(1000, 0.1)) or len(found) >= count,
            )
            assert len(found) == count
            return found

    def submissions(self, priority: Priority, count: int) -> list[Submission]:
        read = []
        for record in self.read(self.topics.priorities[priority], count):
            origin = Origin(priority, record.partition, record.offset, record.timestamp)
            parsed = parse(origin, record.key, record.value, record.headers)
            assert isinstance(parsed, Submission), parsed
            read.append(parsed)
        return read

    def answer(self, submission: Submission, result: results.Result) -> None:
        key, value = results.encode(result)
        self.producer.send(self.topics.results, value, key=key, partition=submission.reply)
        self.producer.flush(WAIT_S)

    def succeed(self, submission: Submission, result: Any) -> None:
        self.answer(
            submission,
            results.succeeded(
                submission.id,
                attempt=1,
                result=msgspec.json.encode(result),
                started=1.0,
                finished=2.0,
                fact="1.0",
            ),
        )

    def publish(self, verdict: str, *, age: float = 0.0, **standing: float) -> None:
        calm = ClassPressure(verdict="accept", fill=0.0)
        told = ClassPressure(verdict=verdict, **{"fill": 0.0, **standing})
        pressure = Pressure(term=1, at=time.time() - age, classes=(calm, calm, told, calm), slots=1)
        data = msgspec.json.encode(pressure)
        path = pressure_path(self.name)
        try:
            self.session.nodes.set(path, data)
        except NodeMissing:
            self.session.nodes.create(path, data, makepath=True)
