"""The programs of the page on fencing: saved, pointed to servers of this run, run as processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Self

import httpx
from pages import DOCS, blocks

from zkcoord.local.ports import choose

PAGE = DOCS / "how-to" / "fence-what-you-write.md"
STEP_S = 60
_NAMED = re.compile(r"# (\w+)\.py\b")


@dataclass(frozen=True)
class Place:
    """Where the programs are saved, and what they are pointed to; no `database` when empty."""

    folder: Path
    zookeeper: str
    database: str
    api: str

    def program(self, name: str) -> Path:
        return self.folder / f"{name}.py"

    def module(self, name: str) -> ModuleType:
        """A program without its main."""
        made = ModuleType(name)
        exec(compile(self.program(name).read_text(), f"{name}.py", "exec"), made.__dict__)
        return made

    def save(self, *, timeout_s: float) -> None:
        """Save all programs, with the addresses of this run and this session timeout."""
        session = f'{self.zookeeper}", config=SessionConfig(timeout_s={timeout_s})'
        for block in blocks(PAGE):
            if block.language != "python":
                continue
            named = _NAMED.match(block.text)
            assert named, f"line {block.line}: a program of this page begins with its name"
            text = block.text.replace('localhost:2181"', session)
            text = text.replace("from zkcoord import ", "from zkcoord import SessionConfig, ")
            text = text.replace("postgresql://localhost/shop", self.database)
            text = text.replace("http://localhost:8000", self.api)
            self.program(named[1]).write_text(text, encoding="utf-8")

    def variant(self, name: str, kept_as: str, changes: dict[str, str]) -> str:
        """Save a program with changes, each of which must have its place; return its name."""
        text = self.program(name).read_text(encoding="utf-8")
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        self.program(kept_as).write_text(text, encoding="utf-8")
        return kept_as

    def schema(self) -> str:
        """The SQL of the page."""
        return "\n".join(block.text for block in blocks(PAGE) if block.language == "sql")


class Holder:
    """One run of a program: it takes the lock, reads, waits for Enter, and writes."""

    def __init__(self, place: Place, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", place.program(name)],
            cwd=place.folder,
            env={k: v for k, v in os.environ.items() if not k.startswith("ZKCOORD_")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_it_asks(self) -> None:
        """It holds the lock, has read, and writes next."""
        assert self._process.stdout
        asked = self._process.stdout.readline()
        assert "press Enter" in asked, asked + self._process.communicate(timeout=STEP_S)[1]

    def stop(self) -> None:
        """Pause it, as a debugger or a scheduler may."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> tuple[int, str, str]:
        """Wake it and press Enter: its status, and what it printed from then on."""
        self._process.send_signal(signal.SIGCONT)
        out, err = self._process.communicate("\n", timeout=STEP_S)
        return self._process.returncode, out, err

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@contextmanager
def serving(place: Place) -> Iterator[None]:
    """Run the page's server."""
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "fence_server:app", "--port", place.api.split(":")[2]],
        cwd=place.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + STEP_S
        while not _answers(place.api):
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait(30)


def free_address() -> str:
    """Where the page's server may listen."""
    return f"http://127.0.0.1:{choose(1)[0]}"


def _answers(address: str) -> bool:
    try:
        httpx.get(address)
    except httpx.TransportError:
        return False
    return True
