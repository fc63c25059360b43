"""`zkcoord semaphore`, `pool` and `member` against a real server."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from zkcoord.recipes import Membership, Pool, Profile, Semaphore
from zkcoord.zk import Session
from zkcoord_cli.exit_codes import ExitCode
from zkcoord_cli.main import cli


def until(condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.02)


@pytest.fixture
def session(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, name="worker") as session:
        yield session


@pytest.fixture
def command(zookeeper: str, session: Session) -> Any:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, env={"ZKCOORD_ZOOKEEPER": zookeeper})

    return run


def parsed(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


# --- semaphore ------------------------------------------------------------------------------------


def test_a_semaphore_shows_who_holds_how_many_and_who_waits(session: Session, command: Any) -> None:
    assert "nobody uses it" in command("semaphore", "show", "gpus").stdout
    assert "nobody uses any" in command("semaphore", "list").stderr
    one = Semaphore(session, "gpus", 4, label="first").acquire(3, timeout=5)
    two = Semaphore(session, "gpus", label="second").acquire_future(2, timeout=60)
    until(lambda: Semaphore(session, "gpus").standing().waiting == 1, "it waits")
    shown = parsed(command("semaphore", "show", "gpus", "--json"))
    assert (shown["permits"], shown["held"], shown["waiting"]) == (4, 3, 1)
    assert [(o["name"], o["weight"], o["token"]) for o in shown["holders"]] == [
        ("first", 3, one.token)
    ]
    assert [(o["name"], o["weight"], o["place"]) for o in shown["waiters"]] == [("second", 2, 1)]
    head, _, *rows = command("semaphore", "show", "gpus").stdout.splitlines()
    assert head == "held: 3 of 4 permits; waiting: 1 request"
    assert rows[0].startswith("holds")
    assert rows[1].startswith("waits, 1 ahead")
    assert command("semaphore", "list").stdout.splitlines()[1].split() == [
        "gpus", "4", "3", "1", "1",
    ]  # fmt: skip
    refused = command("semaphore", "resize", "gpus", "2")
    assert refused.exit_code == ExitCode.REFUSED
    assert not two.done()
    resized = parsed(command("semaphore", "resize", "gpus", "5", "--json"))
    assert (resized["permits"], resized["before"]) == (5, 4)
    two.wait()
    drained = parsed(command("semaphore", "resize", "gpus", "4", "--force", "--json"))
    assert (drained["permits"], drained["held"]) == (4, 5)
    assert session.nodes.exists("/semaphores/gpus/kept") is not None
    assert command("semaphore", "forget", "gpus").exit_code == 0
    assert session.nodes.exists("/semaphores/gpus/kept") is None


def test_a_resize_of_a_name_that_nobody_uses_says_so(session: Session, command: Any) -> None:
    new = command("semaphore", "resize", "gpuss", "3")
    assert new.exit_code == ExitCode.OK
    assert "semaphore gpuss is new, nobody has used that name: 3 permits" in new.stderr
    assert "zkcoord semaphore forget gpuss" in new.stderr
    again = command("semaphore", "resize", "gpuss", "4")
    assert (again.exit_code, again.stderr) == (
        ExitCode.OK,
        "semaphore gpuss: 4 permits, before 3; 0 are held\n",
    )
    said = command("semaphore", "resize", "other", "3", "--json")
    assert parsed(said)["new"] is True
    assert "is new" in said.stderr
    assert parsed(command("semaphore", "resize", "other", "5", "--json"))["new"] is False


def test_what_is_no_semaphore_is_told_and_does_not_hide_the_others(
    session: Session, command: Any
) -> None:
    session.nodes.create("/semaphores/odd", b"something else", makepath=True)
    lease = Semaphore(session, "good", 2).acquire(timeout=5)
    items = parsed(command("semaphore", "list", "--json"))["items"]
    assert [(one["name"], one["held"], bool(one["problem"])) for one in items] == [
        ("good", 1, False),
        ("odd", 0, True),
    ]
    assert "odd" in command("semaphore", "list").stderr
    shown = command("semaphore", "show", "odd")
    assert shown.exit_code == ExitCode.REFUSED
    assert "not a limit" in shown.stderr
    assert command("semaphore", "resize", "good", "0").exit_code == ExitCode.USAGE
    assert command("semaphore", "show", "a/b").exit_code == ExitCode.USAGE
    lease.release()


# --- pool -----------------------------------------------------------------------------------------


def test_a_pool_shows_its_slots_and_drains_them(session: Session, command: Any) -> None:
    assert "nobody uses it" in command("pool", "show", "gpus").stdout
    missing = command("pool", "add", "gpus", "gpu-0")
    assert missing.exit_code == ExitCode.NOT_FOUND
    lease = Pool(session, "gpus", ["gpu-0", "gpu-1"], label="train").acquire(timeout=5)
    shown = parsed(command("pool", "show", "gpus", "--json"))
    assert [one["slot"] for one in shown["slots"]] == ["gpu-0", "gpu-1"]
    holder = shown["slots"][0]["holder"]
    assert (holder["name"], holder["token"]) == ("train", lease.token)
    assert shown["slots"][1]["holder"] is None
    assert parsed(command("pool", "drain", "gpus", "gpu-0", "--json"))["free"] is False
    assert "still held" in command("pool", "drain", "gpus", "gpu-0").stderr
    assert parsed(command("pool", "drain", "gpus", "gpu-1", "--json"))["free"] is True
    assert command("pool", "drain", "gpus", "gpu-9").exit_code == ExitCode.NOT_FOUND
    states = [line.split("  ")[1:3] for line in command("pool", "show", "gpus").stdout.splitlines()]
    assert ["held, drains", "train"] in states
    parsed(command("pool", "add", "gpus", "gpu-1", "gpu-2", "--json"))
    row = command("pool", "list").stdout.splitlines()[1].split()
    assert row == ["gpus", "3", "1", "1", "0"]
    assert lease.slot == "gpu-0"


# --- member ---------------------------------------------------------------------------------------


def test_members_with_what_they_publish(session: Session, command: Any) -> None:
    empty = command("member", "list", "/members/web")
    assert (empty.exit_code, empty.stdout) == (0, "")
    group = Membership(session, "/members/web")
    plain = group.join("a", b"\xff")
    group.join("b", profile=Profile(capabilities=("gpu", "region=eu"), capacity=4, load=1.5))
    items = parsed(command("member", "list", "/members/web", "--json"))["items"]
    assert [one["name"] for one in items] == ["a", "b"]
    assert (items[0]["token"], items[0]["base64"]) == (plain.token, "/w==")
    assert items[0]["load"] is None
    assert (items[1]["load"], items[1]["capacity"]) == (1.5, 4.0)
    assert items[1]["capabilities"] == ["gpu", "region=eu"]
    assert int(items[1]["session"], 16) == session.id % (1 << 64)
    assert items[1]["age"] >= 0
    text = command("member", "list", "/members/web").stdout.splitlines()
    assert "1.5 of 4" in text[2]
    assert "gpu region=eu" in text[2]
    assert command("member", "list", "members").exit_code == ExitCode.USAGE


def test_watching_a_group_prints_who_comes_and_goes(session: Session, command: Any) -> None:
    group = Membership(session, "/members/web")
    first = group.join("a", b"one")
    ended: list[Result] = []
    looking = threading.Thread(
        target=lambda: ended.append(
            command("member", "watch", "/members/web", "--for", "3", "--json")
        )
    )
    looking.start()
    while looking.is_alive():  # it may take a moment until somebody watches
        second = group.join("b", profile=Profile(capabilities=("gpu",)))
        first.update(b"two")
        first.update(b"three")
        second.release_future().wait()
        looking.join(0.1)
    changes = [json.loads(line) for line in ended[0].stdout.splitlines()]
    assert {change["schema"] for change in changes} == {"zkcoord.member.watch/1"}
    told = {(change["event"], change["name"]) for change in changes}
    assert told == {("joined", "a"), ("joined", "b"), ("left", "b"), ("updated", "a")}
    joined = next(change for change in changes if change["name"] == "b")
    assert joined["capabilities"] == ["gpu"]
    updates = {change.get("text") for change in changes if change["name"] == "a"}
    assert "three" in updates


def test_watching_a_group_in_words(session: Session, command: Any) -> None:
    Membership(session, "/members/web").join("a", profile=Profile(capacity=2, load=1))
    shown = command("member", "watch", "/members/web", "--for", "1s")
    assert shown.exit_code == 0
    (line,) = shown.stdout.splitlines()
    assert line.endswith("a joined  1 of 2")
