"""Curator's InterProcessMutex in a process of its own, for tests and benchmarks.

Jars come from Maven Central (or ``ZKCOORD_MAVEN_MIRROR``) by the hashes in ``jars.lock``, and the
program is compiled once per version of its source. Both are kept in the user's cache.

The protocol, one line each way; ID is a word the asker chooses:

====================================  ==========================================================
``acquire ID PATH MILLISECONDS``      ``acquired ID`` or ``timeout ID``; -1 waits without a limit
``release ID``                        ``released ID``
``bench ID PATH ROUNDS THREADS``      ``bench ID WALL N...``, nanoseconds: for all, and each round
``permits ID PATH ROUNDS``            likewise, with one of two permits of a semaphore
``handoffs ID PATH ROUNDS``           likewise, from one session's release to another's grant
``quit``, or the end of stdin         closes the session
====================================  ==========================================================

``{}`` in the path of ``bench`` stands for the thread's number. Anything may be answered with
``error ID text``.
"""

from __future__ import annotations

import hashlib
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple, Self

from zkcoord.errors import StackError
from zkcoord.local import jars, java, paths

HERE = Path(__file__).parent
SOURCE = HERE / "CuratorDriver.java"
SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m")
_START_S = 60.0
_COMPILE_S = 120.0


class DriverMissing(Exception):
    """Curator cannot be run here; the message says why."""


class BenchResult(NamedTuple):
    """Seconds: for the whole run, and for each round of each thread."""

    wall: float
    rounds: list[float]


def class_path() -> str:
    """Fetch and compile what is missing.

    Raises:
        DriverMissing: no compiler, no Java, or the jars cannot be had.
        StackError: a jar is not what is pinned.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise DriverMissing("no javac on PATH: install a JDK of version 17 or later")
    wanted = jars.parse_lock((HERE / "jars.lock").read_text("utf-8"))
    wanted += [jar for jar in jars.locked() if jar.server == "zookeeper"]
    try:
        root = jars.ensure(wanted)
    except StackError as error:
        if isinstance(error.__cause__, ValueError):
            raise
        raise DriverMissing(f"Curator's jars cannot be had: {error}") from error
    libraries = os.pathsep.join(str(root / jar.path) for jar in wanted)
    return os.pathsep.join((str(_compiled(compiler, libraries)), libraries))


def _compiled(compiler: str, libraries: str) -> Path:
    digest = hashlib.sha256(SOURCE.read_bytes() + libraries.encode()).hexdigest()[:16]
    target = paths.cache_dir() / "curator-driver" / digest
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        classes = Path(folder) / "classes"
        command = [compiler, "--release", "17", "-cp", libraries, "-d", str(classes), str(SOURCE)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMPILE_S, check=False
        )
        if done.returncode:
            raise DriverMissing(f"{compiler} cannot compile {SOURCE.name}: {done.stderr}")
        try:
            classes.rename(target)
        except OSError:  # another process was first; it compiled the same
            if not target.exists():
                raise
    return target


class CuratorDriver:
    """One process with one Curator session.

    Args:
        hosts: connect string, with chroot.
        timeout: session timeout in seconds.
        flags: of Java; those for a small process that starts fast when not given.

    Raises:
        DriverMissing: see :func:`class_path`.
    """

    def __init__(self, hosts: str, *, timeout: float = 10.0, flags: Sequence[str] = SMALL) -> None:
        path = class_path()
        try:
            program = java.find_java().program
        except StackError as error:
            raise DriverMissing(str(error)) from error
        quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        arguments = ["-cp", path, "CuratorDriver", hosts, str(int(timeout * 1000))]
        self.process = subprocess.Popen(
            [program, *flags, *quiet, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._numbers = count(1)
        self._replies: dict[str, queue.SimpleQueue[list[str]]] = {}
        self._first: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="curator-driver", daemon=True)
        self._reader.start()
        word, value = self._first.get(timeout=_START_S)
        if word != "ready":
            self.kill()
            raise ConnectionError(f"curator: {value}")
        self.session = int(value)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.split()
            if words[0] in ("ready", "failed"):
                self._first.put([words[0], " ".join(words[1:])])
            else:
                self._replies[words[1]].put([words[0], *words[2:]])
        self._first.put(["failed", "the process ended"])
        for replies in list(self._replies.values()):
            replies.put(["ended"])

    def _say(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def ask(self, path: str, timeout: float | None = None) -> CuratorMutex:
        """Ask for the mutex; returns at once."""
        mutex = CuratorMutex(self, f"m{next(self._numbers)}")
        self._replies[mutex.id] = mutex.replies
        self._say("acquire", mutex.id, path, -1 if timeout is None else int(timeout * 1000))
        return mutex

    def bench(
        self, path: str, rounds: int, *, threads: int = 1, patience: float = 120.0
    ) -> BenchResult:
        """Acquire and release, `rounds` times in each thread; ``{}`` in path: its number."""
        return self._measure("bench", path, rounds, threads, patience=patience)

    def permits(self, path: str, rounds: int, *, patience: float = 120.0) -> BenchResult:
        """Acquire and return one of two permits of InterProcessSemaphoreV2."""
        return self._measure("permits", path, rounds, patience=patience)

    def hand_offs(self, path: str, rounds: int, *, patience: float = 120.0) -> BenchResult:
        """From the release in this session to the grant in another of the same process."""
        return self._measure("handoffs", path, rounds, patience=patience)

    def _measure(self, word: str, path: str, *numbers: int, patience: float) -> BenchResult:
        name = f"b{next(self._numbers)}"
        replies: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._replies[name] = replies
        self._say(word, name, path, *numbers)
        word, *values = replies.get(timeout=patience)
        if word != "bench":
            raise RuntimeError(f"curator: {word} {' '.join(values)}")
        wall, *each = (int(value) / 1e9 for value in values)
        return BenchResult(wall, each)

    def release(self, mutex: CuratorMutex) -> None:
        """Release; returns at once."""
        self._say("release", mutex.id)

    def kill(self) -> None:
        """As a crash: the session goes on until it expires."""
        self.process.kill()
        self._join()

    def close(self) -> None:
        """Close the session and wait for the process."""
        try:
            if self.process.poll() is None:
                self._say("quit")
                self.process.wait(20)
        finally:
            self.kill()

    def _join(self) -> None:
        self.process.wait()
        self._reader.join(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CuratorMutex:
    """One request for a mutex."""

    def __init__(self, driver: CuratorDriver, name: str) -> None:
        self._driver = driver
        self.id = name
        self.replies: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self.acquired = False

    def wait(self, seconds: float = 20.0) -> bool:
        """Whether it was acquired; False when Curator's own time ran out."""
        word, *rest = self.replies.get(timeout=seconds)
        if word == "timeout":
            return False
        if word != "acquired":
            raise RuntimeError(f"curator: {word} {' '.join(rest)}")
        self.acquired = True
        return True

    def waits(self) -> bool:
        """Whether there is no answer yet."""
        return not self.acquired and self.replies.empty()

    def release(self, seconds: float = 20.0) -> None:
        """Release and wait for it."""
        self._driver.release(self)
        word, *rest = self.replies.get(timeout=seconds)
        if word != "released":
            raise RuntimeError(f"curator: {word} {' '.join(rest)}")
