"""Writes the pages of docs/reference that follow from the code.

python docs/generate.py           write them
python docs/generate.py --check   status 1 and their names when they are not what the code says
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from enum import EnumType
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import layouts

import zkcoord
from zkcoord import access, config, errors
from zkcoord.queue.options import TaskOptions
from zkcoord_cli.exit_codes import code_of

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by docs/generate.py from the code: change the code, then run it again. -->"

_SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):$")
_ROLE = re.compile(r":(?:class|meth|func|mod|data|attr):`~?([^`]*)`")
_ANOTHER = re.compile(r"(?<=\.) (?=[a-z_]+(?:, [a-z_]+)*: )")
_ENTRY = re.compile(r"([\w*.]+(?:, [\w*.]+)*): (.*)")


# --- docstrings to Markdown -----------------------------------------------------------------------


def inline(text: str) -> str:
    """Roles, double and italic backquotes of a docstring as Markdown code."""
    text = _ROLE.sub(lambda found: f"`{found[1].rpartition('.')[2]}`", text)
    return text.replace("``", "`")


def paragraphs(text: str) -> list[list[str]]:
    """Blocks of lines between empty lines."""
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """``name: text`` of an indented section; ("", text) where a line names nothing."""
    items: list[str] = []
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    for line in lines:
        deeper = len(line) - len(line.lstrip()) > margin
        if items and (deeper or items[-1].endswith(",")):
            items[-1] += " " + line.strip()
        else:
            items.append(line.strip())
    for part in (part for item in items for part in _ANOTHER.split(item)):
        found = _ENTRY.fullmatch(part)
        yield (found[1], found[2]) if found else ("", part)


def markdown(text: str) -> list[str]:
    """A docstring as lines of Markdown."""
    out: list[str] = []
    for block in paragraphs(text):
        section = _SECTION.match(block[0])
        if section and len(block) > 1:
            out += [f"*{section[1]}*", ""]
            for name, said in entries(block[1:]):
                names = ", ".join(f"`{one}`" for one in name.split(", ")) if name else ""
                out.append(f"- {names}: {inline(said)}" if names else f"- {inline(said)}")
        elif block == ["::"]:
            continue
        elif all(line.startswith("    ") for line in block):
            out += ["```python", *(line[4:] for line in block), "```"]
        else:
            lines = [line for line in block if line != "::"]
            out += [inline(line) for line in lines]
        out.append("")
    return out


def attributes_of(kind: type) -> dict[str, str]:
    """What the docstring of a class says of its attributes, by name."""
    told: dict[str, str] = {}
    for block in paragraphs(inspect.getdoc(kind) or ""):
        if block[0] == "Attributes:":
            for name, said in entries(block[1:]):
                told |= dict.fromkeys(name.split(", "), inline(said))
    return told


def lead(kind: Any) -> list[str]:
    """The docstring without its sections."""
    blocks = paragraphs(inspect.getdoc(kind) or "")
    kept = [block for block in blocks if not _SECTION.match(block[0])]
    return markdown("\n\n".join("\n".join(block) for block in kept))


def cell(text: str) -> str:
    """Text that is safe in a table."""
    return text.replace("|", "\\|")


# --- pages ----------------------------------------------------------------------------------------


def error_page() -> list[str]:
    """The error tree, and a row for each class."""
    blocks = paragraphs(errors.__doc__ or "")
    tree = next(block for block in blocks if block[0].strip().startswith("ZkcoordError"))
    out = ["# Errors", "", NOTE, ""]
    out += ["All are importable from `zkcoord`. `retriable`: the same call may succeed later."]
    out += ["`hint`: what to do about it. *Status* is what the command line ends with.", ""]
    out += ["```text", *(line[4:] for line in tree), "```", ""]
    out += ["| error | retriable | status | meaning |", "|---|---|---|---|"]
    found = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    signals = [kind for kind in found if not issubclass(kind, errors.ZkcoordError)]
    drawn = [re.findall(r"\w+", line)[0] for line in tree]
    kinds = sorted(set(found) - set(signals), key=lambda kind: drawn.index(kind.__name__))
    signals.sort(key=lambda kind: len(kind.__mro__))
    for kind in kinds:
        said = cell(" ".join(line for line in lead(kind) if line))
        code = code_of(kind.__new__(kind))
        retriable = "yes" if kind.retriable else ""
        out.append(f"| `{kind.__name__}` | {retriable} | {int(code)} | {said} |")
    out += ["", "## What they carry", ""]
    for kind in [*kinds, *signals]:
        out += [f"- `{kind.__name__}.{name}`: {said}" for name, said in attributes_of(kind).items()]
    out += ["", "## For task code", ""]
    out += ["Outside the tree, so that `except ZkcoordError` cannot swallow them.", ""]
    for kind in signals:
        out.append(f"- `{kind.__name__}`: {' '.join(line for line in lead(kind) if line)}")
    return [*out, ""]


def configuration() -> list[str]:
    """Every configuration value with its fields."""
    out = ["# Configuration values", "", NOTE, ""]
    out += [
        "What programs pass to zkcoord; where servers and secrets come from on the command line"
    ]
    out += ["is another page: [settings](settings.md).", ""]
    out += ["Times are seconds, sizes bytes. A constructor raises one `ConfigError` that names all"]
    out += ["fields that cannot work, with their bounds. Secrets are masked in `repr`.", ""]
    for kind in vars(config).values():
        if isinstance(kind, type) and kind.__module__ in {access.__name__, config.__name__}:
            out += value_page(kind)
    return [*out, *options_page()]


def value_page(kind: type) -> list[str]:
    """A section for one dataclass."""
    told = attributes_of(kind)
    out = [f"## {kind.__name__}", "", *lead(kind)]
    out += ["| field | type | default | meaning |", "|---|---|---|---|"]
    for one in dataclasses.fields(kind):
        out.append(row(one.name, str(one.type), default_of(one), told))
    return [*out, ""]


def options_page() -> list[str]:
    """A section for what a submission may say."""
    told = attributes_of(TaskOptions)
    out = ["## Options of a submission", "", *lead(TaskOptions)]
    out += ["Arguments of `@queue.task(...)`, `task.options(...)` and `queue.submit_raw(...)`.", ""]
    out += ["| field | type | default | meaning |", "|---|---|---|---|"]
    fields = TaskOptions.__struct_fields__
    for name, default in zip(fields, TaskOptions.__struct_defaults__, strict=True):
        text = str(default) if isinstance(default, zkcoord.Priority) else repr(default)
        if isinstance(default, zkcoord.Priority):
            text = f"Priority.{default.name}"
        out.append(row(name, str(TaskOptions.__annotations__[name]), text, told))
    return [*out, ""]


def row(name: str, kind: str, default: str, told: dict[str, str]) -> str:
    """One field in a table."""
    shown = f"`{default}`" if default else "needed"
    return f"| `{name}` | `{cell(kind)}` | {shown} | {cell(told.get(name, ''))} |"


def default_of(one: dataclasses.Field[Any]) -> str:
    """A field's default as one would write it; empty when there is none."""
    if one.default is not dataclasses.MISSING:
        return repr(one.default)
    if one.default_factory is dataclasses.MISSING:
        return ""
    made = one.default_factory()
    return f"{one.default_factory.__name__}()" if made else repr(made)


