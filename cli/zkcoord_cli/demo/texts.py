"""Real text to work on: the docstrings of standard-library modules."""

from __future__ import annotations

import ast
import io
import sys
import sysconfig
import tokenize
from pathlib import Path

TEXT_CHARS_MIN = 60
TEXT_CHARS_MAX = 2000
_SKIPPED = {tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE}


def docstrings(count: int) -> list[tuple[str, str]]:
    """`count` pairs of module name and docstring, in the order of their names.

    Modules are read, not imported, and no further than their docstring. With fewer documented
    modules than asked for, the list starts again, with the round appended to the name.
    """
    found: list[tuple[str, str]] = []
    root = Path(sysconfig.get_paths()["stdlib"])
    for name in sorted(sys.stdlib_module_names):
        if len(found) == count:
            return found
        text = _docstring(root, name)
        if len(text) >= TEXT_CHARS_MIN:
            found.append((name, text[:TEXT_CHARS_MAX]))
    if not found:
        found.append(("python", sys.copyright))
    more = range(1, count // len(found) + 1)
    rounds = [(f"{name}#{n}", text) for n in more for name, text in found]
    return (found + rounds)[:count]


def _docstring(root: Path, name: str) -> str:
    for path in (root / f"{name}.py", root / name / "__init__.py"):
        if path.is_file():
            return _first_string(path.read_bytes())
    return ""


def _first_string(source: bytes) -> str:
    """The string that a module begins with, or the empty string."""
    try:
        for token in tokenize.tokenize(io.BytesIO(source).readline):
            if token.type == tokenize.STRING:
                text = ast.literal_eval(token.string)
                return text.strip() if isinstance(text, str) else ""
            if token.type not in _SKIPPED:
                return ""
    except (tokenize.TokenError, SyntaxError, ValueError):
        return ""
    return ""
