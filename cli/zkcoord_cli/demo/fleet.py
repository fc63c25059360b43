"""The demo's processes: model endpoint, schedulers, agents. All die with the demo."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from zkcoord.errors import StackError
from zkcoord.local.process import GuardedProcess

STOP_S = 15.0


class Fleet:
    """Named child processes with a log file each.

    Args:
        folder: where logs go.
        environment: variables that the children get on top of ours.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._variables = [f"{name}={value}" for name, value in environment.items()]
        self._children: dict[str, GuardedProcess] = {}
        self.lives: dict[str, tuple[float, float | None]] = {}  # name: started, ended (wall clock)

    def start(self, name: str, module: str, *arguments: str) -> None:
        """Run ``python -m module arguments`` as `name`."""
        command = ["/usr/bin/env", *self._variables, sys.executable, "-m", module, *arguments]
        self._children[name] = GuardedProcess(command, folder=self._folder, log=self.log(name))
        self.lives[name] = (time.time(), None)

    def kill(self, name: str) -> float:
        """SIGKILL; return the wall-clock time of it."""
        at = time.time()
        self._children[name].kill()
        self.lives[name] = (self.lives[name][0], at)
        return at

    def log(self, name: str) -> Path:
        """The log file of `name`."""
        return self._folder / f"{name}.log"

    def output(self, name: str, deadline: float) -> str:
        """The first line that `name` prints.

        Raises:
            StackError: it printed none until `deadline` (monotonic), or ended before.
        """
        while time.monotonic() < deadline:
            first, newline, _ = self.log(name).read_text(encoding="utf-8").partition("\n")
            if newline:
                return first
            if not self._children[name].alive:
                break
            time.sleep(0.02)
        raise StackError(f"{name} did not start", hint=f"its log: {self.log(name)}")

    def dead(self) -> list[str]:
        """Names of processes that ended without being killed by us."""
        return [
            name
            for name, child in self._children.items()
            if not child.alive and self.lives[name][1] is None
        ]

    def stop(self) -> None:
        """Ask all to stop, agents first, then make sure."""
        for name in sorted(self._children):
            child = self._children[name]
            if child.alive:
                os.kill(child.pid, 15)
        deadline = time.monotonic() + STOP_S
        for name, child in self._children.items():
            while child.alive and time.monotonic() < deadline:
                time.sleep(0.02)
            if child.alive:
                child.kill()
            if self.lives[name][1] is None:
                self.lives[name] = (self.lives[name][0], time.time())
