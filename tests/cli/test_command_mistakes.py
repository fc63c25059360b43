"""What commands say to mistakes, to servers that are not there, and to a full disk. No servers."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zkcoord_cli import formats, servicelog
from zkcoord_cli.main import cli

NOWHERE = ("--zookeeper", "127.0.0.1:1", "--kafka", "127.0.0.1:1")


def invoke(*arguments: str, **more: str) -> Result:
    homes = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"), "/nonexistent")
    return CliRunner(env={**homes, **more}).invoke(cli, arguments)


@contextmanager
def bare_log() -> Iterator[logging.Logger]:
    """The root logger without handlers, as at the start of a process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield root
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


# --- the log ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verbose", [0, 1, 2, 3])
def test_a_service_never_says_less_with_v(verbose: int) -> None:
    with bare_log() as root:
        servicelog.configure_command(verbose)
        servicelog.configure(verbose)
        log = logging.getLogger("zkcoord.queue")
        assert log.isEnabledFor(logging.INFO)
        assert log.isEnabledFor(logging.DEBUG) is (verbose > 0)
        (handler,) = root.handlers
        assert isinstance(handler.formatter, servicelog.JsonLines)


def emitted(name: str, level: int) -> bool:
    record = logging.LogRecord(name, level, __file__, 1, "text", None, None)
    (handler,) = logging.getLogger().handlers
    return logging.getLogger(name).isEnabledFor(level) and bool(handler.filter(record))


def test_lines_of_the_kafka_client_are_not_those_of_a_command() -> None:
    with bare_log():
        servicelog.configure_command(0)
        assert not emitted("zkcoord.kafka", logging.ERROR)
        assert emitted("zkcoord.queue", logging.WARNING)


def test_lines_of_the_kafka_client_come_with_vv() -> None:
    with bare_log():
        servicelog.configure_command(2)
        assert emitted("zkcoord.kafka", logging.WARNING)
        assert emitted("zkcoord.queue", logging.INFO)


# --- addresses, names, numbers --------------------------------------------------------------------


@pytest.mark.parametrize("address", ["garbage::", "localhost:99999", "localhost:x", "a:1,,b:2"])
def test_an_address_that_is_none_is_a_configuration_error(address: str) -> None:
    for line in (["lock", "list"], ["lock", "run", "x", "--try"]):
        more = ["--", "true"] if "run" in line else []
        ended = invoke(*line, "--zookeeper", address, *more)
        assert ended.exit_code == 3, ended.output
        assert address in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("name", ["a/b", "", "x" * 3000, "."])
def test_a_lock_name_that_cannot_be_is_a_usage_error_before_anything_is_asked(name: str) -> None:
    ended = invoke("lock", "run", *NOWHERE, "--", name, "true")
    assert ended.exit_code == 2, ended.output
    assert "lock name" in ended.stderr


def test_lock_run_without_servers_is_a_configuration_error() -> None:
    ended = invoke("lock", "run", "x", "--", "true")
    assert ended.exit_code == 3, ended.output
    assert "nothing says where ZooKeeper is" in ended.stderr


@pytest.mark.parametrize(
    "line",
    [
        ("queue", "create", "no.dots"),
        ("queue", "create", ""),
        ("task", "submit", "no/slash", "send"),
        ("scheduler", "run", "fine", "no.dots"),
        ("agent", "run", "no.dots", "--handlers", "app:queue"),
        ("local", "up", "--name", "a/b"),
        ("local", "logs", "--name", "a/b"),
        ("local", "down", "--name", ""),
    ],
)
def test_names_that_cannot_be_are_usage_errors(line: tuple[str, ...]) -> None:
    servers = () if line[0] == "local" else NOWHERE
    ended = invoke(*line, *servers)
    assert ended.exit_code == 2, ended.output
    assert "name" in ended.stderr


def test_logs_that_are_not_there_are_5() -> None:
    ended = invoke("local", "logs", "--name", "nope")
    assert ended.exit_code == 5, ended.output


