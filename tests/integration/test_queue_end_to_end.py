"""A queue, whole: two schedulers and two agents as processes, tasks from two kinds of producers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.faults.fleet import Fleet, fleet, wait_for
from zkcoord import Priority, Queue
from zkcoord.core.records import Pressure
from zkcoord.kafka import Producer
from zkcoord.queue.administration import pressure_path
from zkcoord.zk import Session

PRIORITIES = ("critical", "high", "normal", "low")


@pytest.fixture
def crew(kafka: str, zookeeper: str, queue_name: str, tmp_path: Path) -> Iterator[Fleet]:
    with fleet(kafka, zookeeper, queue_name, tmp_path) as made:
        made.create()
        made.add_scheduler()
        made.add_scheduler()
        made.add_agent()
        made.add_agent()
        made.leader()
        yield made


def test_tasks_of_all_kinds_come_back_with_results(crew: Fleet) -> None:
    queue = Queue(crew.queue, kafka=crew.kafka, zookeeper=crew.zookeeper)

    @queue.task()
    def nap(seconds: float = 0.0, answer: int = 0) -> int:
        raise NotImplementedError  # agents have the real one

    raw = [
        task_id
        for priority in PRIORITIES
        for task_id in crew.submit(25, priority=priority, prefix=f"raw-{priority}")
    ]
    with queue:
        tickets = [
            nap.options(priority=Priority(n % 4)).submit(seconds=0.001, answer=n)
            for n in range(100)
        ]
        assert [ticket.result(timeout=30) for ticket in tickets] == list(range(100))
    ids = {*raw, *(ticket.id for ticket in tickets)}
    history = wait_for("all raw tasks to end", lambda: crew.history_if_ended(ids))
    assert history.states(ids) == {"succeeded": 200}
    crew.check(ids)


def test_bad_records_become_dead_letters_and_later_ones_flow_on(crew: Fleet) -> None:
    topics = crew.description.topics
    with Producer(crew.kafka_config, client_id="test") as producer:
        producer.send(topics.normal, b"{not json")
        producer.send(topics.normal, b"\xff\xfe")
        producer.send(topics.normal, b'{"task":"no.such.task"}', headers=[("ce_id", b"unknown")])
        producer.send(topics.control, b"also not json")
        producer.send(topics.reports, b"\x00 neither msgpack")
        assert producer.flush(10) == 0
    ids = crew.submit(10)
    wait_for("the good tasks to end", lambda: crew.history_if_ended(set(ids)))
    crew.check(set(ids))
    letters = wait_for("dead letters", lambda: crew.dead_letters(4))
    assert b"{not json" in letters
    assert b"\xff\xfe" in letters


def test_failing_tasks_are_retried_and_then_buried(crew: Fleet) -> None:
    body = msgspec.json.encode({"task": "fail"})
    with Producer(crew.kafka_config, client_id="test") as producer:
        producer.send(
            crew.description.topics.high,
            body,
            headers=[("ce_id", b"doomed"), ("ce_zkmaxattempts", b"3"), ("ce_zkbackoff", b"0.05")],
        )
        assert producer.flush(10) == 0
    wait_for("the task to die", lambda: crew.history_if_ended({"doomed"}))
    starts = [e for e in crew.ledgers() if e["id"] == "doomed" and e["event"] == "start"]
    assert [e["attempt"] for e in starts] == [1, 2, 3]
    assert wait_for("its dead letter", lambda: crew.dead_letters(1)) == [body]


def test_pressure_is_published(crew: Fleet) -> None:
    crew.submit(50, seconds=0.01)
    with Session(crew.zookeeper) as session:

        def published() -> Pressure | None:
            if session.nodes.exists(pressure_path(crew.queue)) is None:
                return None
            data, _ = session.nodes.get(pressure_path(crew.queue))
            pressure = msgspec.json.decode(data, type=Pressure)
            return pressure if pressure.slots == 16 else None

        pressure = wait_for("the pressure znode", published)
    assert pressure.term == crew.term_of(crew.leader())
    assert [c.verdict for c in pressure.classes] == ["accept"] * 4


def test_orderly_stop_hands_over_and_loses_nothing(crew: Fleet) -> None:
    first = crew.leader()
    ids = set(crew.submit(200, seconds=0.01))
    assert first.stop() == 0
    second = crew.leader()
    assert second is not first
    ids |= set(crew.submit(50, prefix="later"))
    wait_for("all tasks to end", lambda: crew.history_if_ended(ids))
    crew.check(ids)
