"""Rivals that run in processes of their own: etcd's package, and Curator.

Who cannot run here is left out, and the reason is printed and kept beside the figures.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.curator.driver import CuratorDriver, DriverMissing

SOURCE = Path(__file__).resolve().parents[1] / "etcd"
PROGRAM = Path(__file__).resolve().parents[3] / "build" / "bench-etcd"
_BUILD_S = 1200.0


class RivalMissing(Exception):
    """It cannot run here; the message says why."""


@contextmanager
def where_it_runs(notes: list[str]) -> Iterator[None]:
    """Go on without a rival that cannot run here, and note why."""
    try:
        yield
    except (RivalMissing, DriverMissing) as missing:
        notes.append(f"left out: {missing}")


def curator(hosts: str) -> CuratorDriver:
    """Curator with all that Java's compilers can do for it."""
    return CuratorDriver(hosts, flags=("-XX:+UseSerialGC", "-Xmx256m"))


class Lines:
    """A child that answers lines with lines."""

    def __init__(self, *command: str | Path) -> None:
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first = self._read()

    def ask(self, line: str) -> str:
        assert self._child.stdin is not None
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RivalMissing(f"{self._child.args} ended with {self._child.wait()}")
        return line.strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def build_etcd() -> Path:
    """The program of ``tests/bench/etcd``, compiled when it is older than its source.

    Raises:
        RivalMissing: no Go, or it does not compile.
    """
    go = shutil.which("go")
    if go is None:
        raise RivalMissing("etcd: no go on PATH")
    sources = [path.stat().st_mtime for path in SOURCE.iterdir()]
    if not PROGRAM.exists() or PROGRAM.stat().st_mtime < max(sources):
        PROGRAM.parent.mkdir(exist_ok=True)
        command = [go, "build", "-buildvcs=false", "-o", PROGRAM, "."]
        done = subprocess.run(
            command, cwd=SOURCE, capture_output=True, text=True, check=False, timeout=_BUILD_S
        )
        if done.returncode:
            raise RivalMissing(f"etcd: {done.stderr.strip().splitlines()[-1]}")
    return PROGRAM


@contextmanager
def etcd_servers(count: int, folder: Path) -> Iterator[list[str]]:
    """A cluster in one process; the addresses of its members."""
    with Lines(build_etcd(), "serve", str(count), folder) as child:
        yield child.first.split(",")


class EtcdClient(Lines):
    """etcd's concurrency package: two sessions in one process."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(build_etcd(), "client", ",".join(addresses))

    def locks(self, count: int) -> list[float]:
        """Milliseconds of acquire + release."""
        return [int(word) / 1000 for word in self.ask(f"lock {count}").split()][1::2]

    def hand_offs(self, count: int) -> list[float]:
        """Milliseconds from the release in one session to the grant in the other."""
        return [int(word) / 1000 for word in self.ask(f"handoff {count}").split()]
