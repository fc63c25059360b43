"""A whole queue when its servers hang, come late or are set up wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.faults.fleet import wait_for
from tests.faults.ward import Ward
from zkcoord.config import QueueConfig
from zkcoord.local import Proxy, Stack


@pytest.fixture
def ward(own_stack: Stack, queue_name: str, tmp_path: Path) -> Iterator[Ward]:
    made = Ward(own_stack.kafka, f"{own_stack.zookeeper}/servers", queue_name, tmp_path)
    try:
        made.open(QueueConfig())
        yield made
    finally:
        made.close()


def test_an_agent_dies_while_the_broker_hangs(ward: Ward, own_stack: Stack) -> None:
    """Finished, and the report is on its way to a broker that does not answer."""
    ward.add_scheduler()
    ward.leader()
    [broker] = own_stack.brokers
    with ward.nurses() as [doomed]:
        ward.submit_one("unheard", "nap", refine={}, seconds=1.0)
        ward.runs("unheard")
        broker.pause()
        wait_for("the handler to finish", lambda: ward.ends("unheard") == ["succeeded"])
        doomed.kill()
        broker.resume()
    with ward.nurses():
        life = ward.life("unheard")
        assert len(life.ends) == 1
        assert life.ends[0][0] == "succeeded"
        assert ward.attempts("unheard") in ([1], [1, 2])  # as the report was lost or not
        ward.still_works()
    assert ward.findings().problems == []


def test_servers_that_come_late(ward: Ward, own_stack: Stack) -> None:
    """A scheduler waits for them; an agent says what is missing and ends."""
    servers, _, chroot = own_stack.zookeeper.partition("/")
    [broker] = own_stack.brokers
    with Proxy(target=servers) as proxy:
        proxy.refuse()
        broker.kill()
        real, ward.zookeeper = ward.zookeeper, f"{proxy.address}/servers{chroot}"
        scheduler = ward.add_scheduler()
        wait_for("a message", lambda: f"queue {ward.queue} waits" in scheduler.text())
        assert proxy.address in scheduler.text()
        proxy.heal()
        agent = ward.nurse()
        wait_for("another message", lambda: scheduler.text().count("waits") > 1, timeout=60)
        assert agent.child.wait(60) != 0
        assert "BrokerUnavailable" in agent.text()
        assert ward.kafka in agent.text()
        broker.start()
        ward.leader(timeout=60)
        ward.zookeeper = real
        with ward.nurses():
            ward.still_works()


WRONG = {
    "normal": ("cleanup.policy", "compact"),
    "high": ("retention.ms", "3600000"),
    "log": ("retention.bytes", "1000000"),
    "control": ("message.timestamp.type", "CreateTime"),
    "checkpoint": ("cleanup.policy", "delete"),
}


def test_topics_set_up_wrongly_are_named_all_at_once(ward: Ward) -> None:
    admin = AdminClient({"bootstrap.servers": ward.kafka})
    for kind, (name, value) in WRONG.items():
        topic = getattr(ward.description.topics, kind)
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(10)
    scheduler = ward.add_scheduler()
    assert scheduler.child.wait(60) != 0
    said = scheduler.text()
    assert "TopicMismatch" in said
    for kind, (name, value) in WRONG.items():
        assert getattr(ward.description.topics, kind) in said
        assert name in said
        assert value in said
