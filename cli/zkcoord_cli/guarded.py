"""Run a command while a lease is valid, and not a moment longer.

The work is done by a *keeper* process (see :mod:`zkcoord_cli.keeper`); this side tells it of every
renewal, passes on signals, and translates how it ended.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from zkcoord_cli import keeper
from zkcoord_cli.exit_codes import LockRunCode

TICK_S = 0.25
FORWARDED = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


class LostFlag(Protocol):
    """Set when the lease is over."""

    def is_set(self) -> bool:
        """Whether it is over."""


class GuardedLease(Protocol):
    """The part of a lease that matters here."""

    @property
    def name(self) -> str:
        """What is held."""

    @property
    def token(self) -> int:
        """The fencing token."""

    @property
    def valid_until(self) -> float:
        """Seconds of CLOCK_BOOTTIME; rises with every renewal."""

    @property
    def lost(self) -> LostFlag:
        """Set when it is over."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the command ended.

    Attributes:
        code: the exit status for the shell.
        reason: ``itself``, ``lost``, ``revoked``, ``abandoned``, ``not started``, or ``keeper
            died``.
        left: processes that outlived the command and were stopped.
        error: errno with which the command could not be executed, or 0.
        status: the command's own, 128 and the signal's number when a signal ended it.
    """

    code: int
    reason: str
    left: int = 0
    error: int = 0
    status: int = 0


class Revocations:
    """How often somebody asked to let go; `add` is for any thread.

    Args:
        kill_after: seconds from the first of them to SIGKILL.
    """

    def __init__(self, kill_after: float = math.inf) -> None:
        self.kill_after = kill_after
        self.count = 0

    def add(self) -> None:
        """Once more."""
        self.count += 1


def variables(lease: GuardedLease) -> dict[str, str]:
    """What the command finds in its environment beside ours."""
    return {
        "ZKCOORD_LOCK_NAME": lease.name.partition(" ")[2] or lease.name,  # "lock gpu-0"
        "ZKCOORD_LOCK_TOKEN": str(lease.token),
        "ZKCOORD_LOCK_VALID_UNTIL": f"{lease.valid_until:.3f}",
    }


def run_guarded(
    lease: GuardedLease,
    command: Sequence[str],
    *,
    grace: float,
    on_stop: Callable[[], None] | None = None,
    regardless: bool = False,
    revocations: Revocations | None = None,
) -> Ending:
    """Run `command` without a shell until it ends or the lease is about to.

    Blocks; call it from the main thread, since it handles signals meanwhile.

    Args:
        lease: held by the caller, who releases it afterwards.
        command: program and arguments.
        grace: seconds before the end of the lease at which SIGTERM is sent; SIGKILL follows
            before the end. At `keeper.KILL_MARGIN_S` only SIGKILL is sent.
        on_stop: called when the command was stopped from the terminal (Ctrl-Z); when it returns,
            the command goes on.
        regardless: let it go on when the lease ends.
        revocations: at each of them the command and all its descendants get SIGTERM.
    """
    control_read, control_write = os.pipe2(os.O_CLOEXEC)
    status_read, status_write = os.pipe2(os.O_CLOEXEC)
    keeper.become_subreaper()  # should the keeper be killed, its descendants come to us
    others = set(keeper.descendants())
    terminal = _owns_terminal()
    until = math.inf if regardless else lease.valid_until
    try:
        process = subprocess.Popen(
            [
                sys.executable, "-I", "-S", str(Path(keeper.__file__)),
                str(control_read), str(status_write),
                repr(until), repr(grace), str(int(terminal)), "--", *command,
            ],
            env={**os.environ, **variables(lease)},
            pass_fds=(control_read, status_write),
            process_group=0,
        )  # fmt: skip
    except OSError as error:  # arguments that are too long, no memory, no processes
        for end in (control_read, control_write, status_read, status_write):
            os.close(end)
        return _not_started(error.errno or errno.EIO)
    os.close(control_read)
    os.close(status_write)
    conversation = _Conversation(None if regardless else lease, control_write, status_read, on_stop)
    conversation.revocations = revocations or Revocations()
    try:
        with _forwarding(conversation):
            ending = conversation.hold()
    finally:
        os.close(control_write)
        os.close(status_read)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5.0)
        keeper.kill_all(keeper.now() + 5.0, spare=others)
        process.wait()
        if terminal:
            _give_terminal(os.getpgrp())
    return ending


class _Conversation:
    """Talks with the keeper over its two pipes."""

    def __init__(
        self,
        lease: GuardedLease | None,
        control: int,
        status: int,
        on_stop: Callable[[], None] | None,
    ) -> None:
        self._lease = lease
        self._control = control
        self._status = status
        self._on_stop = on_stop
        self._told = 0.0 if lease is None else lease.valid_until
        self._said_lost = False
        self._said_revoked = 0
        self._group = 0
        self.revocations = Revocations()

    def forward(self, number: int) -> None:
        """Pass a signal on to the command's process group."""
        self._say(f"signal {number}")

    def hold(self) -> Ending:
        """Renew until the keeper says how it ended."""
        rest = b""
        while True:
            self._renew()
            self._pass_on_revocations()
            ready, _, _ = select.select([self._status], [], [], TICK_S)
            if not ready:
                continue
            data = os.read(self._status, 4096)
            if not data:
                return Ending(LockRunCode.FAILED, "keeper died")
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                ending = self._read(line.decode())
                if ending is not None:
                    return ending

    def _renew(self) -> None:
        if self._lease is None:
            return
        if self._lease.lost.is_set():
            if not self._said_lost:
                self._said_lost = True
                self._say("lost")
            return
        until = self._lease.valid_until
        if until > self._told:
            self._told = until
            self._say(f"until {until!r}")

    def _pass_on_revocations(self) -> None:
        count = self.revocations.count
        if count > self._said_revoked:
            self._said_revoked = count
            self._say(f"revoked {self.revocations.kill_after!r}")

    def _read(self, line: str) -> Ending | None:
        word, *values = line.split()
        if word == "started":
            self._group = int(values[0])
        elif word == "failed":
            return _not_started(int(values[0]))
        elif word == "stopped" and self._on_stop is not None:
            terminal = _given_terminal(self._group)
            if terminal:
                _give_terminal(os.getpgrp())
            self._on_stop()
            if terminal:
                _give_terminal(self._group)
            self._say(f"signal {int(signal.SIGCONT)}")
        elif word == "ended":
            code = os.waitstatus_to_exitcode(int(values[0]))
            status = code if code >= 0 else 128 - code
            own = {"lost": LockRunCode.LEASE_LOST, "revoked": LockRunCode.REVOKED}
            return Ending(own.get(values[1], status), values[1], left=int(values[2]), status=status)
        return None

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a dead keeper shows at the other pipe
            os.write(self._control, line.encode() + b"\n")


def _not_started(error: int) -> Ending:
    missing = error in (errno.ENOENT, errno.ENOTDIR)
    code = LockRunCode.COMMAND_NOT_FOUND if missing else LockRunCode.CANNOT_EXECUTE
    return Ending(code, "not started", error=error)


@contextlib.contextmanager
def _forwarding(conversation: _Conversation) -> Iterator[None]:
    before = {
        number: signal.signal(number, lambda n, _: conversation.forward(n)) for number in FORWARDED
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _owns_terminal() -> bool:
    """Whether standard input is a terminal and its keys go to our process group."""
    return _given_terminal(os.getpgrp())


def _given_terminal(group: int) -> bool:
    try:
        return os.isatty(0) and os.tcgetpgrp(0) == group
    except OSError:
        return False


def _give_terminal(group: int) -> None:
    """Make `group` the one that the terminal's keys go to."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        os.tcsetpgrp(0, group)
    except OSError:
        return  # the group or the terminal is gone
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
