"""The local stack: from Python, and in the background through the command line."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zkcoord.errors import StackError
from zkcoord.local import Stack, find_running, paths, probe, running

SECONDS = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """No such process, or a zombie that only waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def zkcoord(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "zkcoord_cli", *words]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=SECONDS)


def document(*words: str) -> dict[str, Any]:
    ran = zkcoord(*words, "--json")
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """State and data folders of this test; whatever it leaves running is stopped."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("ZKCOORD_JSON", raising=False)
    yield tmp_path
    for name in running.names():
        zkcoord("local", "down", "--name", name)


def test_up_status_logs_down(private: Path) -> None:
    up = document("local", "up")
    assert up["schema"] == "zkcoord.local.up/1"
    found = find_running()
    assert found is not None
    assert (found.zookeeper, found.kafka) == (up["zookeeper"], up["kafka"])

    again = document("local", "up")
    assert again["pid"] == up["pid"]
    wrong = zkcoord("local", "up", "--brokers", "3")
    assert wrong.returncode == 4
    assert "runs already with 1 ZooKeeper and 1 Kafka" in wrong.stderr

    status = document("local", "status")
    assert status["healthy"] is True
    assert [server["condition"] for server in status["servers"]] == ["standalone", "ready"]
    assert "zookeeper-1  standalone" in zkcoord("local", "status").stdout
    logs = zkcoord("local", "logs", "broker-1", "-n", "5")
    assert len(logs.stdout.splitlines()) == 5

    pids = [up["pid"], *(server["pid"] for server in up["servers"])]
    assert document("local", "down")["ran"] is True
    assert all(map(is_gone, pids))
    assert find_running() is None
    missing = zkcoord("local", "status")
    assert missing.returncode == 4
    assert "no local stack named 'default' runs" in missing.stderr
    assert document("local", "down")["ran"] is False

    # The data and the ports are still there, and the logs can still be read.
    assert zkcoord("local", "logs", "zookeeper-1").stdout
    third = document("local", "up")
    assert (third["zookeeper"], third["kafka"]) == (up["zookeeper"], up["kafka"])
    assert document("local", "down", "--delete-data")["ran"] is True
    assert not paths.data_dir("default").exists()


def test_two_stacks_run_side_by_side_and_share_no_folder(private: Path) -> None:
    one = document("local", "up")
    two = document("local", "up", "--name", "two")
    assert len({one["zookeeper"], one["kafka"], two["zookeeper"], two["kafka"]}) == 4
    three = zkcoord("local", "up", "--name", "three", "--data", two["data"])
    assert three.returncode == 4
    assert "is in use by a running stack" in three.stderr
    assert document("local", "down")["ran"] is True
    assert document("local", "status", "--name", "two")["healthy"] is True


def test_a_killed_supervisor_leaves_no_server(private: Path) -> None:
    up = document("local", "up")
    os.kill(up["pid"], signal.SIGKILL)
    for server in up["servers"]:
        until(lambda pid=server["pid"]: is_gone(pid))
    # The thread that started the servers may die before the last one, which holds the lock.
    until(lambda: find_running() is None)
    status = zkcoord("local", "status")
    assert status.returncode == 4
    assert "ended without `down`" in status.stderr
    assert document("local", "up")["kafka"] == up["kafka"]


def test_a_half_dead_stack_is_explained_and_down_clears_it(private: Path) -> None:
    up = document("local", "up")
    victim = up["servers"][0]
    os.kill(victim["pid"], signal.SIGKILL)

    def noticed() -> bool:
        described = running.read("default")
        return described is not None and bool(described.dead)

    until(noticed)
    with pytest.raises(StackError, match="zookeeper-1 ended with status -9"):
        find_running()
    status = zkcoord("local", "status")
    assert status.returncode == 4
    assert "ended with status -9" in status.stdout
    assert "half dead" in zkcoord("local", "up").stderr
    assert document("local", "down")["ran"] is True
    assert all(is_gone(server["pid"]) for server in up["servers"])


def test_without_its_broker_zookeeper_serves_and_the_hint_keeps_the_data(private: Path) -> None:
    data = private / "my data"
    started = zkcoord("local", "up", "--data", str(data))
    assert f"zkcoord local up --data '{data}'" in started.stderr
    up = document("local", "status")
    assert zkcoord("node", "set", "/kept", "here", "--create").returncode == 0
    os.kill(up["servers"][1]["pid"], signal.SIGKILL)

    def noticed() -> bool:
        described = running.read("default")
        return described is not None and bool(described.dead)

    until(noticed)
    assert "here" in zkcoord("node", "get", "/kept").stdout
    for words in (
        ("lock", "run", "a", "--", "true"),
        ("lock", "list"),
        ("member", "list", "/somebody"),
        ("semaphore", "list"),
        ("pool", "list"),
        ("election", "list"),
    ):
        ran = zkcoord(*words)
        assert (ran.returncode, "half dead" in ran.stderr) == (0, False), (words, ran.stderr)
    needs_kafka = zkcoord("task", "submit", "mail", "mail.send")
    assert needs_kafka.returncode == 4
    assert "half dead: broker-1" in needs_kafka.stderr
    assert "half dead: broker-1" in zkcoord("config", "show").stderr
    hint = needs_kafka.stderr.rpartition("run: ")[2].strip()
    assert hint == f"zkcoord local down && zkcoord local up --data '{data}'"
    assert document("local", "down")["ran"] is True
    again = document("local", "up", "--data", str(data))
    assert (again["zookeeper"], again["kafka"]) == (up["zookeeper"], up["kafka"])
    assert "here" in zkcoord("node", "get", "/kept").stdout
    # Killed with its supervisor and never taken down: `up` goes on with the same data.
    os.kill(again["pid"], signal.SIGKILL)
    until(lambda: not running.is_locked("default"))
    for server in again["servers"]:
        until(lambda pid=server["pid"]: is_gone(pid))
    assert document("local", "up")["data"] == str(data)
    stopped = zkcoord("local", "down")
    assert f"start it again with: zkcoord local up --data '{data}'" in stopped.stderr


def test_a_taken_port_is_explained(private: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = zkcoord("local", "up", "--kafka-port", str(port))
    assert ran.returncode == 4
    assert f"broker-1 cannot listen on 127.0.0.1:{port}" in ran.stderr
    assert find_running() is None
    assert "no stack named default was running" in zkcoord("local", "down").stderr


def test_a_stale_data_folder_is_explained(private: Path) -> None:
    data = private / "mine"
    with Stack(zookeepers=1, brokers=0, data=data):
        pass
    ran = zkcoord("local", "up", "--data", str(data))
    assert ran.returncode == 4
    assert "was made for 1 ZooKeeper and 0 Kafka servers" in ran.stderr


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    with Stack(zookeepers=1, brokers=0, data=tmp_path) as stack:
        server = stack.zookeepers[0]
    snapshots = server.folder / "data" / "version-2"
    for file in snapshots.iterdir():
        file.unlink()
    (snapshots / "snapshot.7").write_bytes(b"not a snapshot")
    (snapshots / "log.8").write_bytes(b"not a log either")
    with (
        pytest.raises(StackError, match=r"(?s)zookeeper-1 ended with status \d+.*server\.log.*\n"),
        Stack(zookeepers=1, brokers=0, data=tmp_path),
    ):
        pass


PARENT = """
    import sys, threading, time
    from zkcoord.local import Stack

    def start():
        # In a thread that ends: the servers must live on, and die with the process only.
        stack = Stack(zookeepers=1, brokers=1).start()
        pids.extend(str(server.pid) for server in stack.servers)
        pids.append(str(stack.data))

    pids = []
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    print(*pids, flush=True)
    sys.stdin.read()
