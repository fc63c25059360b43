from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from zkcoord import errors
from zkcoord_cli.main import NOUNS, cli

COMMANDS = Path(__file__).resolve().parents[2] / "cli" / "zkcoord_cli" / "commands"


def run_program(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CONFIG_HOME": "/nonexistent", **more}
    return subprocess.run(
        [sys.executable, "-m", "zkcoord_cli", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=60,
    )


def test_help_lists_every_noun_that_has_a_module_and_no_other() -> None:
    modules = {path.stem for path in COMMANDS.glob("*.py") if path.stem != "__init__"}
    assert modules == set(NOUNS)
    out = CliRunner().invoke(cli, ["--help"]).stdout
    for noun in NOUNS:
        assert re.search(rf"^  {noun} ", out, re.MULTILINE)


def test_help_and_version_import_neither_clients_nor_commands() -> None:
    program = (
        "import sys\n"
        "from zkcoord_cli.main import cli\n"
        "try:\n    cli.main([sys.argv[1]])\nexcept SystemExit:\n    pass\n"
        "bad = ('rich', 'kazoo', 'confluent_kafka', 'httpx', 'msgspec', 'asyncio')\n"
        "print([m for m in sys.modules if m in bad or m.startswith('zkcoord_cli.commands.')])\n"
    )
    for flag in ("--help", "--version"):
        out = subprocess.run(
            [sys.executable, "-c", program, flag], capture_output=True, text=True, check=True
        ).stdout
        assert out.splitlines()[-1] == "[]"


def leaves(
    group: click.Group, ctx: click.Context, above: str = ""
) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, ctx, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


def all_commands() -> list[tuple[str, click.Command]]:
    return list(leaves(cli, click.Context(cli)))


def test_every_command_leads_with_what_it_does_and_shows_two_examples() -> None:
    for name, command in all_commands():
        help_text = command.help or ""
        first = help_text.splitlines()[0]
        assert first.endswith((".", ";")), f"{name}: the first line is a sentence"
        examples = re.findall(rf"^\s*zkcoord {name}\b", help_text, re.MULTILINE)
        assert len(examples) >= 2, f"{name}: two examples"


def test_every_option_says_what_it_does_and_names_its_variable() -> None:
    for name, command in all_commands():
        out = CliRunner().invoke(cli, [*name.split(), "--help"], terminal_width=300).stdout
        blocks = re.split(r"\n  (?=-)", out.partition("Options:")[2])
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                flag = max(option.opts, key=len)
                line = next((b for b in blocks if re.search(rf"(^|\s|/ ){flag}\b", b)), "")
                assert "env var:" in line, f"{name} {flag}: its variable is not shown"
                assert "ZKCOORD_" in line, f"{name} {flag}: {line}"


def test_every_reading_command_has_json() -> None:
    for name, command in all_commands():
        if name.split()[-1] in ("list", "show", "result", "status", "doctor"):
            options = {flag for parameter in command.params for flag in parameter.opts}
            assert "--json" in options, name


def test_unknown_commands_and_options_are_usage_errors() -> None:
    runner = CliRunner()
    for arguments in (["nope"], ["queue", "nope"], ["config", "show", "--nope"]):
        ended = runner.invoke(cli, arguments)
        assert ended.exit_code == 2
        assert ended.stdout == ""
        assert "Error" in ended.stderr or "Usage" in ended.stderr


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[BaseException]]:
    """`config show` raises what the test puts in `FAIL`."""
    from zkcoord import settings

    def fail(**_: object) -> None:
        raise FAIL[0]

    monkeypatch.setattr(settings, "load_settings", fail)
    yield BaseException
    FAIL.clear()


FAIL: list[BaseException] = []


@pytest.mark.usefixtures("failing")
def test_a_known_error_is_a_message_a_hint_and_a_code_without_a_traceback() -> None:
    FAIL.append(errors.EnsembleUnavailable("no server answers", hint="start one"))
    ended = CliRunner().invoke(cli, ["config", "show"])
    assert ended.exit_code == 4
    assert ended.stdout == ""
    assert ended.stderr == "error: no server answers\n  try: start one\n"


@pytest.mark.usefixtures("failing")
def test_an_unexpected_error_says_how_to_report_it() -> None:
    FAIL.append(RuntimeError("surprise"))
    ended = CliRunner().invoke(cli, ["config", "show"])
    assert ended.exit_code == 1
    assert "Traceback" in ended.stderr
    assert "unexpected RuntimeError: surprise" in ended.stderr
    assert "report" in ended.stderr


@pytest.mark.usefixtures("failing")
def test_a_missing_package_names_its_extra() -> None:
    FAIL.append(ModuleNotFoundError("No module named 'rich'", name="rich"))
    ended = CliRunner().invoke(cli, ["config", "show"])
    assert ended.exit_code == 3
    assert "pip install 'zkcoord[cli]'" in ended.stderr


@pytest.mark.usefixtures("failing")
def test_ctrl_c_is_130_and_a_broken_pipe_is_quiet() -> None:
    FAIL.append(KeyboardInterrupt())
    assert CliRunner().invoke(cli, ["config", "show"]).exit_code == 130
    FAIL[0] = BrokenPipeError()
    ended = CliRunner().invoke(cli, ["config", "show"])
    assert (ended.exit_code, ended.stderr) == (141, "")


def test_a_reader_that_goes_away_is_no_error() -> None:
    program = f"{sys.executable} -m zkcoord_cli"
    script = (
        f"{program} --help | true;"
        f"{program} config show --json --zookeeper a:1 --kafka b:1 | head -c 1"
    )
    ended = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert (ended.stdout, ended.stderr) == ("{", "")


def test_config_show_tells_where_values_come_from() -> None:
    ended = run_program("config", "show", "--json", "--zookeeper", "a:1", ZKCOORD_KAFKA="b:2")
    assert ended.returncode == 0
    assert '"schema": "zkcoord.config.show/1"' in ended.stdout
    assert '{"key": "zookeeper", "value": "a:1", "origin": "flag"}' in ended.stdout
    assert '"value": "b:2", "origin": "environment variable ZKCOORD_KAFKA"' in ended.stdout


def test_secrets_are_never_printed() -> None:
    ended = run_program(
        "config", "show", "--kafka", "b:2",
        ZKCOORD_KAFKA_SASL_MECHANISM="PLAIN",
        ZKCOORD_KAFKA_SASL_USERNAME="u",
        ZKCOORD_KAFKA_SASL_PASSWORD="s3cret",
    )  # fmt: skip
    assert "kafka_sasl.password" in ended.stdout
    assert "s3cret" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("noun", "said"),
    [
        ("lok", "'lok'. Did you mean 'lock'?"),
        ("nodes", "Did you mean 'node'?"),
        ("xyzzy", "'xyzzy'."),
    ],
)
def test_a_noun_that_is_none_gets_the_nearest(noun: str, said: str) -> None:
    result = CliRunner().invoke(cli, [noun, "list"])
    assert result.exit_code == 2
    assert result.stderr.rstrip().endswith(said)
