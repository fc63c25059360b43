"""Real text to work on: the docstrings of standard-library modules."""

from __future__ import annotations

import ast
import sys
import sysconfig
from pathlib import Path

TEXT_CHARS_MAX = 2000


def docstrings(count: int) -> list[tuple[str, str]]:
    """`count` pairs of module name and docstring, in the order of their names.

    Modules are read, not imported. With fewer documented modules than asked for, the list starts
    again, with the round appended to the name.
    """
    found: list[tuple[str, str]] = []
    root = Path(sysconfig.get_paths()["stdlib"])
    for name in sorted(sys.stdlib_module_names):
        text = _docstring(root, name)
        if text and len(text) >= 60:
            found.append((name, text[:TEXT_CHARS_MAX]))
    if not found:
        found.append(("python", sys.copyright))
    return [
        found[i]
        if i < len(found)
        else (f"{found[i % len(found)][0]}#{i // len(found)}", found[i % len(found)][1])
        for i in range(count)
    ]


def _docstring(root: Path, name: str) -> str:
    for path in (root / f"{name}.py", root / name / "__init__.py"):
        if path.is_file():
            try:
                return ast.get_docstring(ast.parse(path.read_bytes())) or ""
            except (SyntaxError, ValueError):
                return ""
    return ""
