"""`zkcoord election` against real servers: observing, and asking leaders to go."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from zkcoord import Scheduler
from zkcoord.errors import LeaseLost
from zkcoord.recipes import Election, Leadership, Revocation
from zkcoord.zk import Session
from zkcoord_cli.exit_codes import ExitCode
from zkcoord_cli.main import cli


def until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.02)


@pytest.fixture
def session(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, name="blue") as session:
        yield session


@pytest.fixture
def other(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, name="green") as session:
        yield session


@pytest.fixture
def command(zookeeper: str) -> Any:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(
            cli, ["election", *arguments], env={"ZKCOORD_ZOOKEEPER": zookeeper}
        )

    return run


def parsed(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def stands(session: Session, count: int) -> bool:
    return len(session.nodes.children("/elections/nightly")) == count


def test_observe_prints_each_leader(session: Session, other: Session, command: Any) -> None:
    ended: list[Result] = []
    looking = threading.Thread(
        target=lambda: ended.append(command("observe", "nightly", "--for", "4", "--json"))
    )
    looking.start()
    terms = []
    while looking.is_alive():  # it may take a moment until somebody observes
        leadership = Election(session, "nightly").campaign(timeout=5, data=b"here")
        looking.join(0.3)
        leadership.proclaim(b"\xff")
        looking.join(0.3)
        terms.append(leadership.term)
        leadership.release(timeout=5)
        looking.join(0.3)
    lines = [json.loads(line) for line in ended[0].stdout.splitlines()]
    assert {line["schema"] for line in lines} == {"zkcoord.election.observe/1"}
    leaders = [line["leader"] for line in lines]
    assert None in leaders
    led = [leader for leader in leaders if leader is not None]
    assert {leader["term"] for leader in led} <= set(terms)
    assert {leader["name"] for leader in led} == {"blue"}
    assert "here" in [leader.get("text") for leader in led]
    assert "/w==" in [leader.get("base64") for leader in led]
    with Election(other, "nightly").lead(5, b"there"):
        (line,) = command("observe", "nightly", "--for", "1").stdout.splitlines()
    assert line.split()[2] == "green"
    assert line.endswith("there")


def test_a_leader_that_runs_a_function_resigns_when_asked(
    session: Session, other: Session, command: Any
) -> None:
    def lead(leadership: Leadership) -> None:
        leadership.lost.wait(60)

    def serve() -> None:
        with pytest.raises(LeaseLost, match="asked to resign"):
            election.run(lead, terms=2)

    election = Election(session, "nightly")
    leading = threading.Thread(target=serve)
    leading.start()
    until(lambda: election.state == "leading", "blue leads")
    alone = command("resign", "nightly", "--reason", "x", "--wait", "0.1")
    assert "blue" in alone.stderr  # whether it leads again by then is a matter of luck
    until(lambda: election.state == "leading", "it leads again, since nobody else stands")
    red = Election(other, "nightly", label="red").campaign_future(60)
    until(lambda: stands(other, 2), "red stands by")
    pink = Election(other, "nightly", label="pink").campaign_future(60)
    until(lambda: stands(other, 3), "pink stands by")
    missing = command("transfer", "nightly", "--to", "grey", "--reason", "x")
    assert missing.exit_code == ExitCode.NOT_FOUND
    assert "'red', 'pink'" in missing.stderr
    asked = parsed(
        command("transfer", "nightly", "--to", "pink", "--reason", "x", "--wait", "20", "--json")
    )
    assert asked["schema"] == "zkcoord.election.transfer/1"
    chosen = pink.wait()
    assert asked["after"] == {"term": chosen.term, "leader": "pink"}
    assert asked["asked"]["leader"].startswith("blue (pid ")
    assert not red.done()
    refused = command("resign", "nightly", "--reason", "x")
    assert refused.exit_code == ExitCode.REFUSED
    assert "pink" in refused.stderr
    chosen.release()
    red.wait().release()
    leading.join(20)
    assert not leading.is_alive()


def test_a_leader_that_listens_is_shown_as_asked(
    session: Session, other: Session, command: Any
) -> None:
    heard: list[Revocation] = []
    assert command("resign", "nightly", "--reason", "x").exit_code == ExitCode.NOT_FOUND
    leadership = Election(session, "nightly").campaign(5, on_revoke=heard.append)
    Election(other, "nightly").campaign_future(60)
    until(lambda: stands(other, 2), "green stands by")
    late = command("resign", "nightly", "--reason", "an upgrade", "--wait", "0.1")
    assert late.exit_code == ExitCode.TIMED_OUT
    until(lambda: heard, "it hears of it")
    shown = command("show", "nightly")
    assert "blue was asked to resign: an upgrade" in shown.stderr
    assert parsed(command("show", "nightly", "--json"))["leader"]["revoked"] == "an upgrade"
    target = f"{other.id % (1 << 64):#x}"
    done = command("transfer", "nightly", "--to", target, "--reason", "by session")
    assert done.exit_code == ExitCode.OK
    until(lambda: len(heard) == 2, "it hears of the second as well")
    assert heard[1].to == other.id
    leadership.transfer(heard[1].to)


def test_schedulers_hand_over_and_resign_when_asked(
    zookeeper: str, kafka: str, queue_name: str, command: Any
) -> None:
    made = CliRunner().invoke(
        cli,
        ["queue", "create", queue_name],
        env={"ZKCOORD_ZOOKEEPER": zookeeper, "ZKCOORD_KAFKA": kafka},
    )
    assert made.exit_code == 0, made.stderr
    name = f"queue/{queue_name}"
    schedulers: dict[str, Scheduler] = {}
    try:
        for place, one in enumerate(("blue", "green", "red")):
            schedulers[one] = Scheduler(queue_name, kafka=kafka, zookeeper=zookeeper, name=one)
            schedulers[one].start(60)
            until(
                lambda: len(parsed(command("show", name, "--json"))["standbys"]) == place,  # noqa: B023
                f"{one} stands",
            )
        blue, green, red = schedulers.values()
        until(lambda: blue.state(queue_name) == "leading", "blue leads")
        missing = command("transfer", name, "--to", "grey", "--reason", "x")
        assert missing.exit_code == ExitCode.NOT_FOUND
        handed = command("transfer", name, "--to", "red", "--reason", "x", "--wait", "30")
        assert handed.exit_code == 0, handed.stderr
        assert "red leads" in handed.stderr
        until(lambda: red.state(queue_name) == "leading", "red leads")
        until(lambda: blue.state(queue_name) == "standby", "blue stands by")
        until(lambda: len(parsed(command("show", name, "--json"))["standbys"]) == 2, "both stand")
        standbys = [one["name"] for one in parsed(command("show", name, "--json"))["standbys"]]
        assert command("resign", name, "--reason", "x", "--wait", "30").exit_code == 0
        next_one = schedulers[standbys[0]]
        until(lambda: next_one.state(queue_name) == "leading", f"{standbys[0]} leads")
        assert {one.failure(queue_name) for one in (blue, green, red)} == {None}
    finally:
        for scheduler in schedulers.values():
            scheduler.stop()
