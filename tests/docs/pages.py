"""The pages of the documentation: their blocks, links and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the line of the page where the text begins."""

    language: str
    text: str
    line: int


@cache
def pages() -> tuple[Path, ...]:
    """All Markdown files that users read."""
    top = (ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"))
    return (*top, ROOT / "docker" / "README.md", *sorted(DOCS.rglob("*.md")))


def name_of(page: Path) -> str:
    """A page as test ids show it."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1)
        for found in _BLOCK.finditer(text)
    ]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Targets of links to other files and headings of the project."""
    found = _LINK.findall(prose(page))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """Fragments that lead to a heading of the page, as GitHub makes them."""
    titles = _HEADING.findall(prose(page))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def typed(page: Path) -> Iterator[list[str]]:
    """The words of every `zkcoord …` command line that readers are to type as it stands."""
    for block in blocks(page):
        if block.language in ("sh", "console", "bash"):
            for line in block.text.replace("\\\n", " ").splitlines():
                yield from _commands_in(line.removeprefix("$ "))
    for line in prose(page).splitlines():
        if line.startswith("    "):
            yield from _commands_in(line.removeprefix("    "))


def mentioned(page: Path) -> Iterator[list[str]]:
    """The words of every `zkcoord …` within the text; arguments may be left out."""
    for code in re.findall(r"`(zkcoord [^`]+)`", prose(page)):
        yield from _commands_in(" ".join(code.split()))


def _commands_in(line: str) -> Iterator[list[str]]:
    for found in re.finditer(r"(?:^|[\s;|&(/'])(zkcoord(?= |$)[^;|&>)#'`]*)", line):
        text = found[1]
        try:
            yield shlex.split(text)
        except ValueError:
            yield text.split()
