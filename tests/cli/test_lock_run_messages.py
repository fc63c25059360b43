"""What `lock run` says when it cannot do what it was asked to, in the words of its flags."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from zkcoord.recipes import Lock, Semaphore
from zkcoord.zk import Session
from zkcoord_cli.main import cli


@pytest.fixture
def run(zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`lock run` in a folder with an executable text, one without its bit, and a bad first line."""
    monkeypatch.chdir(tmp_path)
    for name, text, mode in (
        ("plain", "no program", 0o644),
        ("text", "no program", 0o755),
        ("script", "#!/missing/sh\n", 0o755),
    ):
        Path(name).write_text(text)
        Path(name).chmod(mode)

    def run(*arguments: str) -> Result:
        line = ["lock", "run", *arguments]
        return CliRunner().invoke(cli, line, env={"ZKCOORD_ZOOKEEPER": zookeeper})

    return run


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("", 127, ["cannot run ''", "name a command"]),
        ("there-is-none", 127, ["'there-is-none': No such file", "no folder of PATH"]),
        ("./there-is-none", 127, ["'./there-is-none': No such file"]),
        ("./script", 127, ["'./script': No such file", "interpreter"]),
        ("./plain/below", 127, ["Not a directory"]),
        ("./plain", 126, ["Permission denied", "chmod +x ./plain"]),
        (".", 126, ["cannot run '.'", "Permission denied"]),
        ("./text", 126, ["Exec format error"]),
        ("a\nb\x1b", 127, ["cannot run 'a\\nb\\x1b'"]),
        ("half\udcff", 127, ["cannot run 'half\\udcff'"]),
        ("long" * 1000, 126, ["File name too long"]),
    ],
)
def test_a_command_that_cannot_be_run(run: Any, program: str, status: int, said: list[str]) -> None:
    result = run("a", "--", program)
    assert result.exit_code == status
    assert result.stderr.startswith("error: cannot run ")
    for text in said:
        assert text in result.stderr


def test_arguments_too_long_for_the_system(run: Any) -> None:
    result = run("a", "--", "true", *["x" * 100_000] * 30)
    assert result.exit_code == 126
    assert "cannot run 'true': Argument list too long" in result.stderr


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        (
            "run gpus --permits 4 -- true",
            3,
            "--permits 4: semaphore gpus has 3\n  try:",
        ),
        ("run new --permits 0 -- true", 3, "--permits 0: semaphore new has no number"),
        ("run gpus --permits 0 --weight 4 -- true", 3, "--weight 4: semaphore gpus has only 3"),
        ("run gpus --permits 3 --weight 4 -- true", 2, "--weight: not more than --permits"),
        ("run gpus --permits 1000001 -- true", 2, "'--permits': 1000001 is not in the range"),
        ("run a --zookeeper a:1//b -- true", 3, "zookeeper 'a:1//b': path '//b'"),
        ("run a ls -l", 2, "No such option '-l'. Write -- before the command"),
        ("list --zookeeper a:x", 3, "zookeeper 'a:x': 'a:x': no host:port"),
        ("revoke held --reason x", 8, "try: `lock run` listens"),
    ],
)
def test_messages_speak_of_flags(
    session: Session, zookeeper: str, line: str, status: int, said: str
) -> None:
    with Semaphore(session, "gpus", 3).hold(timeout=10), Lock(session, "held").hold(timeout=10):
        environment = {"ZKCOORD_ZOOKEEPER": zookeeper}
        result = CliRunner().invoke(cli, ["lock", *line.split()], env=environment)
    assert result.exit_code == status
    assert said in result.stderr
    assert "None" not in result.stderr


def test_the_time_that_was_given_is_the_time_that_is_said(session: Session, run: Any) -> None:
    with Lock(session, "a").hold(timeout=10):
        result = run("a", "--timeout", "0.7", "--", "true")
    assert result.exit_code == 124
    assert "not granted within 0.7 s, held by one" in result.stderr


def test_a_lock_that_is_taken_away_is_not_called_lost(run: Any) -> None:
    command = f"{sys.executable} -m zkcoord_cli lock break a --reason x --yes --token "
    result = run("a", "--", "sh", "-c", f"{command} $ZKCOORD_LOCK_TOKEN; sleep 60")
    assert result.exit_code == 123
    assert "lock a was taken away, its node is gone" in result.stderr
    assert "node tree /audit/broken" in result.stderr


def test_resize_names_its_flag(session: Session, zookeeper: str) -> None:
    with Semaphore(session, "gpus", 3).hold(weight=2, timeout=10):
        line = ["semaphore", "resize", "gpus", "1"]
        result = CliRunner().invoke(cli, line, env={"ZKCOORD_ZOOKEEPER": zookeeper})
    assert result.exit_code == 8
    assert "or --force" in result.stderr
