"""The tutorial, run as the one story that it tells."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pages import DOCS, blocks

PAGE = DOCS / "tutorial" / "first-queue.md"
NAMED = re.compile(r"# (\w+\.py)\n")
SECONDS = 180


def script(zookeeper: str, kafka: str, namespace: str) -> str:
    """The page as one bash script: programs are saved under their names, commands are run.

    The shared stack plays the part of `zkcoord local up`.
    """
    parts = ["set -euo pipefail", "trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT"]
    for block in blocks(PAGE):
        text = block.text.replace("localhost:2181", zookeeper).replace("localhost:9092", kafka)
        text = text.replace('"zkcoord.mail.', f'"{namespace}.mail.')
        if block.language == "python":
            named = NAMED.match(text)
            assert named, f"line {block.line}: a program of the tutorial begins with its name"
            parts.append(f"cat > {named[1]} <<'PROGRAM'\n{text}PROGRAM")
        elif block.language == "sh":
            parts.append(f"echo '--- line {block.line}'")
            parts.append(re.sub(r"^zkcoord local .*\n", "", text, flags=re.MULTILINE))
    return "\n".join(parts) + "\n"


@pytest.fixture
def output(zookeeper: str, kafka: str, queue_name: str, tmp_path: Path) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("ZKCOORD_")
    }
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PYTHONWARNINGS": "error",
        "PYTHONUNBUFFERED": "1",
        "ZKCOORD_ZOOKEEPER": zookeeper,
        "ZKCOORD_KAFKA": kafka,
        "ZKCOORD_NAMESPACE": queue_name,
    }
    with subprocess.Popen(
        ["bash", "-c", script(zookeeper, kafka, queue_name)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            out, _ = child.communicate(timeout=SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    logs = "\n".join(f"== {log.name}\n{log.read_text()}" for log in tmp_path.glob("*.log"))
    assert child.returncode == 0, out + logs
    return out


@pytest.mark.slow
def test_the_tutorial(output: str) -> None:
    def after(word: str) -> str:
        """What was printed from the block that begins where `word` first stands on the page."""
        line = next(b.line for b in blocks(PAGE) if b.language == "sh" and word in b.text)
        return output.partition(f"--- line {line}\n")[2].partition("\n--- line ")[0]

    created = after("queue create")
    assert "11 of 11 topics were missing" in created
    assert "has no leader" in created
    assert after("template=welcome --wait").splitlines()[-1] == '"welcome sent to a@example.org"'
    assert after("submit.py").split("\n")[-2:] == [
        "welcome sent to b@example.org",
        "alarm sent to c@example.org",
    ]
    assert after("plain.py").splitlines()[-1] == '"hello sent to d@example.org"'
    looked = after("task list mail\n")
    assert re.search(r"^order-7 +succeeded +high +send", looked, re.MULTILINE)
    assert "worker-1" in looked
    killed = after("kill -9")
    assert re.search(r"attempt +2\n", killed)
    assert "agent lost" in killed
    assert '"all is well\\n"' in killed.splitlines()
    dead = after("to=nobody")
    assert "status 9" in dead
    assert re.search(r"bad-1 +exhausted +send +2 ", dead), dead
    assert "'nobody' is no address" in dead
    locked = after("lock run")
    assert re.search(r"^token \d+$", locked, re.MULTILINE)
    assert re.search(r"^report +lock run sh ", locked, re.MULTILINE)
    assert "has to wait" in after("locked.py")
    assert after("elect.py").splitlines()[:2] == ["leader: blue", "leader: green"]
