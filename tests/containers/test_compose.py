"""The images do the main job: tasks and a contended lock through published ports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from zkcoord import Lock, Priority, Queue, Session

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

START_S = 180.0


@pytest.fixture(scope="module")
def zookeeper(ports: dict[str, int], docker_services: Any) -> str:
    return f"127.0.0.1:{ports['zookeeper']}"


@pytest.fixture(scope="module")
def queue(ports: dict[str, int], zookeeper: str, docker_services: Any) -> Iterator[Queue]:
    kafka = f"127.0.0.1:{ports['kafka']}"

    def agents_joined() -> bool:
        try:
            with Queue("demo", kafka=kafka, zookeeper=zookeeper) as asked:
                pressure = asked.pressure()
                until = time.monotonic() + 5
                while pressure is None and time.monotonic() < until:
                    time.sleep(0.1)
                    pressure = asked.pressure()
                return pressure is not None and pressure.slots >= 8
        except Exception:
            return False

    docker_services.wait_until_responsive(check=agents_joined, timeout=START_S, pause=1.0)
    with Queue("demo", kafka=kafka, zookeeper=zookeeper) as queue:
        yield queue


def test_twenty_tasks_of_all_classes_are_answered(queue: Queue) -> None:
    tickets = [
        queue.submit_raw("echo", (f"text {n}",), priority=list(Priority)[n % 4]) for n in range(20)
    ]
    assert [t.result(timeout=60) for t in tickets] == [f"text {n}" for n in range(20)]


def test_a_contended_lock_is_held_one_at_a_time_by_agents_and_us(
    queue: Queue, zookeeper: str
) -> None:
    tickets = [queue.submit_raw("locked", ("shared",)) for _ in range(6)]
    with (
        Session(zookeeper) as session,
        Lock(session, "shared").hold(timeout=60) as lease,
    ):
        lease.check()
        ours = lease.token
    tokens = [int(t.result(timeout=60)) for t in tickets]
    assert len({*tokens, ours}) == 7  # every hold had a token of its own
