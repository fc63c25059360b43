"""The commands against real servers: a queue from its creation to its dead letters, and locks."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from tests.cli.liveworld import HANDLERS, World, until
from zkcoord import Queue
from zkcoord.config import KafkaConfig
from zkcoord.core.records import Control
from zkcoord.kafka import Producer
from zkcoord.local import Stack
from zkcoord.queue.topics import Topics


@pytest.fixture(scope="module")
def world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(stack, tmp_path_factory.mktemp("live"))
    made.run("queue", "create", made.queue, "--attempts", "1", "--class", "critical:reserved=1")
    return made


@pytest.fixture(scope="module")
def served(world: World) -> Iterator[World]:
    """The queue with a scheduler and an agent, which end in good order."""
    with (world.folder / "services.log").open("w") as log:
        services = [
            world.start("scheduler", "run", world.queue, "--name", "blue", stderr=log),
            world.start(
                "agent", "run", world.queue, "--handlers", "app:queue",
                "--slots", "3", "--capability", "gpu=a100", "--name", "worker", stderr=log,
            ),
        ]  # fmt: skip
        try:
            until(lambda: len(world.json("agent", "list", world.queue)["items"]) == 1, "agent")
            yield world
        finally:
            for service in reversed(services):
                service.send_signal(signal.SIGTERM)
            ended = [service.wait(timeout=60) for service in services]
    assert ended == [0, 0], (world.folder / "services.log").read_text()


def test_creating_a_queue_again_changes_nothing(world: World) -> None:
    again = world.json("queue", "create", world.queue, "--attempts", "7")
    assert again == {
        "schema": "zkcoord.queue.create/1",
        "queue": world.queue,
        "existed": True,
        "topics_created": [],
        "settings_kept": True,
    }
    detail = world.json("queue", "show", world.queue)
    assert detail["settings"]["retry"]["attempts"] == 1
    assert detail["queue"]["classes"][0]["reserved_slots"] == 1
    assert {topic["kind"] for topic in detail["topics"]} >= {"critical", "log", "dead", "inbox"}


@pytest.mark.parametrize(
    "wrong", ["urgent:budget=1", "low", "low:budget", "low:speed=1", "low:floor=much"]
)
def test_class_settings_that_make_no_sense_are_usage_errors(world: World, wrong: str) -> None:
    _, err = world.run("queue", "create", "never", "--class", wrong, code=2)
    assert f"--class {wrong}" in err


def test_values_that_cannot_work_are_configuration_errors(world: World) -> None:
    _, err = world.run("queue", "create", "never", "--class", "low:floor=5", code=3)
    assert "floor: must be within 0 and 0.9" in err
    names = [item["name"] for item in world.json("queue", "list")["items"]]
    assert names == [world.queue]


def test_a_task_from_submission_to_result(served: World) -> None:
    out, _ = served.run(
        "task", "submit", served.queue, "send", "to=a@example.org", "copies:=2", "--wait", "60"
    )
    assert json.loads(out) == {"to": "a@example.org", "copies": 2}


def test_submit_prints_the_id_and_result_finds_it(served: World) -> None:
    task_id = served.run(
        "task", "submit", served.queue, "send", "--json-args", '["x"]', "--priority", "critical"
    )[0].strip()
    found = served.json("task", "result", served.queue, task_id, "--wait", "60")
    assert (found["state"], found["result"]) == ("succeeded", {"to": "x", "copies": 1})
    told = served.json("task", "show", served.queue, task_id)
    assert told["complete"] is True
    assert [fact["what"] for fact in told["facts"]][:2] == ["accepted", "dispatched"]
    assert told["facts"][-1]["what"] == "succeeded"
    assert told["task"]["priority"] == "critical"


def test_a_failed_task_is_9_and_a_dead_letter(served: World) -> None:
    task_id = "failing-1"
    arguments = ["task", "submit", served.queue, "fail", "text=no such address"]
    out, err = served.run(*arguments, "--id", task_id, "--wait", "60", code=9)
    assert out == ""
    assert "no such address" in err
    served.run("task", "result", served.queue, task_id, code=9)
    until(
        lambda: any(
            letter["id"] == task_id for letter in served.json("dead", "list", served.queue)["items"]
        ),
        "the dead letter",
    )
    letter = served.json("dead", "show", served.queue, task_id)
    assert letter["reason"] == "exhausted"
    assert json.loads(letter["text"])["data"]["kwargs"] == {"text": "no such address"}
    states = served.json("task", "list", served.queue, "--state", "dead")["items"]
    assert [task["id"] for task in states] == [task_id]


def test_a_wait_in_vain_says_that_the_queue_is_paused(served: World) -> None:
    submit = ["task", "submit", served.queue, "send", "to=x"]
    queue = Queue(
        served.queue,
        kafka=served.environment["ZKCOORD_KAFKA"],
        zookeeper=served.environment["ZKCOORD_ZOOKEEPER"],
    )

    def paused() -> bool:
        return bool(served.json("queue", "show", served.queue)["queue"]["paused"])

    with queue:
        queue.control(Control(action="pause"))
        try:
            until(paused, "it is paused")
            _, err = served.run(*submit, "--id", "held-up", "--wait", "0.5", code=6)
            assert f"has not ended after 0.5 s: queue {served.queue} is paused" in err
            assert "once the queue is resumed" in err
            _, err = served.run("task", "result", served.queue, "held-up", "--wait", "3", code=6)
            assert f"queue {served.queue} is paused" in err
        finally:
            queue.control(Control(action="resume"))
        until(lambda: not paused(), "it goes on")
    served.run("task", "result", served.queue, "held-up", "--wait", "60")
    _, err = served.run(
        "task", "submit", served.queue, "nap", "seconds:=0", "--delay", "1h", "--wait", "0.2",
        code=6,
    )  # fmt: skip
    assert "paused" not in err


def test_json_is_printed_when_the_task_fails_or_takes_too_long(served: World) -> None:
    arguments = ["task", "submit", served.queue, "fail", "text=oops", "--id", "failing-2"]
    failed = served.json(*arguments, "--wait", "60", code=9)
    assert (failed["id"], failed["state"], failed["reason"]) == ("failing-2", "dead", "exhausted")
    assert "oops" in failed["error"]
    assert failed["result"] is None
    arguments = ["task", "submit", served.queue, "nap", "seconds:=0", "--delay", "1h"]
    late = served.json(*arguments, "--wait", "0.2", code=6)
    assert (late["state"], late["result"]) == ("unfinished", None)
    assert late["id"] in late["error"]
    asked = served.json("task", "result", served.queue, late["id"], "--wait", "0.5", code=6)
    assert (asked["id"], asked["state"]) == (late["id"], "unfinished")


def test_only_a_task_that_lives_can_be_cancelled(served: World) -> None:
    served.run(
        "task", "submit", served.queue, "send", "to=x", "--id", "quick-1", "--wait", "60"
    )  # fmt: skip
    before = served.json("dead", "list", served.queue)["items"]
    _, err = served.run("task", "cancel", served.queue, "nope", code=5)
    assert "knows no task 'nope'" in err
    answer = served.json("task", "cancel", served.queue, "quick-1", "nope", code=5)
    assert answer["asked"] == []
    assert answer["not_live"] == {"quick-1": "succeeded", "nope": None}
    _, err = served.run("task", "cancel", served.queue, "quick-1", code=5)
    assert "has ended already: succeeded" in err
    assert served.json("dead", "list", served.queue)["items"] == before


def test_a_record_that_is_no_task_is_found_by_where_it_stood(served: World) -> None:
    topic = Topics(served.queue).low
    offsets: list[int | None] = []
    config = KafkaConfig(bootstrap=served.environment["ZKCOORD_KAFKA"])
    with Producer(config, client_id="rubbish") as producer:
        producer.send(topic, b"rubbish", on_ack=lambda offset, _: offsets.append(offset))
        producer.flush(30)
    name = f"low/0/{offsets[0]}"
    until(lambda: name in served.run("dead", "list", served.queue)[0], "the letter is listed")
    letter = served.json("dead", "show", served.queue, name)
    assert (letter["reason"], letter["text"]) == ("malformed", "rubbish")
    _, err = served.run("task", "result", served.queue, name, code=5)
    assert f"zkcoord dead show {served.queue} {name}" in err
    _, err = served.run("dead", "list", served.queue, "--reason", "bogus")
    assert "no dead letter with reason 'bogus'" in err
    assert "malformed 1" in err


def test_a_result_that_is_not_there_yet_is_6_and_an_unknown_task_5(served: World) -> None:
    arguments = ["task", "submit", served.queue, "nap", "seconds:=0", "--delay", "1h"]
    task_id = served.run(*arguments)[0].strip()
    until(
        lambda: task_id in served.run("task", "list", served.queue, "--state", "waiting")[0],
        "it waits",
    )
    _, err = served.run("task", "result", served.queue, task_id, code=6)
    assert f"task {task_id}" in err
    served.run("task", "cancel", served.queue, task_id, "--reason", "not needed")
    found = served.json("task", "result", served.queue, task_id, "--wait", "60", code=9)
    assert (found["state"], found["reason"]) == ("cancelled", "not needed")
    served.run("task", "show", served.queue, "never-submitted", code=5)


@pytest.mark.parametrize(
    "arguments", [["oops"], ["=x"], ["n:=not json"], ["--json-args", "3"], ["--json-args", "{"]]
)
def test_arguments_that_cannot_be_read_are_usage_errors(world: World, arguments: list[str]) -> None:
    world.run("task", "submit", world.queue, "send", *arguments, code=2)


def test_the_queue_shows_its_leader_and_agents(served: World) -> None:
    (agent,) = served.json("agent", "list", served.queue)["items"]
    assert (agent["name"], agent["slots"], agent["capabilities"]) == ("worker", 3, ["gpu=a100"])
    assert agent["tasks"] == ["fail", "nap", "send"]
    election = served.json("election", "show", f"queue/{served.queue}")
    assert election["leader"]["name"] == "blue"
    until(
        lambda: served.json("queue", "show", served.queue)["queue"]["pressure_age"] is not None,
        "pressure is published",
    )
    queue = served.json("queue", "show", served.queue)["queue"]
    assert (queue["leader"]["name"], queue["agents"], queue["verdict"]) == ("blue", 1, "accept")
    assert queue["pressure_term"] == election["leader"]["token"]


def test_doctor_finds_a_served_queue_healthy(served: World) -> None:
    report = served.json("doctor")
    assert report["healthy"], report
    statuses = {item["check"]: item["status"] for item in report["items"]}
    assert statuses["session timeout"] == "ok"
    assert statuses["zookeeper write"] == "ok"
    assert statuses[f"queue {served.queue} topics"] == "ok"
    assert statuses[f"queue {served.queue} scheduler"] == "warn", "nobody stands by"
    assert statuses[f"queue {served.queue} pressure"] == "ok"


def test_what_is_not_there_is_5(world: World) -> None:
    for arguments in (
        ["queue", "show", "nope"],
        ["agent", "list", "nope"],
        ["task", "list", "nope"],
        ["dead", "list", "nope"],
        ["dead", "show", world.queue, "nope"],
        ["election", "show", "nope"],
        ["task", "submit", "nope", "send"],
    ):
        out, err = world.run(*arguments, code=5)
        assert out == ""
        assert err.startswith("error: "), arguments


@pytest.mark.parametrize(
    ("handlers", "message"),
    [
        ("nomodule:queue", "there is no module 'nomodule'"),
        ("app:nope", "app has no 'nope'"),
        ("app:time", "is of type 'module', which has no handlers"),
        ("broken:queue", "the module cannot be imported: ZeroDivisionError"),
        ("other:queue", "is queue 'other', not"),
    ],
)
def test_handlers_that_cannot_be_had_are_explained(
    world: World, handlers: str, message: str
) -> None:
    (world.folder / "broken.py").write_text("1 / 0\n")
    (world.folder / "other.py").write_text(HANDLERS.replace("QUEUE", "other"))
    _, err = world.run("agent", "run", world.queue, "--handlers", handlers, code=3)
    assert message in err
    assert "Traceback" not in err


def test_locks_from_the_command_line(world: World) -> None:
    script = "echo $ZKCOORD_LOCK_TOKEN > token; touch held; while [ ! -e go ]; do sleep 0.05; done"
    first = world.start("lock", "run", "gpu-0", "--", "sh", "-c", script)
    try:
        until((world.folder / "held").exists, "the first holds")
        _, err = world.run("lock", "run", "gpu-0", "--try", "--", "true", code=124)
        assert "lock gpu-0 is held by lock run sh (pid " in err
        world.run("lock", "run", "gpu-0", "--timeout", "300ms", "--", "true", code=124)
        with (world.folder / "second.log").open("w") as log:
            second = world.start("lock", "run", "gpu-0", "--", "sh", "-c", "exit 7", stderr=log)
        said = "waiting for lock gpu-0, held by lock run sh (pid "
        until(lambda: said in (world.folder / "second.log").read_text(), "it says why it waits")
        until(lambda: len(world.json("lock", "show", "gpu-0")["waiters"]) == 1, "one waits")
        shown = world.json("lock", "show", "gpu-0")
        assert shown["holder"]["token"] == int((world.folder / "token").read_text())
        assert shown["holder"]["name"] == "lock run sh"
        assert shown["waiters"][0]["token"] > shown["holder"]["token"]
        assert [lock["name"] for lock in world.json("lock", "list", "--held")["items"]] == ["gpu-0"]
    finally:
        (world.folder / "go").touch()
    assert first.wait(timeout=60) == 0
    assert second.wait(timeout=60) == 7
    until(lambda: world.json("lock", "show", "gpu-0")["holder"] is None, "it is free")


def test_a_waiting_lock_run_that_is_told_to_leave_gives_its_place_back(world: World) -> None:
    holder = world.start("lock", "run", "door", "--", "sleep", "1000")
    until(lambda: world.json("lock", "show", "door")["holder"] is not None, "held")
    waiter = world.start("lock", "run", "door", "--", "true")
    until(lambda: len(world.json("lock", "show", "door")["waiters"]) == 1, "one waits")
    waiter.send_signal(signal.SIGTERM)
    assert waiter.wait(timeout=60) == 128 + signal.SIGTERM
    assert world.json("lock", "show", "door")["waiters"] == []
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(timeout=60) == 128 + signal.SIGTERM
    assert world.json("lock", "show", "door")["holder"] is None


@pytest.mark.parametrize(("command", "code"), [("no-such-command-anywhere", 127), ("/etc", 126)])
def test_commands_that_cannot_run(world: World, command: str, code: int) -> None:
    world.run("lock", "run", "door", "--", command, code=code)


def test_a_grace_longer_than_the_lease_is_refused(world: World) -> None:
    _, err = world.run("lock", "run", "door", "--grace", "60", "--", "true", code=3)
    assert "--grace 60" in err


def test_servers_that_do_not_answer_are_4_and_125(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(world.environment, "ZKCOORD_CONNECT_TIMEOUT_S", "1")
    nowhere = ["--zookeeper", "127.0.0.1:1", "--kafka", "127.0.0.1:1"]
    _, err = world.run("queue", "list", *nowhere, code=4)
    assert "127.0.0.1:1" in err
    _, err = world.run("lock", "run", "door", *nowhere, "--", "true", code=125)
    assert "127.0.0.1:1" in err
    report = world.json("doctor", *nowhere, code=11)
    failed = [item["check"] for item in report["items"] if item["status"] == "FAIL"]
    assert failed[:2] == ["zookeeper server 127.0.0.1:1", "zookeeper quorum"]
    assert "kafka" in failed
