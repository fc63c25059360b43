from __future__ import annotations

import re
from pathlib import Path

import pytest

from zkcoord import errors
from zkcoord_cli import exit_codes
from zkcoord_cli.exit_codes import ExitCode, LockRunCode, code_of

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "reference" / "exit-codes.md"


def documented() -> dict[int, tuple[str, str]]:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    return {int(code): (name, meaning) for code, name, meaning in rows}


def in_code() -> dict[int, tuple[str, str]]:
    source = Path(exit_codes.__file__).read_text()
    rows = re.findall(r"^    ([A-Z_]+) = (\d+)  # (.+)$", source, re.MULTILINE)
    return {int(code): (name, meaning) for name, code, meaning in rows}


def test_the_page_and_the_code_say_the_same() -> None:
    assert documented() == in_code()


def test_every_code_has_a_meaning() -> None:
    assert set(in_code()) == {*map(int, ExitCode), *map(int, LockRunCode)}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 3),
        (errors.EnsembleUnavailable("x"), 4),
        (errors.BrokerUnavailable("x"), 4),
        (errors.StackError("x"), 4),
        (errors.NodeMissing("x"), 5),
        (errors.AcquireTimeout("x", name="n", waited=1.0), 6),
        (errors.ResultTimeout("x"), 6),
        (errors.PublishTimeout("x"), 6),
        (errors.LeaseLost("x", name="n", token=1, reason="session"), 7),
        (errors.SessionLost("x"), 7),
        (errors.AccessDenied("x"), 8),
        (errors.TaskTooLarge("x"), 8),
        (errors.TaskFailed("x", task_id="t", state="dead", reason="r"), 9),
        (errors.TaskCancelled("x", task_id="t", state="cancelled", reason="r"), 9),
        (errors.Rejected("x", reason="overload", retry_after=1.0), 10),
        (ValueError("x"), 1),
    ],
)
def test_errors_have_codes(error: Exception, code: int) -> None:
    assert code_of(error) == code
