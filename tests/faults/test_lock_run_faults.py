"""`lock run` while ZooKeeper is out of reach: the command ends before another may hold the lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zkcoord.local import Proxy, Stack
from zkcoord.recipes import Lock, revoke
from zkcoord.zk import Session
from zkcoord_cli import keeper

SESSION_S = 4.0
STUBBORN = (
    "trap '' TERM HUP INT; echo $$ >> pids;"
    "(setsid sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 0.05; done' &);"
    "touch held; while :; do sleep 0.05; done"
)


def until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


@pytest.fixture
def proxy(stack: Stack) -> Iterator[Proxy]:
    with Proxy(stack.zookeeper) as between:
        yield between


def run_lock(
    proxy: Proxy, zookeeper: str, folder: Path, *command: str, options: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    chroot = zookeeper.partition("/")[2]
    environment = {
        **os.environ,
        "ZKCOORD_ZOOKEEPER": f"{proxy.address}/{chroot}",
        "ZKCOORD_SESSION_TIMEOUT_S": str(SESSION_S),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "zkcoord_cli", "lock", "run", "gpu", *options, "--", *command],
        env=environment,
        cwd=folder,
        text=True,
        stderr=subprocess.PIPE,
    )


def test_in_a_partition_the_command_is_dead_before_the_lock_is_granted_to_another(
    proxy: Proxy, zookeeper: str, tmp_path: Path
) -> None:
    first = run_lock(proxy, zookeeper, tmp_path, "sh", "-c", STUBBORN)
    try:
        until((tmp_path / "held").exists, "the command runs")
        until(lambda: (tmp_path / "pids").read_text().count("\n") == 2, "both processes run")
        pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
        proxy.blackhole()
        with Session(zookeeper, timeout=SESSION_S) as session:
            with Lock(session, "gpu").acquire(timeout=60) as lease:
                alive = [pid for pid in pids if is_alive(pid)]
                assert lease.token > 0
            assert alive == []
        _, err = first.communicate(timeout=60)
        assert first.returncode == 123
        assert "lock gpu was lost" in err
    finally:
        first.kill()
        first.communicate()


def test_a_short_outage_does_not_disturb_the_command(
    proxy: Proxy, zookeeper: str, tmp_path: Path
) -> None:
    script = "touch held; while [ ! -e go ]; do sleep 0.05; done; exit 9"
    first = run_lock(proxy, zookeeper, tmp_path, "sh", "-c", script)
    until((tmp_path / "held").exists, "the command runs")
    proxy.cut()
    began = keeper.now()
    until(lambda: keeper.now() > began + SESSION_S + 1, "longer than a session without renewal")
    (tmp_path / "go").touch()
    _, err = first.communicate(timeout=60)
    assert (first.returncode, err) == (9, "")


def test_a_stopped_zkcoord_loses_the_lock_and_its_command(
    proxy: Proxy, zookeeper: str, tmp_path: Path
) -> None:
    first = run_lock(proxy, zookeeper, tmp_path, "sh", "-c", STUBBORN)
    try:
        until((tmp_path / "held").exists, "the command runs")
        until(lambda: (tmp_path / "pids").read_text().count("\n") == 2, "both processes run")
        pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
        first.send_signal(signal.SIGSTOP)
        with (
            Session(zookeeper, timeout=SESSION_S) as session,
            Lock(session, "gpu").acquire(timeout=60),
        ):
            assert [pid for pid in pids if is_alive(pid)] == []
        first.send_signal(signal.SIGCONT)
        first.communicate(timeout=60)
        assert first.returncode == 123
    finally:
        first.kill()
        first.communicate()


def test_on_lost_kill_sends_no_sigterm(proxy: Proxy, zookeeper: str, tmp_path: Path) -> None:
    script = "trap 'touch termed' TERM; echo $$ >> pids; touch held; while :; do sleep 0.05; done"
    options = ("--on-lost", "kill")
    first = run_lock(proxy, zookeeper, tmp_path, "sh", "-c", script, options=options)
    try:
        until((tmp_path / "held").exists, "the command runs")
        pid = int((tmp_path / "pids").read_text())
        proxy.blackhole()
        with (
            Session(zookeeper, timeout=SESSION_S) as session,
            Lock(session, "gpu").acquire(timeout=60),
        ):
            assert not is_alive(pid)
        _, err = first.communicate(timeout=60)
        assert first.returncode == 123
        assert "lock gpu was lost" in err
        assert not (tmp_path / "termed").exists()
    finally:
        first.kill()
        first.communicate()


def test_on_lost_continue_lets_the_command_go_on(
    proxy: Proxy, zookeeper: str, tmp_path: Path
) -> None:
    script = "echo $ZKCOORD_LOCK_VALID_UNTIL > held; while [ ! -e go ]; do sleep 0.05; done; exit 9"
    options = ("--on-lost", "continue")
    first = run_lock(proxy, zookeeper, tmp_path, "sh", "-c", script, options=options)
    try:
        until(lambda: (tmp_path / "held").exists() and (tmp_path / "held").read_text(), "it runs")
        assert 0 < float((tmp_path / "held").read_text()) < keeper.now() + SESSION_S
        proxy.blackhole()
        with (
            Session(zookeeper, timeout=SESSION_S) as session,
            Lock(session, "gpu").acquire(timeout=60),
        ):
            assert first.poll() is None
        (tmp_path / "go").touch()
        _, err = first.communicate(timeout=60)
        assert first.returncode == 9
        assert err.splitlines()[-1] == "warning: lock gpu was lost; the command goes on without it"
    finally:
        first.kill()
        first.communicate()


def test_a_lease_that_is_lost_after_a_revocation_still_ends_the_command_in_time(
    proxy: Proxy, zookeeper: str, tmp_path: Path
) -> None:
    script = (
        "trap 'echo x >>termed' TERM; echo $$ >> pids; touch held; while :; do sleep 0.05; done"
    )
    first = run_lock(proxy, zookeeper, tmp_path, "sh", "-c", script)
    try:
        until((tmp_path / "held").exists, "the command runs")
        pid = int((tmp_path / "pids").read_text())
        with Session(zookeeper, timeout=SESSION_S) as session:
            revoke(session, "gpu", "the demo")
            until((tmp_path / "termed").exists, "it was asked")
            proxy.blackhole()
            with Lock(session, "gpu").acquire(timeout=60):
                assert not is_alive(pid)
        _, err = first.communicate(timeout=60)
        assert first.returncode == 123
        assert "lock gpu was lost" in err
        assert (tmp_path / "termed").read_text() == "x\nx\n"
    finally:
        first.kill()
        first.communicate()