def test_connecting_is_part_of_the_wait_for_a_lock() -> None:
    begun = time.monotonic()
    ended = invoke(
        "lock", "run", "x", "--timeout", "300ms", *NOWHERE, "--", "true",
        ZKCOORD_CONNECT_TIMEOUT_S="60",
    )  # fmt: skip
    assert ended.exit_code == 125, ended.output
    assert "within 0.3 s" in ended.stderr
    assert time.monotonic() - begun < 50


@pytest.mark.parametrize(
    "pairs", [["to=a", "to=b"], ["to=a", "to:=1"], ["--json-args", '{"to": 1}', "to=a"]]
)
def test_a_key_given_twice_is_a_usage_error(pairs: list[str]) -> None:
    ended = invoke("task", "submit", "mail", "send", *pairs, *NOWHERE)
    assert ended.exit_code == 2, ended.output
    assert "'to'" in ended.stderr


# --- handlers -------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_module_with_bad_syntax_is_named_with_its_line(folder: Path) -> None:
    (folder / "handlers_bad_syntax.py").write_text("x = 1\ndef f(:\n")
    ended = invoke("agent", "run", "mail", "--handlers", "handlers_bad_syntax:queue", *NOWHERE)
    assert ended.exit_code == 3, ended.output
    assert f"{folder / 'handlers_bad_syntax.py'}:2" in ended.stderr
    assert "importlib" not in ended.stderr


def test_a_module_that_imports_what_fails_is_named_at_its_own_line(folder: Path) -> None:
    (folder / "handlers_bad_import.py").write_text("import os\nimport nothing_of_that_name\n")
    ended = invoke("agent", "run", "mail", "--handlers", "handlers_bad_import:queue", *NOWHERE)
    assert ended.exit_code == 3, ended.output
    assert f"{folder / 'handlers_bad_import.py'}:2" in ended.stderr


def test_handlers_without_an_attribute_are_a_usage_error() -> None:
    ended = invoke("agent", "run", "mail", "--handlers", "app", *NOWHERE)
    assert ended.exit_code == 2, ended.output
    assert "write MODULE:ATTRIBUTE" in ended.stderr


def test_an_attribute_of_another_type_is_named(folder: Path) -> None:
    (folder / "handlers_number.py").write_text("x = 1\n")
    ended = invoke("agent", "run", "mail", "--handlers", "handlers_number:x", *NOWHERE)
    assert ended.exit_code == 3, ended.output
    assert "is of type 'int'" in ended.stderr


# --- a full disk ----------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [("--help",), ("config", "show"), ("config", "show", "--json")])
def test_a_full_disk_is_one_line_and_1(line: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "zkcoord_cli", *line],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "XDG_CONFIG_HOME": "/nonexistent"},
            timeout=60,
        )
    assert ended.returncode == 1
    said = ended.stderr
    if "--json" in line:
        said = f"error: {json.loads(said)['message']}\n"
    assert said == "error: the output cannot be written: No space left on device\n"


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9996, "1.0s"), (0.999, "999ms"), (9.96, "10s"), (59.7, "1m00s"), (3599.8, "1h00m")],
)
def test_durations_are_rounded_into_the_next_unit(seconds: float, text: str) -> None:
    assert formats.duration(seconds) == text


def test_a_setting_of_the_wrong_type_is_named_with_its_variable() -> None:
    ended = invoke("config", "show", ZKCOORD_CONNECT_TIMEOUT_S="soon")
    assert ended.exit_code == 3, ended.output
    assert "connect_timeout_s" in ended.stderr
    assert "ZKCOORD_CONNECT_TIMEOUT_S" in ended.stderr
    assert "'soon' is no number" in ended.stderr


def test_a_lock_name_that_zookeeper_refuses_is_refused_here() -> None:
    ended = invoke("lock", "run", *NOWHERE, "--", "\N{GRINNING FACE}", "true")
    assert ended.exit_code == 2, ended.output
    assert "is not allowed" in ended.stderr


def test_warnings_of_the_library_look_like_those_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with bare_log():
        servicelog.configure_command(0)
        logging.getLogger("zkcoord.queue").warning("one copy")
    assert capsys.readouterr().err == "warning: one copy\n"
