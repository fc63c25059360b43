"""`lock run` that is asked to let go: SIGTERM to all it started, and what becomes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zkcoord.errors import NotRevocable
from zkcoord.recipes import Lock, ReadWriteLock, revoke
from zkcoord.zk import Session
from zkcoord_cli.exit_codes import LockRunCode
from zkcoord_cli.main import cli

LOOP = "while [ ! -e go ]; do sleep 0.05; done"


def until(condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


class Holder:
    """`lock run` of a shell script in a folder of its own; the script touches `held`."""

    def __init__(self, zookeeper: str, folder: Path) -> None:
        self.folder = folder
        self.zookeeper = zookeeper
        self.process: subprocess.Popen[str] | None = None

    def start(self, script: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "zkcoord_cli", "lock", "run", "gpu", *options,
             "--", "sh", "-c", script],
            env={**os.environ, "ZKCOORD_ZOOKEEPER": self.zookeeper},
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        until((self.folder / "held").exists, "the command runs")

    def end(self) -> tuple[int, str, str]:
        assert self.process is not None
        out, said = self.process.communicate(timeout=60)
        return self.process.returncode, out, said


@pytest.fixture
def holder(zookeeper: str, tmp_path: Path) -> Iterator[Holder]:
    one = Holder(zookeeper, tmp_path)
    yield one
    if one.process is not None:
        one.process.kill()
        one.process.communicate()


def test_a_command_that_traps_sigterm_cleans_up_under_the_lock(
    holder: Holder, session: Session
) -> None:
    clean = "touch asked; while [ ! -e cleaned ]; do sleep 0.05; done; echo clean; exit 3"
    holder.start(f"trap '{clean}' TERM; touch held; {LOOP}")
    queued = Lock(session, "gpu").acquire_future(60)
    (told,) = revoke(session, "gpu", "the demo", by="ops")
    until((holder.folder / "asked").exists, "SIGTERM")
    assert not queued.done()  # it is held while the command cleans up
    (holder.folder / "cleaned").touch()
    status, out, said = holder.end()
    assert (status, out) == (LockRunCode.REVOKED, "clean\n")
    assert "ops asks for lock gpu: the demo; sending SIGTERM" in said
    assert said.splitlines()[-1] == "lock gpu is given back; the command ended with status 3"
    with queued.wait() as lease:
        assert lease.token > told.token


def test_a_command_that_sigterm_ends(holder: Holder, session: Session) -> None:
    holder.start(f"touch held; {LOOP}")
    revoke(session, "gpu", "the demo")
    status, _, said = holder.end()
    assert status == LockRunCode.REVOKED
    assert f"status {128 + signal.SIGTERM}" in said


def test_a_command_that_ignores_sigterm_keeps_the_lock_and_is_asked_each_time(
    holder: Holder, session: Session
) -> None:
    holder.start(f"trap 'echo x >>asked' TERM; touch held; {LOOP}; exit 0")
    asked = holder.folder / "asked"

    def was_asked(times: int) -> Callable[[], bool]:
        return lambda: asked.exists() and asked.read_text().count("x") == times

    for times in (1, 2):
        revoke(session, "gpu", f"reason {times}")
        until(was_asked(times), "it is asked")
    assert session.nodes.children("/locks/gpu")
    (holder.folder / "go").touch()
    status, _, said = holder.end()
    assert status == LockRunCode.REVOKED
    assert said.count("sending SIGTERM") == 2
    assert "ended with status 0" in said


def test_with_kill_it_is_ended_after_the_grace_with_all_it_started(
    holder: Holder, session: Session
) -> None:
    forked = 'trap "" TERM; echo $$ >>pids; while :; do sleep 0.05; done'
    holder.start(
        f"trap '' TERM HUP; (setsid sh -c '{forked}' &); (sh -c '{forked}' &); echo $$ >>pids;"
        f"while [ $(wc -l <pids) -lt 3 ]; do sleep 0.05; done; touch held; {LOOP}",
        "--on-revoke", "kill", "--grace", "1",
    )  # fmt: skip
    pids = [int(line) for line in (holder.folder / "pids").read_text().split()]
    queued = Lock(session, "gpu").acquire_future(60)
    revoke(session, "gpu", "the demo")
    with queued.wait():
        assert [pid for pid in pids if is_alive(pid)] == []
    status, _, said = holder.end()
    assert status == LockRunCode.REVOKED
    assert f"status {128 + signal.SIGKILL}" in said


def test_grandchildren_that_left_the_group_are_asked_too(holder: Holder, session: Session) -> None:
    forked = 'trap "touch grandchild; exit" TERM; touch forked; while :; do sleep 0.05; done'
    holder.start(
        f"trap 'touch child' TERM; (setsid sh -c '{forked}' &);"
        f"while [ ! -e forked ]; do sleep 0.05; done; touch held; {LOOP}"
    )
    revoke(session, "gpu", "the demo")
    for name in ("child", "grandchild"):
        until((holder.folder / name).exists, name)
    (holder.folder / "go").touch()
    assert holder.end()[0] == LockRunCode.REVOKED


def test_with_ignore_nobody_is_asked(holder: Holder, session: Session) -> None:
    holder.start(f"trap 'exit 9' TERM; touch held; {LOOP}; exit 4", "--on-revoke", "ignore")
    with pytest.raises(NotRevocable):
        revoke(session, "gpu", "the demo")
    (holder.folder / "go").touch()
    assert holder.end() == (4, "", "")


def test_a_reader_is_asked_as_well(holder: Holder, session: Session) -> None:
    holder.start(f"touch held; {LOOP}", "--shared")
    mine = ReadWriteLock(session, "gpu").read.acquire(10)
    assert len(revoke(session, "gpu", "the demo")) == 1  # ours does not listen
    assert holder.end()[0] == LockRunCode.REVOKED
    mine.release(10)


def test_the_command_can_see_who_asks_and_why(holder: Holder, session: Session) -> None:
    look = f'{sys.executable} -m zkcoord_cli lock show "$ZKCOORD_LOCK_NAME" --json'
    holder.start(f"trap '{look}; exit' TERM; touch held; {LOOP}")
    revoke(session, "gpu", "the demo")
    assert '"revoked": "the demo"' in holder.end()[1]


def test_on_revoke_goes_not_with_permits(zookeeper: str) -> None:
    def run(*options: str) -> Result:
        line = ["lock", "run", "gpu", *options, "--", "true"]
        return CliRunner().invoke(cli, line, env={"ZKCOORD_ZOOKEEPER": zookeeper})

    refused = run("--permits", "2", "--on-revoke", "stop")
    assert (refused.exit_code, "not with --permits" in refused.stderr) == (2, True)
    assert run("--on-lost", "kill", "--on-revoke", "kill", "--grace", "1").exit_code == 0
    assert run("--on-lost", "kill", "--grace", "1").exit_code == 2
    assert run("--on-lost", "continue", "--on-revoke", "kill", "--grace", "90").exit_code == 0
    assert run("--on-lost", "stop", "--on-revoke", "kill", "--grace", "90").exit_code == 3
