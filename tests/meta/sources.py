"""The project's own files, for tests about them."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON_FOLDERS = ("zkcoord", "cli", "tests", "docs")


@cache
def tracked() -> list[Path]:
    """Every file that git knows or would add; without git, every file outside of tool folders."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split("\0")
        paths = [ROOT / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(part.startswith(".") or part == "build" for part in path.parts[-8:])
        ]
    return sorted(path for path in paths if path.is_file())


@cache
def python_files() -> list[Path]:
    """All Python sources of the project."""
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PYTHON_FOLDERS
    ]


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a source file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path) -> str:
    """The path as messages show it."""
    return str(path.relative_to(ROOT))
