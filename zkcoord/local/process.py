"""One server process: started with a guard against outliving us, stopped, killed, paused."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from zkcoord.errors import StackError

_LAUNCHER = Path(__file__).with_name("launch.py")
_KILL_SECONDS = 10.0

_Work = tuple["Future[subprocess.Popen[bytes]]", list[str], Path, Path]


class _Spawner:
    """A thread that forks for the whole process and ends only with it.

    The death signal of a child fires when the thread that forked it ends, not the process, so a
    test's or a request's thread must not fork servers itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()

    def spawn(self, command: list[str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._owner != os.getpid():  # first use, or a fork lost the thread
                self._owner = os.getpid()
                self._work = queue.SimpleQueue()
                threading.Thread(
                    target=self._run, args=(self._work,), name="zkcoord-spawner", daemon=True
                ).start()
            result: Future[subprocess.Popen[bytes]] = Future()
            self._work.put((result, command, folder, log))
        return result.result(timeout=30)

    @staticmethod
    def _run(work: queue.SimpleQueue[_Work]) -> None:
        while True:
            result, command, folder, log = work.get()
            try:
                with log.open("ab") as output:
                    child = subprocess.Popen(
                        command,
                        cwd=folder,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        # Ctrl-C in a terminal is for us; we stop our servers ourselves.
                        start_new_session=True,
                    )
            except BaseException as error:
                result.set_exception(error)
            else:
                result.set_result(child)
            del result


_spawner = _Spawner()


class GuardedProcess:
    """A child that the kernel kills when this process ends, however it ends.

    Output goes to `log`, appended. Not thread-safe; one owner at a time.
    """

    def __init__(self, command: Sequence[str], *, folder: Path, log: Path) -> None:
        """Start `command` (program first, with its path) in `folder`.

        Raises:
            StackError: it cannot be started.
        """
        launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid())]
        try:
            self._child = _spawner.spawn([*launcher, *command], folder, log)
        except OSError as error:
            raise StackError(f"cannot start {command[0]}: {error}") from error
        self.paused = False

    @property
    def pid(self) -> int:
        """The process id; it stays the same when the launcher becomes the server."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, be it paused."""
        return self._child.poll() is None

    @property
    def status(self) -> int | None:
        """The exit status; less than zero is a signal; None while it runs."""
        return self._child.poll()

    def pause(self) -> None:
        """SIGSTOP: it keeps its memory, ports and connections, and does nothing."""
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)
        self.paused = False

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        self._child.wait(_KILL_SECONDS)
        self.paused = False

    def stop(self, timeout: float) -> None:
        """SIGTERM; SIGKILL when it is still there after `timeout` seconds."""
        self._signal(signal.SIGTERM)
        self.resume()
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)
