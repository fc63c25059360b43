"""A scheduler inside this process: several queues, trimming, pressure against a newer leader."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.faults.fleet import Fleet, fleet, wait_for
from zkcoord import Scheduler
from zkcoord.config import SchedulerConfig
from zkcoord.core.records import ClassPressure, Pressure
from zkcoord.errors import ConfigError, NodeMissing
from zkcoord.kafka import Admin, Producer
from zkcoord.queue import growth, trimming
from zkcoord.queue.administration import describe_queue, list_queues
from zkcoord.queue.publication import Publication
from zkcoord.zk import Session


@pytest.fixture
def crew(kafka: str, zookeeper: str, queue_name: str, tmp_path: Path) -> Iterator[Fleet]:
    with fleet(kafka, zookeeper, queue_name, tmp_path) as made:
        made.create()
        yield made


def pressure(term: int, depth: int = 0) -> Pressure:
    quiet = ClassPressure(verdict="accept", fill=0.0, depth=depth)
    return Pressure(term=term, at=time.time(), classes=(quiet, quiet, quiet, quiet))


def test_one_process_serves_several_queues(crew: Fleet, tmp_path: Path) -> None:
    with fleet(crew.kafka, crew.zookeeper, f"{crew.queue}-b", tmp_path) as other:
        other.create()
        scheduler = Scheduler(
            crew.queue, other.queue, kafka=crew.kafka, zookeeper=crew.zookeeper, name="both"
        )
        scheduler.start()
        try:
            crew.add_agent("first-agent")
            other.add_agent("second-agent")
            ids, others = set(crew.submit(50)), set(other.submit(50, prefix="other"))
            wait_for("the first queue's tasks", lambda: crew.history_if_ended(ids))
            wait_for("the second queue's tasks", lambda: other.history_if_ended(others))
            assert scheduler.state(crew.queue) == scheduler.state(other.queue) == "leading"
        finally:
            scheduler.stop()
        assert scheduler.state(crew.queue) == "stopped"


def test_trouble_with_one_queue_leaves_the_others_alone(crew: Fleet) -> None:
    scheduler = Scheduler(crew.queue, "nobody", kafka=crew.kafka, zookeeper=crew.zookeeper)
    scheduler.start(timeout=0)
    try:
        wait_for("the incident", lambda: scheduler.state("nobody") == "failed")
        assert isinstance(scheduler.failure("nobody"), NodeMissing)
        wait_for("the other to be led", lambda: scheduler.state(crew.queue) == "leading")
    finally:
        scheduler.stop()
    assert scheduler.failure(crew.queue) is None


def test_starting_raises_what_is_wrong_and_serves_nothing(crew: Fleet) -> None:
    scheduler = Scheduler(crew.queue, "nobody", kafka=crew.kafka, zookeeper=crew.zookeeper)
    threads = threading.active_count()
    with pytest.raises(NodeMissing, match="there is no queue 'nobody'"):
        scheduler.start()
    assert scheduler.state(crew.queue) == "stopped"
    wait_for("its threads to end", lambda: threading.active_count() <= threads)


def test_starting_waits_until_it_serves(crew: Fleet) -> None:
    scheduler = Scheduler(crew.queue, kafka=crew.kafka, zookeeper=crew.zookeeper)
    scheduler.start()
    try:
        assert scheduler.state(crew.queue) in ("standby", "leading")
    finally:
        scheduler.stop()


async def test_starting_refuses_to_freeze_an_event_loop() -> None:
    scheduler = Scheduler("q", kafka="127.0.0.1:1", zookeeper="127.0.0.1:1")
    with pytest.raises(RuntimeError, match=r"asyncio\.to_thread"):
        scheduler.start()
    with pytest.raises(ConfigError, match="timeout"):
        scheduler.start(timeout=-1)


def test_starting_does_not_wait_for_ever_for_servers() -> None:
    scheduler = Scheduler("q", kafka="127.0.0.1:1", zookeeper="127.0.0.1:1")
    scheduler.start(timeout=0.2)
    assert scheduler.state("q") == "connecting"
    scheduler.stop()
    assert scheduler.state("q") == "stopped"


def test_a_scheduler_needs_queues_and_each_once() -> None:
    for names in ((), ("a", "a")):
        with pytest.raises(ConfigError):
            Scheduler(*names, kafka="127.0.0.1:1", zookeeper="127.0.0.1:1")


def test_consumed_records_are_trimmed_and_nothing_else(
    crew: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimming.Trimming.__init__, "__kwdefaults__", {"interval_s": 0.2})
    topics = crew.description.topics
    ids = set(crew.submit(100))
    scheduler = Scheduler(
        crew.queue,
        kafka=crew.kafka,
        zookeeper=crew.zookeeper,
        config=SchedulerConfig(history_s=0.0, checkpoint_every_s=1.0, checkpoint_after_s=1.0),
    )
    scheduler.start()
    try:
        crew.add_agent()
        wait_for("the end of all", lambda: crew.history_if_ended(ids))
        with Admin(crew.kafka_config) as admin:

            def beginning(topic: str) -> int:
                return admin.offsets(topic)[0][0]

            wait_for("the tasks to be trimmed", lambda: beginning(topics.normal) == 100)
            wait_for("reports to be trimmed", lambda: beginning(topics.reports) > 0)
            wait_for("the log to be trimmed", lambda: beginning(topics.log) > 0)
            position, _ = crew.checkpoint()
            assert position is not None
            assert beginning(topics.log) <= position.offset
    finally:
        scheduler.stop()
    second = crew.add_scheduler()
    crew.leader()
    more = set(crew.submit(20, prefix="more"))
    crew.forget_history()
    wait_for("the next leader to work on", lambda: crew.history_if_ended(more))
    assert second.alive


def test_partitions_added_to_a_topic_are_read(crew: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth.Growth.__init__, "__kwdefaults__", {"every_s": 0.2})
    topics = crew.description.topics
    scheduler = Scheduler(crew.queue, kafka=crew.kafka, zookeeper=crew.zookeeper)
    scheduler.start()
    try:
        crew.add_agent()
        ids = set(crew.submit(20))
        wait_for("the first to end", lambda: crew.history_if_ended(ids))
        with Admin(crew.kafka_config) as admin:
            admin.add_partitions(topics.normal, 3)
        with Producer(crew.kafka_config, client_id="test") as producer:
            producer.send(
                topics.normal,
                b'{"task":"nap"}',
                partition=2,
                headers=[("ce_id", b"on-the-new-one")],
            )
            assert producer.flush(20) == 0
        ids |= {"on-the-new-one"} | set(crew.submit(20, prefix="more"))
        wait_for("the rest to end", lambda: crew.history_if_ended(ids))
        crew.check(ids)
    finally:
        scheduler.stop()


def test_a_deposed_leader_does_not_overwrite_the_pressure(zookeeper: str) -> None:
    path = "/queues/q/pressure"
    with Session(zookeeper) as session:

        def standing() -> Pressure | None:
            if session.nodes.exists(path) is None:
                return None
            return msgspec.json.decode(session.nodes.get(path)[0], type=Pressure)

        old = Publication(session, path, term=5)
        old.start()
        old.offer(pressure(5, depth=1))
        wait_for("the old leader's pressure", standing)
        new = Publication(session, path, term=9)
        new.start()
        new.offer(pressure(9, depth=2))
        wait_for("the new leader's", lambda: (standing() or pressure(0)).term == 9)
        old.offer(pressure(5, depth=3))
        wait_for("the old one to give up", lambda: not old._thread.is_alive())
        found = standing()
        assert found is not None
        assert found.term == 9
        new.close()


def test_creating_a_queue_again_keeps_what_it_is(crew: Fleet) -> None:
    with Session(crew.zookeeper) as session:
        before = describe_queue(session, crew.queue)
        crew.create()
        assert describe_queue(session, crew.queue) == before
        assert list_queues(session) == [crew.queue]
        with pytest.raises(NodeMissing, match="zkcoord queue create nobody"):
            describe_queue(session, "nobody")
