"""Reference pages that say what the code says: the commands and the settings.

``ZKCOORD_TEST_UPDATE_GOLDEN=1`` writes the page of commands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from zkcoord.settings import KEYS, variable_of
from zkcoord_cli.main import cli

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
HEAD = """\
# Commands

What `zkcoord … --help` prints. `tests/cli/test_reference_pages.py` writes and compares this page.
How commands end: [exit codes](exit-codes.md). Where they find servers: [settings](settings.md).
"""


def lines(group: click.Group, ctx: click.Context, *above: str) -> Iterator[tuple[str, ...]]:
    yield above
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from lines(command, ctx, *above, name)
        else:
            yield (*above, name)


def page() -> str:
    parts = [HEAD]
    for line in lines(cli, click.Context(cli)):
        out = CliRunner().invoke(cli, [*line, "--help"], terminal_width=100, prog_name="zkcoord")
        assert out.exit_code == 0
        parts.append(
            f"## `{' '.join(('zkcoord', *line))}`\n\n```text\n{out.stdout.rstrip()}\n```\n"
        )
    return "\n".join(parts)


def test_the_page_of_commands_is_what_help_prints() -> None:
    path = REFERENCE / "commands.md"
    if os.environ.get("ZKCOORD_TEST_UPDATE_GOLDEN"):
        path.write_text(page())
    assert path.read_text() == page(), "run this test with ZKCOORD_TEST_UPDATE_GOLDEN=1"


def test_the_page_of_settings_names_every_key_and_variable() -> None:
    text = (REFERENCE / "settings.md").read_text()
    rows = dict(re.findall(r"^\| `([\w.]+)` \| `(\w+)` \|", text, re.MULTILINE))
    assert rows == {key: variable_of(key) for key in KEYS}
