"""Tasks from kcat, executed and answered: what the README promises to any Kafka producer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.fleet import wait_for
from tests.integration.front_door import FrontDoor, needs_kcat
from zkcoord.config import QueueConfig
from zkcoord.core.results import Result, decode
from zkcoord.kafka import BEGINNING, Reader
from zkcoord.local import Stack

pytestmark = needs_kcat

CLOUD = ("-H", "ce_specversion=1.0", "-H", "ce_source=/shop")
TYPE = ("-H", "ce_type=zkcoord.task.submit.v1")


@pytest.fixture(scope="module")
def door(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontDoor]:
    name = f"foreign-{os.getpid()}"
    folder = tmp_path_factory.mktemp("foreign")
    made = FrontDoor(stack.kafka, f"{stack.zookeeper}/{name}", name, folder)
    try:
        made.open(QueueConfig())
        made.add_scheduler()
        made.add_agent()
        made.leader()
        yield made
        assert made.findings().problems == []
    finally:
        made.close()


def shown(door: FrontDoor, *arguments: str) -> dict[str, Any]:
    """What a command of zkcoord says about it, as JSON."""
    environment = {
        **os.environ,
        "ZKCOORD_ZOOKEEPER": door.zookeeper,
        "ZKCOORD_KAFKA": door.kafka,
        "XDG_CONFIG_HOME": "/nonexistent",
    }
    command = [sys.executable, "-m", "zkcoord_cli", *arguments, "--json"]
    run = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
    document: dict[str, Any] = json.loads(run.stdout)
    return document


def answer(door: FrontDoor, task_id: str) -> Result:
    """The record in the results topic, as any consumer can read it."""

    def found() -> Result | None:
        topic = door.description.topics.results
        with Reader(door.kafka_config, client_id="foreigner") as reader:
            reader.assign({(topic, 0): BEGINNING})
            for record in reader.read(100, 1.0):
                if record.key == task_id.encode():
                    return decode(record.value)
        return None

    return wait_for(f"the answer to {task_id}", found)  # type: ignore[no-any-return]


def test_bare_json_is_executed(door: FrontDoor) -> None:
    where = door.kcat(b'{"task": "nap", "kwargs": {"answer": 42}}\n', kind="high")
    assert door.end_of(where) == "succeeded"
    seen = shown(door, "task", "show", door.queue, where)["task"]
    assert (seen["id"], seen["state"], seen["priority"]) == (where, "succeeded", "high")
    assert seen["attempt"] == 1


def test_a_binary_event_is_answered(door: FrontDoor) -> None:
    attributes = ("-H", "ce_id=from-kcat", "-H", "ce_zktask=nap", "-H", "ce_zkreplyto=0")
    media = ("-H", "content-type=application/json; charset=utf-8")
    door.kcat(
        b'{"kwargs": {"answer": 7}}\n', *CLOUD, *TYPE, *attributes, *media, "-k", "key", kind="low"
    )
    result = answer(door, "from-kcat")
    assert (result.state, bytes(result.result), result.attempt) == ("succeeded", b"7", 1)
    seen = shown(door, "task", "show", door.queue, "from-kcat")["task"]
    assert (seen["priority"], seen["task"]) == ("low", "nap")
    assert shown(door, "task", "result", door.queue, "from-kcat")["result"] == 7


def test_a_structured_event_is_answered(door: FrontDoor) -> None:
    event = {
        "specversion": "1.0",
        "id": "from-shop-ü",
        "source": "/shop",
        "type": "zkcoord.task.submit.v1",
        "zkreplyto": 0,
        "zkmaxattempts": 1,
        "data": {"task": "nap", "kwargs": {"answer": 9}},
    }
    line = json.dumps(event).encode() + b"\n"
    door.kcat(line, "-H", "content-type=application/cloudevents+json", kind="critical")
    result = answer(door, "from-shop-ü")
    assert (result.state, bytes(result.result)) == ("succeeded", b"9")


def test_a_failure_and_a_refusal_are_answered_too(door: FrontDoor) -> None:
    reply = ("-H", "ce_zkreplyto=0", "-H", "ce_zkmaxattempts=1")
    door.kcat(b'{"task": "fail"}\n', "-H", "ce_id=bad-luck", *reply)
    result = answer(door, "bad-luck")
    assert (result.state, result.reason, result.attempt) == ("dead", "exhausted", 1)
    assert result.error.startswith("ValueError: on purpose at ")
    door.kcat(b"not JSON\n", "-H", "ce_id=bad-json", "-H", "ce_zkreplyto=0")
    result = answer(door, "bad-json")
    assert (result.state, result.reason) == ("rejected", "malformed")


def test_many_lines_are_many_tasks(door: FrontDoor) -> None:
    last = door.kcat(b'{"task": "noop"}\n' * 500)
    first = int(last.rpartition("/")[2]) - 499
    ids = {f"normal/0/{offset}" for offset in range(first, first + 500)}
    history = wait_for("all to end", lambda: door.history_if_ended(ids))
    assert history.states(ids) == {"succeeded": 500}
