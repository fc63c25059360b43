"""`zkcoord lock wait|revoke|break|list|show` and `lock run`'s ways to hold, on a real server."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from zkcoord.recipes import Lock, ReadWriteLock, Revocation, Semaphore
from zkcoord.zk import Session
from zkcoord_cli.exit_codes import ExitCode, LockRunCode
from zkcoord_cli.main import cli


def until(condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.02)


@pytest.fixture
def session(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, name="holder") as session:
        yield session


@pytest.fixture
def other(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, name="waiter") as session:
        yield session


@pytest.fixture
def command(zookeeper: str) -> Any:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["lock", *arguments], env={"ZKCOORD_ZOOKEEPER": zookeeper})

    return run


_LISTENING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from zkcoord_cli.main import cli; cli()"
)


class Process:
    """A command as a process of its own; its lines are read in a thread."""

    def __init__(self, zookeeper: str, *arguments: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            # A shell's background job ignores SIGINT, and so would what it starts.
            [sys.executable, "-c", _LISTENING, *arguments],
            text=True,
            env={**os.environ, "ZKCOORD_ZOOKEEPER": zookeeper},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    def end(self, number: int | None = None) -> tuple[int, str]:
        """Send a signal, wait for the end; status and what it said."""
        if number is not None:
            self.process.send_signal(number)
        assert self.process.stderr is not None
        said = self.process.stderr.read()
        status = self.process.wait(timeout=60)
        self._reader.join(10)
        self.process.stdout.close()  # type: ignore[union-attr]
        self.process.stderr.close()
        return status, said


@pytest.fixture
def start(zookeeper: str) -> Iterator[Callable[..., Process]]:
    begun: list[Process] = []

    def start(*arguments: str) -> Process:
        begun.append(Process(zookeeper, *arguments))
        return begun[-1]

    yield start
    for one in begun:
        one.process.kill()
        one.process.wait(10)


def parsed(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def waiting(session: Session, folder: str = "/locks/gpu") -> int:
    return len(session.nodes.children(folder))


# --- wait -----------------------------------------------------------------------------------------


def test_wait_ends_when_nobody_holds_it(session: Session, command: Any) -> None:
    assert command("wait", "gpu").exit_code == ExitCode.OK
    lease = Lock(session, "gpu").acquire(5)
    late = command("wait", "gpu", "--timeout", "0.1")
    assert late.exit_code == ExitCode.TIMED_OUT
    assert f"still held by holder, token {lease.token}" in late.stderr
    ended: list[Result] = []
    looking = threading.Thread(target=lambda: ended.append(command("wait", "gpu")))
    looking.start()
    looking.join(0.3)
    assert ended == []
    lease.release(5)
    looking.join(30)
    assert ended[0].exit_code == ExitCode.OK
    assert ended[0].stdout == ""


# --- revoke ---------------------------------------------------------------------------------------


def test_revoke_asks_a_holder_who_listens(session: Session, command: Any) -> None:
    heard: list[Revocation] = []
    lease = Lock(session, "gpu").acquire(5, on_revoke=heard.append)
    asked = parsed(command("revoke", "gpu", "--reason", "the demo", "--json"))
    assert asked["schema"] == "zkcoord.lock.revoke/1"
    assert asked["name"] == "gpu"
    assert [one["token"] for one in asked["asked"]] == [lease.token]
    until(lambda: heard, "the holder hears of it")
    assert heard[0].reason == "the demo"
    shown = command("show", "gpu")
    assert "holder was asked to let go: the demo" in shown.stderr
    holder = parsed(command("show", "gpu", "--json"))["holder"]
    assert (holder["revocable"], holder["revoked"]) == (True, "the demo")
    assert f"token {lease.token}" in command("revoke", "gpu", "--reason", "again").stderr


def test_revoke_says_who_does_not_listen_and_when_nobody_holds(
    session: Session, command: Any
) -> None:
    missing = command("revoke", "gpu", "--reason", "x")
    assert missing.exit_code == ExitCode.NOT_FOUND
    assert "nobody holds it" in missing.stderr
    lease = Lock(session, "gpu").acquire(5)
    refused = command("revoke", "gpu", "--reason", "x")
    assert refused.exit_code == ExitCode.REFUSED
    assert "does not listen" in refused.stderr
    lease.check()
    assert command("revoke", "gpu", "--reason", " ").exit_code == ExitCode.USAGE
    assert command("revoke", "gpu").exit_code == ExitCode.USAGE


# --- break ----------------------------------------------------------------------------------------


def test_break_hits_the_holder_that_is_meant_and_leaves_a_record(
    session: Session, other: Session, command: Any, zookeeper: str
) -> None:
    lease = Lock(session, "gpu").acquire(5, on_revoke=lambda _: None)
    token = str(lease.token)
    queued = Lock(other, "gpu").acquire_future(60)
    unsure = command("break", "gpu", "--token", token, "--reason", "gone")
    assert unsure.exit_code == ExitCode.REFUSED
    assert "--yes" in unsure.stderr
    wrong = command("break", "gpu", "--token", "17", "--reason", "gone", "--yes")
    assert wrong.exit_code == ExitCode.REJECTED
    assert token in wrong.stderr
    lease.check()
    arguments = ("break", "gpu", "--token", token, "--reason", "host is gone", "--yes")
    record = parsed(command(*arguments, "--json"))
    assert record["schema"] == "zkcoord.lock.break/1"
    assert (record["name"], record["token"]) == ("gpu", lease.token)
    assert (record["reason"], record["holder"]["name"]) == ("host is gone", "holder")
    assert lease.lost.wait(10)
    with queued.wait():
        shown = CliRunner().invoke(
            cli, ["node", "tree", "/audit/broken", "--json"], env={"ZKCOORD_ZOOKEEPER": zookeeper}
        )
        assert len(json.loads(shown.stdout)["items"]) == 2
        assert command(*arguments).exit_code == ExitCode.REJECTED  # somebody else has it
    free = command(*arguments)
    assert free.exit_code == ExitCode.NOT_FOUND


# --- list and show --------------------------------------------------------------------------------


def test_readers_share_and_a_writer_waits_behind_them(
    session: Session, other: Session, command: Any
) -> None:
    one = ReadWriteLock(session, "gpu", label="first").read.acquire_future(5).wait()
    two = ReadWriteLock(other, "gpu", label="second").read.acquire_future(5).wait()
    writer = ReadWriteLock(other, "gpu", label="third").write.acquire_future(60)
    until(lambda: waiting(session) == 3, "the writer waits")
    shown = parsed(command("show", "gpu", "--json"))
    assert [holder["token"] for holder in shown["holders"]] == [one.token, two.token]
    assert [holder["shared"] for holder in shown["holders"]] == [True, True]
    assert [waiter["shared"] for waiter in shown["waiters"]] == [False]
    assert shown["holder"] == shown["holders"][0]
    places = [line.split("  ")[0] for line in command("show", "gpu").stdout.splitlines()]
    assert places == ["PLACE", "shares", "shares", "waits, 2 ahead"]
    assert "first and 1 reader" in command("list").stdout
    writer.cancel()
    for lease in (one, two):
        lease.release(5)
    exclusive = ReadWriteLock(session, "gpu").write.acquire_future(5).wait()
    shown = parsed(command("show", "gpu", "--json"))
    assert [holder["token"] for holder in shown["holders"]] == [exclusive.token]


def test_contenders_of_another_library_are_shown_as_they_name_themselves(
    session: Session, zookeeper: str, command: Any
) -> None:
    client = KazooClient(zookeeper)
    client.start(15)
    try:
        client.Lock("/locks/gpu", identifier="a kazoo program").acquire(timeout=10)
        ours = Lock(session, "gpu").acquire_future(60)
        until(lambda: waiting(session) == 2, "ours waits")
        shown = parsed(command("show", "gpu", "--json"))
        assert (shown["holder"]["name"], shown["holder"]["host"]) == ("a kazoo program", "")
        assert [one["name"] for one in shown["waiters"]] == ["holder"]
        line = command("show", "gpu").stdout.splitlines()[1]
        assert line.split()[:6] == ["holds", "a", "kazoo", "program", "-", "-"]
        refused = command("revoke", "gpu", "--reason", "x")
        assert refused.exit_code == ExitCode.REFUSED
        assert "a kazoo program" in refused.stderr
        ours.cancel()
    finally:
        client.stop()
        client.close()


def test_watching_tells_of_each_change_until_interrupted(
    session: Session, other: Session, start: Callable[..., Process]
) -> None:
    one = start("lock", "show", "gpu", "--watch", "--json")
    all_of_them = start("lock", "list", "--watch", "--json", "--held")
    until(lambda: len(one.lines) == len(all_of_them.lines) == 1, "both look")
    assert json.loads(one.lines[0])["holder"] is None
    lease = Lock(session, "gpu").acquire(5)
    until(lambda: len(one.lines) == len(all_of_them.lines) == 2, "it is held")
    queued = Lock(other, "gpu").acquire_future(60)
    until(lambda: len(one.lines) == len(all_of_them.lines) == 3, "somebody waits")
    queued.cancel()
    lease.release(5)
    until(lambda: json.loads(one.lines[-1])["holder"] is None, "it is free")
    until(lambda: json.loads(all_of_them.lines[-1])["items"] == [], "nothing is held")
    for watcher in (one, all_of_them):
        status, said = watcher.end(signal.SIGINT)
        assert (status, said.strip()) == (ExitCode.INTERRUPTED, "interrupted")
    documents = [json.loads(line) for line in one.lines]
    assert {document["schema"] for document in documents} == {"zkcoord.lock.show/1"}
    gists = [(one["holder"] and one["holder"]["token"], len(one["waiters"])) for one in documents]
    assert all(gist != after for gist, after in itertools.pairwise(gists))  # ages are no change
    assert documents[1]["holder"]["token"] == lease.token
    assert documents[2]["waiters"][0]["name"] == "waiter"


# --- run ------------------------------------------------------------------------------------------


def test_readers_run_together_and_exclude_writers(
    session: Session, command: Any, zookeeper: str
) -> None:
    readers = [Running(zookeeper, "docs", "--shared") for _ in range(2)]
    try:
        for reader in readers:
            reader.held()
        view = parsed(command("show", "docs", "--json"))
        assert [one["shared"] for one in view["holders"]] == [True, True]
        refused = command("run", "docs", "--try", "--", "true")
        assert refused.exit_code == LockRunCode.NOT_ACQUIRED
        assert "lock show docs" in refused.stderr
    finally:
        ended = [reader.end() for reader in readers]
    assert ended == [0, 0]
    with Lock(session, "docs").acquire(10):
        shared = command("run", "docs", "--shared", "--timeout", "0.2", "--", "true")
        assert shared.exit_code == LockRunCode.NOT_ACQUIRED


def test_permits_are_held_by_weight(session: Session, zookeeper: str, command: Any) -> None:
    unknown = command("run", "gpus", "--permits", "0", "--try", "--", "true")
    assert unknown.exit_code == ExitCode.CONFIGURATION  # nobody said how many there are
    two = Running(zookeeper, "gpus", "--permits", "3", "--weight", "2")
    one = Running(zookeeper, "gpus", "--permits", "3")
    try:
        two.held()
        one.held()
        seen = Semaphore(session, "gpus").standing()
        assert (seen.permits, seen.held) == (3, 3)
        refused = command("run", "gpus", "--permits", "0", "--try", "--", "true")
        assert refused.exit_code == LockRunCode.NOT_ACQUIRED
        assert "semaphore show gpus" in refused.stderr
        differs = command("run", "gpus", "--permits", "4", "--try", "--", "true")
        assert differs.exit_code == ExitCode.CONFIGURATION
        heavy = command("run", "gpus", "--permits", "0", "--weight", "9", "--try", "--", "true")
        assert heavy.exit_code == ExitCode.CONFIGURATION
        assert two.end() == 0
        stored = Running(zookeeper, "gpus", "--permits", "0", "--weight", "2")
        stored.held()
        assert stored.end() == 0
    finally:
        assert one.end() == 0
    until(lambda: Semaphore(session, "gpus").standing().held == 0, "all is given back")


class Running:
    """`lock run` with a command that says that it runs and ends when its input does."""

    def __init__(self, zookeeper: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "zkcoord_cli", "lock", "run", "--timeout", "30", *arguments,
             "--", "sh", "-c", "echo held; read line"],
            text=True,
            env={**os.environ, "ZKCOORD_ZOOKEEPER": zookeeper},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip

    def held(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def end(self) -> int:
        self.process.communicate("go on\n", timeout=60)
        return self.process.returncode


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--shared --permits 2", "--shared and --permits"),
        ("--weight 2", "only with --permits"),
        ("--permits -1", "--permits"),
        ("--permits 2 --weight 0", "--weight"),
        ("--grace 1 --on-lost kill", "only with --on-lost stop"),
        ("--grace 1 --on-lost continue", "only with --on-lost stop"),
        ("--on-lost wait", "--on-lost"),
        ("--try --timeout 3", "--try and --timeout"),
    ],
)
def test_what_does_not_go_together_is_refused(command: Any, options: str, said: str) -> None:
    result = command("run", "gpu", *options.split(), "--", "true")
    assert result.exit_code == ExitCode.USAGE
    assert said in result.stderr
