"""The pinned jars of the servers: what they are, and a checked copy of each in the user's cache.

``jars.lock`` names every jar with its size and SHA-256. A jar is fetched once, checked, and moved
into the cache in one step, so that a cache never holds half a file. Hashes are compared at every
start (0.1 s for all); a file that is not the lock's is fetched again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from zkcoord.errors import StackError
from zkcoord.local import paths
from zkcoord.local.download import Download, fetch_all

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
"""Where jars come from unless ``ZKCOORD_MAVEN_MIRROR`` names another repository."""

MIRROR_VARIABLE = "ZKCOORD_MAVEN_MIRROR"


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock: which server needs it, its Maven coordinates, size and hash."""

    server: str
    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def path(self) -> str:
        """Where a Maven repository keeps it, and where the cache does."""
        folder = self.group.replace(".", "/")
        return f"{folder}/{self.artifact}/{self.version}/{self.artifact}-{self.version}.jar"


def parse_lock(text: str) -> list[Jar]:
    """Read a lock: one jar a line, six words; empty lines and ``#`` comments are skipped.

    Raises:
        StackError: a line is not understood; it is named.
    """
    jars = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 6 or not words[4].isdigit() or len(words[5]) != 64:
            raise StackError(
                f"jars.lock line {number} is not 'server group artifact version bytes sha256'"
            )
        jars.append(Jar(words[0], words[1], words[2], words[3], int(words[4]), words[5]))
    if not jars:
        raise StackError("jars.lock names no jar")
    return jars


def locked() -> list[Jar]:
    """The jars of the lock that ships with this package."""
    return parse_lock(resources.files("zkcoord.local").joinpath("jars.lock").read_text("utf-8"))


def version(server: str, artifact: str) -> str:
    """The pinned version of one artifact of ``zookeeper`` or ``kafka``."""
    return next(j.version for j in locked() if (j.server, j.artifact) == (server, artifact))


def folder() -> Path:
    """The cache's folder of jars."""
    return paths.cache_dir() / "jars"


def matches(path: Path, jar: Jar) -> bool:
    """Whether the file at `path` is this jar, by its hash."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except OSError:
        return False


def ensure(jars: Iterable[Jar], *, mirror: str | None = None) -> Path:
    """Have a good copy of every jar in the cache and return the cache's folder.

    Args:
        jars: what is needed.
        mirror: a Maven repository; ``ZKCOORD_MAVEN_MIRROR``, then Maven Central when None.

    Raises:
        StackError: something is neither cached nor to be had, or arrived damaged.
    """
    base = (mirror or os.environ.get(MIRROR_VARIABLE) or MAVEN_CENTRAL).rstrip("/")
    root = folder()
    missing = {}
    for jar in jars:
        path = root / jar.path
        if not matches(path, jar):
            missing[jar.path] = Download(f"{base}/{jar.path}", path, jar.size, jar.sha256)
    if missing:
        fetch_all(
            list(missing.values()),
            title=f"fetching {len(missing)} server jars from {base}",
            hint=f"name another Maven repository in {MIRROR_VARIABLE}, or fill {root} by hand",
        )
    return root


def classpath(server: str, *, root: Path | None = None) -> str:
    """The Java class path of ``zookeeper`` or ``kafka`` over the cache."""
    base = folder() if root is None else root
    return os.pathsep.join(str(base / jar.path) for jar in locked() if jar.server == server)
