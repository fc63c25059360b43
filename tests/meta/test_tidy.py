"""The house rules that a program can check. Each failure names the file and what to do."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sources import ROOT, name_of, python_files, tracked, tree

FILE_LINES_MAX = 399
FUNCTION_LINES_MAX = 69
PARAMETERS_MAX = 8
LINE_LENGTH_MAX = 100
PRAGMA = re.compile(r"\s*# (noqa|type: ignore|fmt: )[^#]*$")  # may stand beyond the margin
BANNED_MODULES = {"utils", "util", "common", "manager", "managers", "helper", "helpers", "misc"}
# Written apart, so that this file does not find itself.
LEFTOVERS = re.compile(
    r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")) + r")\b"
)
MACHINE_PATHS = re.compile(
    "|".join((r"/wo" + r"rk/(main|shared)", r"/ro" + r"ot/\w", r"/tmp/br" + "ief"))
)
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".sh", ".lock", ".json", ".cfg", ".txt", ""}


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in python_files():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name_of(path)}:{node.lineno} {node.name}", node


def test_files_stay_below_400_lines() -> None:
    long = {
        name_of(path): lines
        for path in python_files()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
    }
    assert not long, "split these"


def test_functions_stay_below_70_lines() -> None:
    long = {
        name: lines
        for name, node in functions()
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert not long, "split these"


def test_functions_take_at_most_8_parameters() -> None:
    many = {}
    for name, node in functions():
        arguments = node.args
        given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        names = [a.arg for a in given if a.arg not in ("self", "cls")]
        # Options of a command are its parameters; click passes them by name.
        is_command = any(
            "command" in ast.dump(d) or "option" in ast.dump(d) for d in node.decorator_list
        )
        if len(names) > PARAMETERS_MAX and not is_command and node.name != "__init__":
            many[name] = len(names)
    assert not many, "gather parameters into a value"


def test_lines_fit() -> None:
    wide = [
        f"{name_of(path)}:{number}"
        for path in python_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(PRAGMA.sub("", line)) > LINE_LENGTH_MAX
    ]
    assert not wide


def texts() -> Iterator[tuple[Path, int, str]]:
    for path in tracked():
        if path.suffix not in TEXT:
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            yield path, number, line


def test_nothing_is_left_for_later() -> None:
    left = [f"{name_of(p)}:{n}" for p, n, line in texts() if LEFTOVERS.search(line)]
    assert not left, "do it, or say in the documentation that it is not there"


def test_no_path_of_a_machine() -> None:
    found = [f"{name_of(p)}:{n} {line}" for p, n, line in texts() if MACHINE_PATHS.search(line)]
    assert not found


def test_modules_are_named_for_what_they_hold() -> None:
    vague = [
        name_of(path)
        for path in python_files()
        if {path.stem, *path.relative_to(ROOT).parent.parts} & BANNED_MODULES
    ]
    assert not vague


def test_test_files_have_names_of_their_own() -> None:
    names = Counter(path.name for path in python_files() if path.name.startswith("test_"))
    assert not [name for name, count in names.items() if count > 1]


def module_of(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] == "cli":
        parts = parts[1:]
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file may import, names of `from` imports too."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_entry(path: Path) -> bool:
    """Whether a module is started or found by name: a program, a command, a package."""
    return (
        path.name in ("__init__.py", "__main__.py")
        or path.parent.name == "commands"
        or '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    )


def test_every_module_is_used() -> None:
    product = [p for p in python_files() if p.relative_to(ROOT).parts[0] in ("zkcoord", "cli")]
    used = {name for path in product for name in imports_of(path)}
    # A module that is named in a string is imported lazily by that name.
    # The compose file names the tasks of its agents.
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in [*product, ROOT / "docker" / "compose.yaml"]
    )
    used.update(re.findall(r'"((?:zkcoord|zkcoord_cli)\.[\w.]+)(?::\w+)?"', text))
    dead = [name_of(path) for path in product if not is_entry(path) and module_of(path) not in used]
    assert not dead, "remove these, or use them"