def api() -> list[str]:
    """Every public name with its docstring, and its public methods with theirs."""
    out = ["# Python names", "", NOTE, ""]
    out += ["Everything here is importable from `zkcoord`. Errors: [errors](errors.md);"]
    out += ["configuration values: [configuration](configuration.md).", ""]
    for name in zkcoord.__all__:
        thing = getattr(zkcoord, name)
        if thing.__module__.startswith((errors.__name__, config.__name__)):
            continue
        out += [f"## {name}", "", "```text", shape(name, thing), "```", ""]
        out += markdown(inspect.getdoc(thing) or "")
        if isinstance(thing, type):
            out += members(thing)
    return out


def members(kind: type) -> list[str]:
    """The public methods and properties of a class, those of undocumented bases included."""
    out: list[str] = []
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("zkcoord"):
            continue
        if base is not kind and base.__name__ in zkcoord.__all__:
            out += [f"And what a [{base.__name__}](#{base.__name__.lower()}) has.", ""]
            break
        for name, value in vars(base).items():
            function = getattr(value, "fget", value)
            if name.startswith("_") or name in seen or not inspect.isfunction(function):
                continue
            seen.add(name)
            if is_internal(function):
                continue
            is_method = function is value
            out += [f"**`{signature(name, function) if is_method else name}`**", ""]
            out += markdown(inspect.getdoc(function) or "")
    return out


def shape(name: str, thing: Any) -> str:
    """What one sees of a public name: how it is called, or which members it has."""
    if isinstance(thing, EnumType):
        return "\n".join(f"{name}.{one.name} = {one.value}" for one in thing)
    return name if is_given(thing) else signature(name, thing)


def is_given(thing: Any) -> bool:
    """Whether nobody makes it, because other calls return it: its docstring says from where."""
    return isinstance(thing, type) and "Given by " in (inspect.getdoc(thing) or "")


def is_internal(function: Any) -> bool:
    """Whether a public member is for the library's own use: its docstring begins with that."""
    return (inspect.getdoc(function) or "").startswith("Internal: ")


def signature(name: str, thing: Any) -> str:
    """How it is called."""
    if not inspect.isfunction(thing) and hasattr(thing, "_fields"):
        return f"{name}({', '.join(thing._fields)})"
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    parts: list[str] = []
    starred = False
    for one in found.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        noted = one.annotation is not one.empty
        text = f"{stars}{one.name}" + (f": {written(one.annotation)}" if noted else "")
        if one.default is not one.empty:
            text += f" = {one.default!r}" if noted else f"={one.default!r}"
        parts.append(text)
    returned = found.return_annotation
    shown = not isinstance(thing, type) and returned is not found.empty
    back = f" -> {written(returned)}" if shown else ""
    prefix = "async " if inspect.iscoroutinefunction(thing) else ""
    return f"{prefix}{name}({', '.join(parts)}){back}"


def written(annotation: Any) -> str:
    """An annotation as it stands in the source."""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "…")


def topic_layout() -> list[str]:
    """The topics of a queue."""
    return ["# Topics of a queue", "", NOTE, "", *layouts.topic_page()]


def wire_format() -> list[str]:
    """The internal records."""
    return ["# Wire format", "", NOTE, "", *layouts.wire_page(markdown)]


PAGES: dict[str, Callable[[], list[str]]] = {
    "errors.md": error_page,
    "configuration.md": configuration,
    "python.md": api,
    "topic-layout.md": topic_layout,
    "wire-format.md": wire_format,
}


def text_of(page: str) -> str:
    """A page as it must stand in the file."""
    text = "\n".join(line.rstrip() for line in PAGES[page]())
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def main(arguments: list[str]) -> int:
    """Write or check all pages."""
    stale = []
    for page in PAGES:
        path = REFERENCE / page
        text = text_of(page)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(page)
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    for page in stale:
        print(f"{'stale' if '--check' in arguments else 'written'}: docs/reference/{page}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
