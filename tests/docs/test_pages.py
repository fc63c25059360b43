"""What the documentation says exists: commands, options, files, headings, names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pages import DOCS, ROOT, anchors, links, mentioned, name_of, pages, typed

import zkcoord
from zkcoord import Priority, QueueConfig, errors
from zkcoord_cli.main import cli

REFERENCE = DOCS / "reference"
WRITTEN_BY_HELP = REFERENCE / "commands.md"
HTTPX = {"cli/zkcoord_cli/demo/work.py"}


def test_the_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run docs/generate.py\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: no such file"
        if fragment:
            assert fragment in anchors(target), f"{link}: no such heading"


def test_every_page_can_be_reached_from_the_index() -> None:
    reached = {DOCS / "README.md"}
    new = set(reached)
    while new:
        page = new.pop()
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target not in reached:
                reached.add(target)
                new.add(target)
    assert set(DOCS.rglob("*.md")) <= reached


@pytest.mark.parametrize("page", [p for p in pages() if p != WRITTEN_BY_HELP], ids=name_of)
def test_every_command_and_option_exists(page: Path) -> None:
    for words in typed(page):
        problem = check(words, complete=True)
        assert not problem, f"{' '.join(words)}: {problem}"
    for words in mentioned(page):
        problem = check(words, complete=False)
        assert not problem, f"{' '.join(words)}: {problem}"


def test_commands_are_found_where_they_stand() -> None:
    assert ["zkcoord", "local", "down"] in list(typed(DOCS / "tutorial" / "first-queue.md"))
    assert ["zkcoord", "queue", "trim"] in list(mentioned(DOCS / "how-to" / "secure-it.md"))
    assert len(list(typed(ROOT / "docker" / "README.md"))) == 1
    assert check(["zkcoord", "queue", "show"], complete=True)
    assert check(["zkcoord", "queue", "show", "--no-such"], complete=False)
    assert check(["zkcoord", "nosuch"], complete=False)


def test_every_command_that_messages_of_the_product_name_exists() -> None:
    """Hints and help name commands; users type them as they stand."""
    for path in [*(ROOT / "zkcoord").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            for line in node.value.splitlines():
                for part in line.split("zkcoord ")[1:]:
                    words = part.replace("`", " ").split()
                    if words and words[0] in cli.list_commands(click.Context(cli)):
                        problem = unknown_verb(words)
                        assert not problem, f"{name_of(path)}: zkcoord {part}: {problem}"


def unknown_verb(words: list[str]) -> str:
    """What is wrong with the first words of a command line, or nothing."""
    command = cli.get_command(click.Context(cli), words[0])
    if not isinstance(command, click.Group) or len(words) < 2 or not words[1].isalpha():
        return ""
    return "" if words[1] in command.commands else f"{words[0]} has no {words[1]}"


def check(words: list[str], *, complete: bool) -> str:
    """What is wrong with a command line, or nothing; arguments count when it is `complete`."""
    command: click.Command = cli
    # With its settings: a command remembers the names of its help option from the first context.
    ctx = click.Context(cli, info_name="zkcoord", **cli.context_settings)
    rest = words[1:]
    while isinstance(command, click.Group) and rest and rest[0].isalpha():
        inner = command.get_command(ctx, rest[0])
        if inner is None:
            return "" if rest[0].isupper() else f"there is no {rest[0]}"
        if complete and not isinstance(inner, click.Group):
            return misread(inner, rest, ctx)
        ctx = click.Context(inner, parent=ctx, info_name=rest[0])
        command, rest = inner, rest[1:]
    params = command.get_params(ctx)
    known = {name for option in params for name in (*option.opts, *option.secondary_opts)}
    for word in rest:
        if word == "--":
            break
        if word.startswith("-") and word.partition("=")[0] not in known:
            return f"there is no option {word}"
    return ""


def misread(command: click.Command, rest: list[str], parent: click.Context) -> str:
    """Why click refuses these arguments, or nothing."""
    try:
        command.make_context(rest[0], rest[1:], parent=parent)
    except click.UsageError as error:
        return error.format_message()
    return ""


def test_the_numbers_of_priorities_and_admission() -> None:
    page = (DOCS / "explanation" / "priorities-and-admission.md").read_text(encoding="utf-8")
    queue = QueueConfig()
    for priority, promised in zip(Priority, queue.classes, strict=True):
        assert f"| {priority.name} | {promised.budget_s:g} s | {promised.floor:.2f} |" in page
    assert f"| below {queue.slow_at:g} | `accept` | |" in page
    for verdict, at, leaves in (
        ("slow", queue.slow_at, queue.slow_exit),
        ("reject", queue.reject_at, queue.reject_exit),
    ):
        assert re.search(rf"^\| {at:g} \| `{verdict}`.*\| {leaves:g} \|$", page, re.MULTILINE)


def test_public_names_and_errors_stand_in_the_reference() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in REFERENCE.glob("*.md"))
    missing = [
        name for name in zkcoord.__all__ if f"`{name}`" not in text and f"## {name}\n" not in text
    ]
    assert not missing
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    kinds = [n for n, kind in vars(errors).items() if isinstance(kind, type)]
    assert [name for name in kinds if f"`{name}`" not in page] == []


def test_every_public_name_says_what_it_is() -> None:
    silent = [
        name for name in zkcoord.__all__ if not (getattr(zkcoord, name).__doc__ or "").strip()
    ]
    for name in zkcoord.__all__:
        thing = getattr(zkcoord, name)
        if isinstance(thing, type):
            silent += [
                f"{name}.{member}"
                for member, value in vars(thing).items()
                if not member.startswith("_")
                and (callable(value) or isinstance(value, property))
                and not value.__doc__
            ]
    assert not silent


def test_httpx_is_known_to_one_module() -> None:
    importing = {
        name_of(path)
        for folder in ("zkcoord", "cli")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Import) and any(a.name == "httpx" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "httpx")
    }
    assert importing <= HTTPX
