"""Start a stack in the background, look at it, and stop it: what ``zkcoord local`` does."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zkcoord.errors import StackError
from zkcoord.local import jars, paths, probe, running
from zkcoord.local.folder import MARKER
from zkcoord.local.java import find_java
from zkcoord.local.running import RunningServer, RunningStack
from zkcoord.local.servers import READY_SECONDS

_DOWN_SECONDS = 30.0
_KILLED_SECONDS = 5.0


def up(
    *,
    name: str = running.DEFAULT_NAME,
    zookeepers: int = 1,
    brokers: int = 1,
    data: Path | None = None,
    zookeeper_port: int | None = None,
    kafka_port: int | None = None,
    mirror: str | None = None,
    timeout: float = READY_SECONDS,
) -> RunningStack:
    """Start a stack that outlives this process, and return when it answers.

    Nothing is started when a stack of that name runs already and is what was asked for. One that
    ended without :func:`down` goes on in its own data folder.

    Args:
        name: what to call it; each name is a stack of its own.
        zookeepers: 1 or 3.
        brokers: 1 or 3.
        data: its data folder, kept by :func:`down`; one per name in the user's data folder if None.
        zookeeper_port: first port for ZooKeeper's clients; chosen when None.
        kafka_port: first port for Kafka's clients; chosen when None.
        mirror: a Maven repository to fetch jars from; see :func:`zkcoord.local.jars.ensure`.
        timeout: seconds until all servers must answer.

    Raises:
        StackError: it cannot be started, and why; or another stack of that name runs.
    """
    running.check_name(name)
    found = running.find_running(name)
    if found is not None:
        _check_same(found, zookeepers, brokers, data)
        _check_ports(found, zookeeper_port, kafka_port)
        return found
    # Here and not in the supervisor, so that the progress bar is seen and Java is asked for once.
    find_java()
    jars.ensure(jars.locked(), mirror=mirror)
    order: dict[str, Any] = {
        "name": name,
        "zookeepers": zookeepers,
        "brokers": brokers,
        "data": str((data or _kept(name) or paths.data_dir(name)).absolute()),
        "zookeeper_port": zookeeper_port,
        "kafka_port": kafka_port,
        "timeout": timeout,
    }
    answer = _supervise(name, order, timeout + 30.0)
    if "error" in answer:
        raise StackError(answer["error"], hint=answer["hint"])
    stack = running.find_running(name)
    if stack is None:
        raise StackError(f"the local stack {name!r} ended as soon as it was ready")
    return stack


def down(name: str = running.DEFAULT_NAME, *, delete_data: bool = False) -> bool:
    """Stop a stack and all its servers; False when none of that name ran.

    Args:
        name: which.
        delete_data: delete its data folder too.

    Raises:
        StackError: it does not end.
    """
    running.check_name(name)
    described = running.read(name)
    ran = running.is_locked(name)
    if ran and described is None:
        raise StackError(f"the local stack {name!r} is just starting or ending", hint="try again")
    if ran and described is not None:
        _end(name, described.pid)
    running.forget(name)
    if delete_data:
        folder = Path(described.data) if described else paths.data_dir(name)
        # Only what a stack made: a folder with our marker.
        if (folder / MARKER).exists():
            shutil.rmtree(folder)
    return ran


def data_of(name: str = running.DEFAULT_NAME) -> Path | None:
    """The data folder of a stack, running or not; None when there is none that a stack made."""
    described = running.read(running.check_name(name))
    folder = Path(described.data) if described else paths.data_dir(name)
    return folder if (folder / MARKER).exists() else None


def _kept(name: str) -> Path | None:
    """The data folder of a stack that ended by force; a description that is damaged is no help."""
    with contextlib.suppress(StackError):
        return data_of(name)
    return None


def look(name: str = running.DEFAULT_NAME) -> tuple[RunningStack, dict[str, str]]:
    """Ask every server of a running stack how it is.

    Returns:
        The stack, and for each server by name: ZooKeeper's mode (``standalone``, ``leader``,
        ``follower``), ``ready`` for a broker, ``silent``, or ``ended with status N``.

    Raises:
        StackError: no stack of that name runs; the message says whether one ended by force.
    """
    running.check_name(name)
    described = running.read(name)
    if running.is_locked(name) and described is not None:
        return described, {server.name: condition(server) for server in described.servers}
    if described is not None:
        raise StackError(
            f"the local stack {name!r} ended without `down`: its supervisor (process "
            f"{described.pid}) was killed, or the machine was restarted",
            hint=f"its data is in {described.data}; start it again with: "
            f"{running.up_command(described)}",
        )
    raise StackError(f"no local stack named {name!r} runs", hint="start one: zkcoord local up")


def condition(server: RunningServer) -> str:
    """Ask one server; see :func:`look`."""
    if server.ended is not None:
        return f"ended with status {server.ended}"
    host, _, port = server.address.rpartition(":")
    if server.name.startswith("zookeeper"):
        return probe.zookeeper_mode(host, int(port)) or "silent"
    return "ready" if probe.kafka_brokers(host, int(port)) is not None else "silent"


def _check_same(found: RunningStack, zookeepers: int, brokers: int, data: Path | None) -> None:
    have = [sum(s.name.startswith(kind) for s in found.servers) for kind in ("zookeeper", "broker")]
    if have != [zookeepers, brokers] or (data and data.absolute() != Path(found.data)):
        raise StackError(
            f"a local stack named {found.name!r} runs already with {have[0]} ZooKeeper and "
            f"{have[1]} Kafka servers in {found.data}",
            hint=f"stop it with `{running.down_command(found.name)}`, or give the new one another "
            "--name",
        )


def _check_ports(found: RunningStack, zookeeper_port: int | None, kafka_port: int | None) -> None:
    have = {
        kind: next((int(s.address.rpartition(":")[2]) for s in found.servers
                    if s.name.startswith(kind)), None)
        for kind in ("zookeeper", "broker")
    }  # fmt: skip
    wanted = {"zookeeper": zookeeper_port, "broker": kafka_port}
    if any(port is not None and port != have[kind] for kind, port in wanted.items()):
        raise StackError(
            f"a local stack named {found.name!r} runs already, on ports {have['zookeeper']} and "
            f"{have['broker']}",
            hint=f"stop it with `{running.down_command(found.name)}`, or give the new one another "
            "--name",
        )


def _supervise(name: str, order: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Start the supervisor and return its one line of report."""
    log = running.supervisor_log(name)
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    ours, theirs = os.pipe()
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "zkcoord.local.supervisor",
                    json.dumps({**order, "report": theirs}),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs,),
                start_new_session=True,
                cwd="/",
            )
    except OSError as error:
        os.close(ours)
        raise StackError(f"the stack's supervisor cannot be started: {error}") from error
    finally:
        os.close(theirs)
    with os.fdopen(ours, "rb") as report:
        try:
            line = _line(report.fileno(), time.monotonic() + timeout)
        except BaseException:
            child.kill()  # the kernel kills its servers with it
            child.wait()
            raise
    if not line:
        child.kill()
        child.wait()
        raise StackError(f"the stack's supervisor said nothing; its log is {log}")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        child.wait(_DOWN_SECONDS)
    # It goes on without us: nobody is to wait for it or to complain that nobody waited.
    child.returncode = 0
    return answer


def _line(descriptor: int, deadline: float) -> bytes:
    """Read until a newline, the end, or the deadline."""
    received = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while not received.endswith(b"\n") and (left := deadline - time.monotonic()) > 0:
            if selector.select(left):
                piece = os.read(descriptor, 65536)
                if not piece:
                    break
                received += piece
    return received


def _end(name: str, pid: int) -> None:
    """Ask the supervisor to end, make it end, and return when the process is gone."""
    try:
        handle = os.pidfd_open(pid)  # a handle: the number could mean another process later
    except ProcessLookupError:
        return
    try:
        if not running.is_locked(name):
            return
        for number, patience in (
            (signal.SIGTERM, _DOWN_SECONDS),
            (signal.SIGKILL, _KILLED_SECONDS),
        ):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            with selectors.DefaultSelector() as selector:
                selector.register(handle, selectors.EVENT_READ)
                if selector.select(patience):
                    return
    finally:
        os.close(handle)
    raise StackError(f"the local stack {name!r} does not end: its supervisor is process {pid}")
