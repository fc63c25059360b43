"""Standard streams that are closed, full or without a reader: quiet, with the right status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zkcoord.zk import Session
from zkcoord_cli.exit_codes import ExitCode

PROGRAM = f"{sys.executable} -m zkcoord_cli"


def shell(zookeeper: str, line: str, **more: str) -> tuple[int, str, str]:
    """Run a line in bash, where `zkcoord` is this one; status, output, talk."""
    done = subprocess.run(
        ["bash", "-c", f'zkcoord() {{ {PROGRAM} "$@"; }}; {line}'],
        env={**os.environ, "ZKCOORD_ZOOKEEPER": zookeeper, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "node tree /",
        "node tree / --json",
        "lock list --watch --json",
        "node watch / --json",
        "election observe e",
    ],
)
def test_a_reader_that_goes_away_ends_a_command_quietly(zookeeper: str, command: str) -> None:
    line = f"zkcoord {command} | true; echo ${{PIPESTATUS[0]}}"
    assert shell(zookeeper, line) == (0, f"{ExitCode.READER_GONE}\n", "")


def test_a_stream_ends_with_its_reader_though_nothing_more_happens(zookeeper: str) -> None:
    line = "zkcoord node watch / --json | head -1 >/dev/null; echo ${PIPESTATUS[0]}"
    assert shell(zookeeper, line) == (0, f"{ExitCode.READER_GONE}\n", "")


def test_who_read_all_does_not_change_the_status(zookeeper: str) -> None:
    line = "zkcoord node tree / | cat >/dev/null; echo ${PIPESTATUS[0]}"
    assert shell(zookeeper, line)[:2] == (0, "0\n")


@pytest.mark.parametrize("command", ["node tree / --json", "--help"])
@pytest.mark.parametrize(
    ("where", "why"),
    [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")],
)
def test_output_that_cannot_be_written_is_said(
    zookeeper: str, command: str, where: str, why: str
) -> None:
    status, _, said = shell(zookeeper, f"zkcoord {command} {where}")
    if "--json" in command:
        said = f"error: {json.loads(said)['message']}\n"
    assert (status, said) == (1, f"error: the output cannot be written: {why}\n")


@pytest.mark.parametrize(
    ("command", "status"),
    [("node get /missing", 5), ("node get", 2), ("lock run a -- missing", 127)],
)
@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
def test_talk_that_cannot_be_written_changes_no_status(
    zookeeper: str, command: str, status: int, where: str
) -> None:
    assert shell(zookeeper, f"zkcoord {command} {where}")[0] == status


def test_standard_input_that_is_closed_is_said(zookeeper: str) -> None:
    status, _, said = shell(zookeeper, "zkcoord node set /a <&-")
    assert status == ExitCode.USAGE
    assert "standard input cannot be read" in said


def test_closed_streams_are_none_of_our_sockets_for_the_command_of_lock_run(
    zookeeper: str, tmp_path: Path
) -> None:
    look = "readlink /proc/self/fd/0 /proc/self/fd/1 >&2"
    status, _, said = shell(zookeeper, f"zkcoord lock run a -- sh -c '{look}' <&- >&-")
    assert status == 0
    assert said.splitlines()[0] == "/dev/null"
    assert "socket" not in said
    caught = tmp_path / "caught"
    line = f"zkcoord lock run a -- sh -c 'echo x' <&- >&- 2>{caught}"
    assert shell(zookeeper, line)[0] != 0  # as without lock run: it cannot be written


def test_a_status_other_than_0_survives_a_reader_that_goes_away(
    zookeeper: str, session: Session
) -> None:
    session.nodes.create("/a", b"x")
    line = "zkcoord node get /missing 2>&1 | true; echo ${PIPESTATUS[0]}"
    assert shell(zookeeper, line)[1] == f"{ExitCode.NOT_FOUND}\n"
