"""The small process between `lock run` and its command: it ends the command before the lease ends.

It is a process of its own so that the promise holds when `zkcoord` itself is stopped, swapped out
or killed: it knows until when the lease is valid, hears of every renewal, and needs nobody's help.
Standard library only; it runs isolated, by file name, and starts in a few milliseconds::

    python -I -S keeper.py CONTROL STATUS UNTIL GRACE TERMINAL -- COMMAND…

CONTROL and STATUS are inherited file descriptors. On CONTROL come lines: ``until T`` (the lease is
valid until T, seconds of CLOCK_BOOTTIME), ``signal N``, ``lost`` (it is over now), ``revoked S``
(somebody asks to let go: SIGTERM now, SIGKILL after S seconds, which may be ``inf``). Its end means
that `zkcoord` died. On STATUS go lines: ``started PID``, ``failed ERRNO``, ``stopped``, and last
``ended WAITSTATUS REASON LEFT``: REASON is ``itself``, ``lost``, ``revoked`` or ``abandoned``, LEFT
counts processes that outlived the command and were killed.

The command runs in a process group of its own, and gets the terminal when TERMINAL is 1. At `UNTIL`
minus `GRACE` it and all its descendants get SIGTERM, `KILL_MARGIN_S` before `UNTIL` SIGKILL; only
that when `GRACE` is not above it. `UNTIL` may be ``inf``.
Descendants are found through /proc; being their subreaper (prctl(2), PR_SET_CHILD_SUBREAPER), the
keeper also finds those whose parents have exited and those that left the process group.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import select
import signal
import sys
import time
from collections.abc import Collection

KILL_MARGIN_S = 0.25
TICK_S = 0.25
LEFT_OVER_S = 2.0

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def now() -> float:
    """Seconds of CLOCK_BOOTTIME, the clock of leases: it runs on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def become_subreaper() -> None:
    """Orphans below this process become its children instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants() -> list[int]:
    """All processes below this one, from /proc; zombies are left out."""
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        try:
            stat = os.open(f"/proc/{entry.name}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            # The name in parentheses may hold anything, parentheses too.
            state, parent = os.read(stat, 4096).rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        finally:
            os.close(stat)
        if state not in (b"Z", b"X"):
            parents[int(entry.name)] = int(parent)
    found = {os.getpid()}
    grew = True
    while grew:
        more = {child for child, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return sorted(found - {os.getpid()})


def kill_all(deadline: float, spare: Collection[int] = ()) -> None:
    """SIGKILL and reap every descendant but those to spare, again until none is left."""
    while pids := [pid for pid in descendants() if pid not in spare]:
        _send(pids, signal.SIGKILL)
        if now() > deadline:
            return
        time.sleep(0.002)
        for pid in pids:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


class Keeper:
    """Runs one command and ends it in time.

    Args:
        control, status: file descriptors, see the module.
        until: until when the lease is valid, seconds of CLOCK_BOOTTIME.
        grace: seconds between SIGTERM and the end of the lease.
        terminal: the command's group becomes the terminal's foreground group.
    """

    def __init__(
        self, control: int, status: int, *, until: float, grace: float, terminal: bool
    ) -> None:
        self.control = control
        self.status = status
        self.until = until
        self.grace = grace
        self.terminal = terminal
        self.child = 0
        self.reason = "itself"
        self._rest = b""
        self._termed = False
        self._kill_at = math.inf

    def run(self, command: list[str]) -> int:
        """Start the command, keep it, report how it ended."""
        become_subreaper()
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTTOU, signal.SIGTTIN):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda n, _: self._signal_group(n))
        error = self._start(command)
        if error:
            self._tell(f"failed {error}")
            return 1
        self._tell(f"started {self.child}")
        result = self._watch(wake_read)
        left = self._stop_what_is_left()
        self._tell(f"ended {result} {self.reason} {left}")
        return 0

    # --- the command ------------------------------------------------------------------------

    def _start(self, command: list[str]) -> int:
        """Fork and execute; 0, or the errno with which that failed."""
        report_read, report_write = os.pipe2(os.O_CLOEXEC)
        self.child = os.fork()
        if self.child == 0:
            self._execute(command, report_write)
        os.close(report_write)
        failure = os.read(report_read, 16)
        os.close(report_read)
        if failure:
            os.waitpid(self.child, 0)
            return int(failure)
        return 0

    def _execute(self, command: list[str], report: int) -> None:
        """In the child: own group, the terminal if it is ours to give, then the program."""
        try:
            os.setpgid(0, 0)
            if self.terminal:
                os.tcsetpgrp(0, os.getpgrp())
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.execvp(command[0], command)  # noqa: S606 - the very purpose, no shell
        except OSError as error:
            os.write(report, str(error.errno or 1).encode())
        except ValueError:  # an empty name
            os.write(report, str(errno.ENOENT).encode())
        finally:
            os._exit(127)

    def _signal_group(self, number: int) -> None:
        if not self.child:
            return
        try:
            os.killpg(self.child, number)
        except OSError:
            return

    # --- keeping ----------------------------------------------------------------------------

    def _watch(self, wake: int) -> int:
        """Until the command has ended: hear renewals, act in time. Its wait status."""
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(self.control, select.POLLIN)
        while True:
            result = self._reap_child()
            if result is not None:
                return result
            self._act()
            for descriptor, _ in poll.poll(self._pause() * 1000):
                if descriptor == wake:
                    os.read(wake, 4096)
                elif not self._hear():
                    poll.unregister(self.control)

    def _pause(self) -> float:
        """Seconds until something is due. Bounded: poll's clock stands while the machine sleeps."""
        due = self.until - (KILL_MARGIN_S if self._termed else self.grace)
        return min(TICK_S, max(0.0, min(due, self._kill_at) - now()) + 0.001)

    def _act(self) -> None:
        """SIGTERM and SIGKILL when they are due."""
        left = self.until - now()
        if left <= self.grace and not self._termed:
            self._termed = True
            self.reason = "lost" if self.reason in {"itself", "revoked"} else self.reason
            if self.grace > KILL_MARGIN_S:
                _ask_to_end(descendants())
        if left <= KILL_MARGIN_S or now() >= self._kill_at:
            _send(descendants(), signal.SIGKILL)

    def _hear(self) -> bool:
        """Read control lines; False at their end."""
        data = os.read(self.control, 65536)
        if not data:
            self.reason = "abandoned"
            self.until = min(self.until, now() + self.grace)
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, _, value = line.decode().partition(" ")
            if word == "until" and not self._termed:
                self.until = float(value)
            elif word == "signal":
                self._signal_group(int(value))
            elif word == "lost":
                self.reason = "lost"
                self.until = now()
            elif word == "revoked" and not self._termed:
                self.reason = "revoked"
                self._kill_at = min(self._kill_at, now() + float(value))
                _ask_to_end(descendants())
        return True

    def _reap_child(self) -> int | None:
        """Collect what ended; the command's wait status once it has ended."""
        while True:
            try:
                pid, result = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return 0
            if pid == 0:
                return None
            if pid == self.child:
                if os.WIFSTOPPED(result):
                    self._tell("stopped")
                    continue
                return result

    def _stop_what_is_left(self) -> int:
        """Processes that outlived the command are not under the lock any more: end them."""
        left = descendants()
        if not left:
            return 0
        end = min(self.until - KILL_MARGIN_S, now() + min(LEFT_OVER_S, self.grace))
        if not self._termed:
            _send(left, signal.SIGTERM)
        while descendants() and now() < end:
            _reap()
            time.sleep(0.01)
        kill_all((max(self.until, now()) if math.isfinite(self.until) else now()) + 5.0)
        return len(left)

    def _tell(self, line: str) -> None:
        try:
            os.write(self.status, line.encode() + b"\n")
        except OSError:
            return  # nobody listens any more; the work here goes on


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def _ask_to_end(pids: list[int]) -> None:
    _send(pids, signal.SIGTERM)
    _send(pids, signal.SIGCONT)  # a stopped process cannot clean up


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def main(arguments: list[str]) -> int:
    """The keeper process."""
    control, status, until, grace, terminal, _, *command = arguments
    for descriptor in (int(control), int(status)):
        os.set_inheritable(descriptor, False)
    keeper = Keeper(
        int(control),
        int(status),
        until=float(until),
        grace=float(grace),
        terminal=terminal == "1",
    )
    return keeper.run(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
