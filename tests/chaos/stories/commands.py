"""A story of the command line: T22."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from tests.chaos.actors import ROOT, Line
from tests.chaos.stage import Stage
from tests.histories.events import Tail


def t22_a_command_under_a_lock(stage: Stage) -> None:
    """`lock run` is cut off. Its command ignores TERM and has a grandchild in a session of its own;
    both are dead before another holds the lock."""
    line = Line(stage.arena, {})
    journal = stage.folder / "command.jsonl"
    tail = Tail(journal)
    stage.tails.append(tail)
    environment = os.environ | {
        "ZKCOORD_ZOOKEEPER": line.hosts,
        "ZKCOORD_SESSION_TIMEOUT_S": f"{stage.timeout:g}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'cli'}",
    }
    stubborn = [sys.executable, "-m", "tests.chaos.programs.stubborn", str(journal), stage.name]
    command = [sys.executable, "-m", "zkcoord_cli", "lock", "run", stage.name, "--", *stubborn]
    with (stage.folder / "command.err").open("wb") as errors:
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=errors)
    try:
        stage.comes_true(
            lambda: {"parent", "grandchild"} <= {event.text for event in tail.update()},
            "the command and its grandchild run",
        )
        waiter = stage.contender("waiter")
        waiter.asks()
        stage.waits_in_line(2)
        line.blackhole()
        waiter.holds()
        waiter.adds()
        line.heal()
        stage.comes_true(lambda: process.poll() is not None, "lock run ends")
        if process.returncode != 123:
            stage.claim("told", f"lock run ended with {process.returncode}, not with 123: lost")
    finally:
        process.kill()
        process.wait(10)
        line.close()
        for event in tail.update():
            if event.text in {"parent", "grandchild"}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(event.value, 9)
