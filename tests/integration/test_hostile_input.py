"""Whatever is written to a queue's topics becomes a dead letter or a refusal, and work goes on."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from tests.faults.fleet import wait_for
from tests.integration.front_door import FrontDoor, needs_kcat
from tests.integration.hostile_records import CLOUD, GARBAGE, GOOD, LARGE, MALFORMED, headers
from zkcoord import Queue
from zkcoord.config import QueueConfig
from zkcoord.core.records import (
    VERSION,
    DidHave,
    DidReturn,
    DidSucceed,
    Report,
    Reports,
)
from zkcoord.errors import TaskFailed, TaskTooLarge
from zkcoord.kafka import Producer
from zkcoord.local import Stack
from zkcoord.queue.deadletters import find_dead, list_dead


@pytest.fixture(scope="module")
def door(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontDoor]:
    name = f"hostile-{os.getpid()}"
    folder = tmp_path_factory.mktemp("hostile")
    made = FrontDoor(stack.kafka, f"{stack.zookeeper}/{name}", name, folder)
    try:
        made.open(QueueConfig(unknown_task_s=1.0))
        scheduler = made.add_scheduler()
        agent = made.add_agent()
        made.leader()
        yield made
        assert scheduler.alive
        assert agent.alive
        found = made.findings()
        assert found.problems == []
        assert found.lost == []
        assert len(found.terms) == 1
        assert "Traceback" not in made.logs()
    finally:
        made.close()


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_no_task_becomes_a_dead_letter(door: FrontDoor, case: str) -> None:
    value, given = MALFORMED[case]
    letter = door.letter(door.send(value, given, b"key"))
    assert letter.reason == "malformed"
    assert letter.error
    assert (letter.key, letter.value) == (b"key", value)
    assert (letter.headers, letter.size) == (given, 0)
    door.still_works()


@pytest.mark.parametrize("case", LARGE)
def test_what_the_topic_takes_and_we_do_not(door: FrontDoor, case: str) -> None:
    value, given, key = LARGE[case]
    letter = door.letter(door.send(value, given, key))
    assert letter.reason == "too_large"
    assert letter.sha256 == hashlib.sha256(value).hexdigest()
    assert letter.size == len(value)
    assert letter.value is not None
    assert value.startswith(letter.value)
    assert len(letter.value) == min(len(value), 64 * 1024)
    assert letter.headers == given[: len(letter.headers)]
    assert (key or b"").startswith(letter.key or b"")
    door.still_works()


def test_what_the_topic_refuses_is_the_producers_to_hear(door: FrontDoor) -> None:
    body = b'{"task":"noop","x":"' + b"x" * 2 * 1024 * 1024 + b'"}'
    for kind in ("critical", "high", "normal", "low", "control"):
        with pytest.raises(TaskTooLarge):
            door.send(body, kind=kind)
    with (
        Producer(door.kafka_config, client_id="test") as producer,
        pytest.raises(TaskTooLarge, match="at most 1000000"),
    ):
        producer.send(door.description.topics.normal, body)
    door.still_works()


@needs_kcat
def test_a_compressed_bomb_is_refused_by_its_real_size(door: FrontDoor) -> None:
    bomb = b'{"task":"noop","x":"' + b"0" * 5_000_000 + b'"}'
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        door.kcat(bomb, "-z", "gzip", "-X", "message.max.bytes=9000000", "-D", "\x01")
    assert b"Message size too large" in refusal.value.stderr
    door.still_works()


@needs_kcat
def test_a_header_whose_name_is_not_text(door: FrontDoor) -> None:
    # Ours cannot write one: kcat can. The client that reads it cannot say what stood there.
    letter = door.letter(door.kcat(GOOD, "-H", b"\xff\xfe=1", "-k", "key"))
    assert (letter.reason, letter.value, letter.key) == ("malformed", GOOD, b"key")
    assert "name" in letter.error
    door.still_works()


@needs_kcat
def test_null_and_wrong_bytes_from_kcat(door: FrontDoor) -> None:
    letter = door.letter(door.kcat(b"k:\n", "-Z", "-K", ":"))
    assert (letter.reason, letter.value, letter.key) == ("malformed", None, b"k")
    letter = door.letter(door.kcat(b"\xc3\x28\n"))
    assert (letter.reason, letter.value, letter.key) == ("malformed", b"\xc3\x28", None)
    door.still_works()


def test_an_aborted_transaction_is_no_hole(door: FrontDoor) -> None:
    normal = door.description.topics.normal
    with Producer(door.kafka_config, client_id="test", transactional_id=door.queue) as producer:
        producer.fence(20)
        for headers_, last in (([("ce_id", b"aborted")], False), ([("ce_id", b"kept")], True)):
            producer.begin()
            producer.send(normal, GOOD, headers=headers_, partition=0)
            producer.flush(10)
            if last:
                producer.commit(20)
            else:
                producer.abort(20)
    assert door.end_of("kept") == "succeeded"
    assert "aborted" not in door.history.accepted
    door.still_works()


# --- tasks that are tasks, and hostile all the same -----------------------------------------------


def test_an_unknown_task_is_buried_with_its_bytes(door: FrontDoor) -> None:
    value = b'{"task":"no.such.task","args":["\xc3\xa4"]}'
    letter = door.letter(door.send(value, [("ce_id", b"nobody"), ("x", b"\xff")], b"k"))
    assert (letter.reason, letter.id, letter.task) == ("unknown_task", "nobody", "no.such.task")
    assert (letter.value, letter.key) == (value, b"k")
    assert letter.headers == [("ce_id", b"nobody"), ("x", b"\xff")]
    door.still_works()


def test_arguments_that_do_not_fit(door: FrontDoor) -> None:
    value = b'{"task":"noop","kwargs":{"no":1}}'
    letter = door.letter(door.send(value))
    assert (letter.reason, letter.attempts, letter.value) == ("malformed", 1, value)
    door.still_works()


def test_of_repeated_headers_the_last_counts(door: FrontDoor) -> None:
    door.send(GOOD, [*CLOUD, ("ce_id", b"first"), ("ce_id", b"last"), ("ce_id", None)])
    assert door.end_of("last") == "succeeded"
    assert "first" not in door.history.accepted
    door.still_works()


def test_a_forged_attempt_is_ignored(door: FrontDoor) -> None:
    forged = [("zkattempt", b"9"), ("ce_zkattempt", b"9"), ("zkdead_attempts", b"9")]
    door.send(GOOD, [*headers(id=b"forged"), *forged])
    life = door.life("forged")
    assert [dispatch[0] for dispatch in life.dispatches] == [1]
    started = [e["attempt"] for e in door.ledgers() if e["id"] == "forged"]
    assert set(started) == {1}
    door.still_works()


def test_a_deadline_that_has_passed(door: FrontDoor) -> None:
    letter = door.letter(door.send(GOOD, headers(id=b"old", expirytime=b"1999-01-01T00:00:00Z")))
    assert (letter.reason, letter.attempts, letter.value) == ("expired", 0, GOOD)
    assert door.life("old").dispatches == []
    door.still_works()


def test_an_answer_to_nowhere_is_dropped(door: FrontDoor) -> None:
    door.send(GOOD, headers(id=b"nowhere", zkreplyto=b"99999"))
    assert door.end_of("nowhere") == "succeeded"
    door.still_works()


def test_the_id_of_a_live_task_is_taken(door: FrontDoor) -> None:
    nap = b'{"task":"nap","kwargs":{"seconds":0.5,"answer":%d}}'
    door.send(nap % 1, headers(id=b"twin"))
    door.send(nap % 2, headers(id=b"twin"))
    door.send(nap % 3, headers(id=b"twin"), kind="critical")
    assert door.end_of("twin") == "succeeded"
    door.still_works()
    assert door.findings().duplicates == 2
    assert door.history.accepted["twin"] == 1
    door.send(nap % 4, headers(id=b"twin"))  # the id is free again
    wait_for("a second life", lambda: door.history.ends["twin"] == ["succeeded"] * 2)
    assert door.history.accepted["twin"] == 2


# --- topics that strangers have no business in ----------------------------------------------------


@pytest.mark.parametrize("kind", ["control", "reports"])
@pytest.mark.parametrize("case", GARBAGE)
def test_garbage_for_the_leader(door: FrontDoor, kind: str, case: str) -> None:
    letter = door.letter(door.send(GARBAGE[case], kind=kind))
    assert letter.reason == "malformed"
    assert letter.value == GARBAGE[case]
    door.still_works()


def test_garbage_for_the_agent(door: FrontDoor) -> None:
    inbox = door.life("good-1-normal").dispatches[0][1]
    for value in GARBAGE.values():
        door.send(value, kind="inbox", partition=inbox)
    door.still_works()


@pytest.mark.parametrize("kind", ["dead", "results"])
def test_garbage_where_others_read(door: FrontDoor, kind: str) -> None:
    for value in GARBAGE.values():
        door.send(value, [("zkdead_reason", b"\xff")], kind=kind)
    door.still_works()


def test_control_of_a_task_that_is_not_there(door: FrontDoor) -> None:
    value = b'{"action":"cancel","id":"' + b"i" * 100_000 + b'"}'
    letter = door.letter(door.send(value, kind="control"))
    assert (letter.reason, letter.value) == ("not_live", value)
    door.still_works()


def forge(door: FrontDoor, incarnation: int, *reports: Report, partition: int = 0) -> str:
    record = Reports(VERSION, partition, incarnation, "forger", 2**62, list(reports))
    return door.send(msgspec.msgpack.encode(record), kind="reports")


def test_reports_about_what_nobody_runs(door: FrontDoor) -> None:
    before = door.findings().superseded
    forge(door, 1, DidSucceed("nobody-has-it", 1, b"1", 0.0, 0.0), DidReturn("", -1, ""))
    forge(door, 2**63, DidHave([("x", 2**63)]), partition=2**62)
    door.still_works()
    assert door.findings().superseded == before + 2


def test_many_small_lies_make_no_record_that_cannot_be_written(door: FrontDoor) -> None:
    forge(door, 2**62, *[DidReturn("", 0, "")] * 300_000)
    door.still_works()


def test_a_lie_as_large_as_the_topic_takes(door: FrontDoor) -> None:
    letter = door.letter(forge(door, 1, DidReturn("i" * 2_100_000, 1, "")))
    assert (letter.reason, letter.size > 2_100_000) == ("too_large", True)
    forge(door, 1, *[DidReturn(f"{n}" * 4000, 1, "") for n in range(100)])
    door.still_works()


def test_a_result_that_is_not_json_is_a_failed_attempt(door: FrontDoor) -> None:
    incarnation = door.life("good-1-normal").dispatches[0][2]
    queue = Queue(door.queue, kafka=door.kafka, zookeeper=door.zookeeper)

    @queue.task(attempts=1)
    def nap(seconds: float) -> None: ...

    with queue:
        for result in (b"not JSON", b"1 2", b"[" * 100_000):
            ticket = nap.submit(60.0)
            wait_for("its dispatch", lambda: (ticket.id, 1) in door.history.dispatched)  # noqa: B023
            forge(door, incarnation, DidSucceed(ticket.id, 1, result, 1.0, 2.0))
            with pytest.raises(TaskFailed, match="not JSON"):
                ticket.result(timeout=20)
    door.still_works()


def test_lies_about_an_agent_that_lives(door: FrontDoor) -> None:
    _, _, incarnation, _, _ = door.life("good-1-normal").dispatches[0]
    forge(door, incarnation, DidHave([("not-given", 1)]), partition=1_000_000)
    forge(door, incarnation, DidHave([("not-given", 2)]), partition=-1)
    door.send(b'{"task":"nap","kwargs":{"seconds":3600}}', headers(id=b"lied-about"))
    wait_for("its dispatch", lambda: ("lied-about", 1) in door.history.dispatched)
    nan = float("nan")
    forge(door, incarnation, DidSucceed("lied-about", 1, b"1", nan, nan))
    assert door.end_of("lied-about") == "succeeded"
    door.still_works()


# --- what people see ------------------------------------------------------------------------------


def test_letters_are_found_and_shown(door: FrontDoor) -> None:
    value = b'\xff\x00{"task":\n'
    letter = door.letter(door.send(value, headers(id=b"shown"), kind="low"))
    topics = door.description.topics
    found = find_dead(door.kafka_config, topics, "shown")
    assert found is not None
    assert found.letter == letter
    listed = list_dead(door.kafka_config, topics, limit=1000)
    assert len(listed) == len(door.letters())
    assert {buried.letter.fact for buried in listed} == {x.fact for x in door.letters().values()}
    environment = {
        **os.environ,
        "ZKCOORD_ZOOKEEPER": door.zookeeper,
        "ZKCOORD_KAFKA": door.kafka,
        "XDG_CONFIG_HOME": "/nonexistent",
    }
    command = [sys.executable, "-m", "zkcoord_cli", "dead", "show", door.queue, "shown"]
    shown = subprocess.run([*command, "--raw"], env=environment, check=True, capture_output=True)
    assert shown.stdout == value
    told = subprocess.run(command, env=environment, check=True, capture_output=True)
    assert b"malformed" in told.stdout
