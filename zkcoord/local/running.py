"""Stacks in the background: what is known of them, and finding one.

``<name>.json`` in the user's state folder describes a stack that ``zkcoord local up`` started. The
stack is alive exactly while its supervisor holds a lock on ``<name>.lock``: the kernel drops the
lock however the supervisor ends, and a process id that is used again deceives nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from zkcoord.errors import StackError
from zkcoord.local import paths

FORMAT = 1
DEFAULT_NAME = "default"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class RunningServer:
    """One server of a stack in the background.

    Attributes:
        name: such as ``zookeeper-1`` or ``broker-1``.
        address: ``host:port`` for clients.
        pid: its process id.
        log: its log file.
        ended: its exit status once the supervisor saw it end (less than zero: a signal).
    """

    name: str
    address: str
    pid: int
    log: str
    ended: int | None = None


@dataclass(frozen=True, slots=True)
class RunningStack:
    """A stack in the background, as its supervisor described it.

    Attributes:
        name: what it was called; ``default`` unless said otherwise.
        zookeeper: the ZooKeeper connect string, without chroot.
        kafka: the Kafka bootstrap addresses.
        data: its data folder.
        pid: the supervisor's process id.
        started: wall-clock seconds.
        servers: its servers.
    """

    name: str
    zookeeper: str
    kafka: str
    data: str
    pid: int
    started: float
    servers: tuple[RunningServer, ...] = field(default=())

    @property
    def dead(self) -> list[RunningServer]:
        """The servers that ended by themselves."""
        return [server for server in self.servers if server.ended is not None]


def check_name(name: str) -> str:
    """Return `name` when a stack can be called so.

    Raises:
        StackError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise StackError(
            f"{name!r} is no name for a stack: up to 40 letters, digits, dashes and underscores"
        )
    return name


def find_running(name: str = DEFAULT_NAME) -> RunningStack | None:
    """Find a stack that this user runs in the background; None when there is none.

    Raises:
        StackError: it runs but one of its servers has ended; the message names it.
    """
    if not is_locked(check_name(name)):
        return None
    stack = read(name)
    if stack is not None and stack.dead:
        raise half_dead(stack, stack.dead[0])
    return stack


def half_dead(stack: RunningStack, server: RunningServer) -> StackError:
    """The error of a stack that runs while one of its servers has ended."""
    return StackError(
        f"the local stack {stack.name!r} is half dead: {server.name} ended with status "
        f"{server.ended}, its log is {server.log}",
        hint=f"run: {down_command(stack.name)} && {up_command(stack)}",
    )


def down_command(name: str) -> str:
    """What to type to stop a stack."""
    return "zkcoord local down" + ("" if name == DEFAULT_NAME else f" --name {name}")


def up_command(stack: RunningStack) -> str:
    """What to type to start a stack again with the same data; its folder knows the ports."""
    words = ["zkcoord", "local", "up"]
    if stack.name != DEFAULT_NAME:
        words += ["--name", stack.name]
    for flag, kind in (("--zookeepers", "zookeeper"), ("--brokers", "broker")):
        count = sum(server.name.startswith(kind) for server in stack.servers)
        if count > 1:
            words += [flag, str(count)]
    if is_elsewhere(stack):
        words += ["--data", stack.data]
    return shlex.join(words)


def is_elsewhere(stack: RunningStack) -> bool:
    """Whether its data is not in the folder that `up` takes when it is told none."""
    return Path(stack.data) != paths.data_dir(stack.name)


def names() -> list[str]:
    """Names of stacks that have left a trace, running or not."""
    return sorted(path.stem for path in paths.state_dir().glob("*.json"))


def alive() -> list[str]:
    """Names of the stacks whose supervisors are alive."""
    return [name for name in names() if is_locked(name)]


def read(name: str) -> RunningStack | None:
    """Read a stack's description, whether it runs or not; None when there is none.

    Raises:
        StackError: the description cannot be understood.
    """
    path = _description(name)
    try:
        fields = json.loads(path.read_text("utf-8"))
        if fields.pop("format") != FORMAT:
            raise StackError(
                f"{path} was written by another version of zkcoord",
                hint=f"stop that stack with the zkcoord that started it, or delete {path}",
            )
        servers = tuple(RunningServer(**server) for server in fields.pop("servers"))
        return RunningStack(**fields, servers=servers)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StackError(f"{path} cannot be read: {error}", hint=f"delete {path}") from error


def write(stack: RunningStack) -> None:
    """Write a stack's description in one step, readable by its user only."""
    path = _description(stack.name)
    document: Mapping[str, Any] = {"format": FORMAT, **asdict(stack)}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    partial.chmod(0o600)
    partial.replace(path)


def forget(name: str) -> None:
    """Delete a stack's description."""
    _description(name).unlink(missing_ok=True)


def is_locked(name: str) -> bool:
    """Whether a supervisor of that name is alive."""
    try:
        file = _lock_path(name).open("rb")
    except OSError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def lock(name: str) -> IO[bytes]:
    """Take a name for this process; it is free again when the returned file is closed.

    Raises:
        StackError: a stack of that name runs.
    """
    path = _lock_path(name)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = path.open("a+b")
    # Someone who only looks holds the lock for an instant: look away and try again.
    for attempt in range(50):
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        if attempt and (stack := read(name)) is not None and _is_alive(stack.pid):
            break
        time.sleep(0.02)
    file.close()
    raise StackError(
        f"a local stack named {name!r} runs already or is just starting",
        hint="use it, or give another --name",
    )


def supervisor_log(name: str) -> Path:
    """Where the supervisor of a stack writes what went wrong."""
    return paths.state_dir() / f"{name}.log"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _description(name: str) -> Path:
    return paths.state_dir() / f"{name}.json"


def _lock_path(name: str) -> Path:
    return paths.state_dir() / f"{name}.lock"
