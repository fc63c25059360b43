"""`zkcoord agent run` that gets SIGTERM before it has joined. No servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HANDLERS = """
import pathlib, time
pathlib.Path("importing").touch()
try:
    time.sleep(60)
except Exception:
    pass
queue = {"work": print}
"""


def test_sigterm_while_the_handlers_are_imported_ends_cleanly(tmp_path: Path) -> None:
    (tmp_path / "slowapp.py").write_text(HANDLERS)
    agent = subprocess.Popen(
        [
            *(sys.executable, "-m", "zkcoord_cli", "agent", "run", "mail"),
            *("--handlers", "slowapp:queue"),
            *("--zookeeper", "127.0.0.1:1", "--kafka", "127.0.0.1:1"),
        ],
        cwd=tmp_path,
        env={**os.environ, "ZKCOORD_LOG_FORMAT": "text"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "importing").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        agent.send_signal(signal.SIGTERM)
        out, err = agent.communicate(timeout=30)
    finally:
        agent.kill()
        agent.wait()
    assert (agent.returncode, out) == (0, "")
    assert "the agent leaves: SIGTERM while it was not in the queue" in err
    assert len(err.splitlines()) == 1