"""


def test_servers_outlive_the_thread_that_started_them_but_not_the_process(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as parent:
        assert parent.stdout is not None
        *pids, data = parent.stdout.readline().split()
        port = int(json.loads((Path(data) / "stack.json").read_text())["ports"][0])
        assert probe.zookeeper_mode("127.0.0.1", port) == "standalone"
        parent.kill()
    for pid in pids:
        until(lambda pid=pid: is_gone(int(pid)))


def test_data_survives_a_stack_and_its_ports_are_kept(tmp_path: Path) -> None:
    from kazoo.client import KazooClient

    with Stack(data=tmp_path) as first:
        client = KazooClient(first.zookeeper)
        client.start()
        client.create("/kept", b"value")
        client.stop()
        client.close()
    with Stack(data=tmp_path) as second:
        assert (second.zookeeper, second.kafka) == (first.zookeeper, first.kafka)
        client = KazooClient(second.zookeeper)
        client.start()
        assert client.get("/kept")[0] == b"value"
        client.stop()
        client.close()


def test_verbs_do_what_they_say(own_stack: Stack) -> None:
    server = own_stack.zookeepers[0]
    host, port = "127.0.0.1", server.port
    first = server.pid
    server.pause()
    assert server.condition == "paused"
    assert probe.zookeeper_mode(host, port, timeout=0.3) is None
    server.resume()
    assert probe.zookeeper_mode(host, port) == "standalone"
    server.kill()
    assert server.condition == "down"
    assert is_gone(first)
    with pytest.raises(StackError, match="zookeeper-1 is down"):
        server.pause()
    server.start()
    assert server.pid != first
    second = server.pid
    server.restart()
    assert server.pid != second
    assert server.address == f"{host}:{port}"
    own_stack.brokers[0].pause()
    own_stack.brokers[0].stop(timeout=5)
    assert not own_stack.brokers[0].alive


def test_an_ensemble_has_one_leader_and_survives_it(ensemble: Stack) -> None:
    def modes() -> list[str]:
        return sorted(
            probe.zookeeper_mode("127.0.0.1", server.port) or "silent"
            for server in ensemble.zookeepers
        )

    assert modes() == ["follower", "follower", "leader"]
    leader = next(
        server
        for server in ensemble.zookeepers
        if probe.zookeeper_mode("127.0.0.1", server.port) == "leader"
    )
    leader.kill()
    until(lambda: modes() == ["follower", "leader", "silent"])
    leader.start()
    assert modes() == ["follower", "follower", "leader"]


@pytest.mark.slow
def test_three_brokers_see_each_other() -> None:
    with Stack(zookeepers=0, brokers=3) as stack:
        known = probe.kafka_brokers("127.0.0.1", stack.brokers[2].port)
        assert known == {broker.number: broker.address for broker in stack.brokers}
        stack.brokers[0].restart()
        stack.wait_ready()


def test_everything_listens_on_the_loopback_interface_only(stack: Stack) -> None:
    for server in stack.servers:
        inodes = {
            str(link.readlink())
            for link in Path(f"/proc/{server.pid}/fd").iterdir()
            if link.is_symlink()
        }
        for table, loopback in (("tcp", "0100007F"), ("tcp6", "0000000000000000FFFF00000100007F")):
            for line in Path(f"/proc/{server.pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                    assert fields[1].startswith(loopback), line
