"""The servers are restarted under a working queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fleet import Fleet, fleet, wait_for
from zkcoord.local import Stack


@pytest.fixture
def crew(own_stack: Stack, queue_name: str, tmp_path: Path) -> Iterator[Fleet]:
    chroot = "/queues-under-test"
    with fleet(own_stack.kafka, own_stack.zookeeper + chroot, queue_name, tmp_path) as made:
        made.create()
        made.add_scheduler()
        made.add_scheduler()
        made.add_agent()
        made.add_agent()
        made.leader()
        yield made


@pytest.mark.parametrize("which", ["broker", "zookeeper", "both"])
def test_restart_under_load(crew: Fleet, own_stack: Stack, which: str) -> None:
    ids = set(crew.submit(400, seconds=0.02))
    wait_for("some tasks to run", lambda: len(crew.ledgers()) > 100)
    if which in ("broker", "both"):
        own_stack.brokers[0].kill()
    if which in ("zookeeper", "both"):
        own_stack.zookeepers[0].kill()
    if which in ("broker", "both"):
        own_stack.brokers[0].start()
    if which in ("zookeeper", "both"):
        own_stack.zookeepers[0].start()
    ids |= set(crew.submit(100, prefix="later"))
    wait_for("all to end", lambda: crew.history_if_ended(ids), timeout=120)
    crew.check(ids)
