"""The inspector against real servers, where things are odd."""

from __future__ import annotations

import msgspec
import pytest

from zkcoord.config import KafkaConfig
from zkcoord.core import records as r
from zkcoord.errors import ConfigError, DecodeError, NodeMissing, ResultTimeout
from zkcoord.inspector import Inspector
from zkcoord.kafka import Admin, LogAppender
from zkcoord.queue.administration import QueueDescription, create_queue
from zkcoord.recipes import Lock
from zkcoord.zk import Session

ORIGIN = r.Origin(2, 0, 7, 1000.0)


@pytest.fixture
def config(kafka: str) -> KafkaConfig:
    return KafkaConfig(bootstrap=kafka)


@pytest.fixture
def queue(zookeeper: str, config: KafkaConfig, queue_name: str) -> str:
    with Session(zookeeper) as session, Admin(config) as admin:
        create_queue(session, admin, QueueDescription(queue=queue_name))
    return queue_name


def append(config: KafkaConfig, queue: str, *values: bytes) -> None:
    appender = LogAppender(config, f"zkcoord.{queue}.log", client_id="test")
    try:
        for value in values:
            appender.append(value)
        assert appender.flush(30) == 0
    finally:
        appender.close()


def batch(term: int, n: int, *facts: r.Fact) -> bytes:
    return msgspec.msgpack.encode(r.Batch(1, term, n, 1001.0, [], -1, list(facts)))


def accepted(task_id: str) -> r.Accepted:
    return r.Accepted(r.Submission(task_id, "mail.send", 2, ORIGIN, b"{}"), 1.0)


def test_void_records_of_a_deposed_leader_are_not_told(
    zookeeper: str, config: KafkaConfig, queue: str
) -> None:
    append(
        config,
        queue,
        batch(5, 0, r.TermOpened("one"), accepted("a")),
        batch(9, 0, r.TermOpened("two")),
        batch(5, 1, r.Died("a", 1, "zombie", "")),
        batch(9, 1, r.Dispatched("a", 1, 0, 1)),
    )
    with Inspector(zookeeper=zookeeper, kafka=config) as inspector:
        told = inspector.task(queue, "a", timeout=30)
        assert told.task.state == "running"
        assert [fact.what for fact in told.facts] == ["accepted", "dispatched"]
        with pytest.raises(ResultTimeout, match=r"running after 0.2 s"):
            inspector.task_end(queue, "a", wait=0.2, timeout=30)
        with pytest.raises(NodeMissing, match="does not mention task 'b'"):
            inspector.task(queue, "b", timeout=30)


def test_a_log_in_an_unknown_format_is_said_and_not_guessed(
    zookeeper: str, config: KafkaConfig, queue: str
) -> None:
    append(config, queue, batch(5, 0, accepted("a")), b"\x94\x02\x05\x01\x00")
    with (
        Inspector(zookeeper=zookeeper, kafka=config) as inspector,
        pytest.raises(DecodeError, match="version 2 at offset 1"),
    ):
        inspector.tasks(queue, timeout=30)


def test_a_log_that_was_trimmed_is_told_from_where_it_begins(
    zookeeper: str, config: KafkaConfig, queue: str
) -> None:
    append(config, queue, batch(5, 0, accepted("a")), batch(5, 1, r.Dispatched("a", 1, 0, 1)))
    with Admin(config) as admin:
        admin.trim({(f"zkcoord.{queue}.log", 0): 1})
    with Inspector(zookeeper=zookeeper, kafka=config) as inspector:
        told = inspector.task(queue, "a", timeout=30)
        assert (told.complete, told.task.state, told.task.task) == (False, "running", "")


def test_a_queue_whose_description_is_broken_does_not_hide_the_others(
    zookeeper: str, config: KafkaConfig, queue: str
) -> None:
    with Session(zookeeper) as session:
        session.nodes.create("/queues/broken/config", b"{not json", makepath=True)
        session.nodes.create("/queues/other-thing", b"")
        session.nodes.create(f"/queues/{queue}/inbox/7", b"\xff", makepath=True)
        session.nodes.create(f"/queues/{queue}/pressure", b"[]")
    with Inspector(zookeeper=zookeeper, kafka=config) as inspector:
        views = {view.name: view for view in inspector.queues()}
        assert set(views) == {"broken", queue}
        assert "does not describe a queue" in views["broken"].problem
        assert (views[queue].verdict, views[queue].agents) == ("unknown", 0)
        with pytest.raises(ConfigError):
            inspector.queue("broken")


def test_what_needs_only_zookeeper_never_asks_for_kafka(zookeeper: str) -> None:
    with Inspector(zookeeper=zookeeper) as inspector:
        assert inspector.queues() == []
        assert inspector.locks() == []
        assert inspector.lock("never-used").holder is None
        assert inspector.elections() == []
        assert inspector.agents() == []
    with Inspector() as nowhere, pytest.raises(ConfigError, match="nothing says where ZooKeeper"):
        nowhere.queues()


def test_a_lock_with_its_holder_and_waiters_in_order(zookeeper: str) -> None:
    with (
        Session(zookeeper, name="first") as one,
        Session(zookeeper, name="second") as two,
        Session(zookeeper, name="third") as three,
        Lock(one, "gpu").acquire() as lease,
    ):
        waiting = []
        for place, session in enumerate((two, three), 1):
            waiting.append(Lock(session, "gpu").acquire_future(60))
            with Inspector(zookeeper=zookeeper) as inspector:
                while len(inspector.lock("gpu").waiters) < place:
                    assert not waiting[-1].done()
                view = inspector.lock("gpu")
        assert view.holder is not None
        assert (view.holder.name, view.holder.token) == ("first", lease.token)
        assert [waiter.name for waiter in view.waiters] == ["second", "third"]
        assert [waiter.place for waiter in view.waiters] == [1, 2]
        assert view.holder.session == f"{one.id:#x}"
        for future in waiting:
            future.cancel()
