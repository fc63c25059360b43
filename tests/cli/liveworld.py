"""One queue on the shared stack for tests of commands, with handlers, and how to run commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from zkcoord.local import Stack
from zkcoord_cli.main import cli

HANDLERS = """
import time
from zkcoord import Queue

queue = Queue("QUEUE", kafka="example.org:1", zookeeper="example.org:2")  # overridden by variables


@queue.task()
def send(to: str, copies: int = 1) -> dict[str, object]:
    return {"to": to, "copies": copies}


@queue.task()
def fail(text: str) -> None:
    raise ValueError(text)


@queue.task()
def nap(seconds: float) -> None:
    time.sleep(seconds)
"""


class World:
    """One queue on the shared stack, and how to run commands against it."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.queue = f"live-{os.getpid()}"
        self.folder = folder
        self.environment = {
            **os.environ,
            "ZKCOORD_ZOOKEEPER": f"{stack.zookeeper}/cli-{os.getpid()}",
            "ZKCOORD_KAFKA": stack.kafka,
            "XDG_CONFIG_HOME": "/nonexistent",
        }
        (folder / "app.py").write_text(HANDLERS.replace("QUEUE", self.queue))

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "zkcoord_cli", *arguments],
            text=True,
            env=self.environment,
            cwd=self.folder,
            **more,
        )

    def run(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run one command: in this process, unless it is about processes and signals."""
        if arguments[1:2] == ("run",):
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            with self.start(*arguments, **pipes) as process:
                out, err = process.communicate(timeout=90)
            ended = process.returncode
        else:
            result = CliRunner(env=self.environment).invoke(cli, arguments)
            ended, out, err = result.exit_code, result.stdout, result.stderr
        assert ended == code, f"{arguments}: {ended}\n{out}\n{err}"
        return out, err

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.run(*arguments, "--json", code=code)[0])
        return document


def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.1)
