from __future__ import annotations

import json
import os
import socket

import pytest

from zkcoord_cli import output as gate
from zkcoord_cli.formats import asker, counted, duration, moment
from zkcoord_cli.output import Output, safe
from zkcoord_cli.problems import PROBLEMS


def test_control_characters_are_shown_and_never_obeyed() -> None:
    assert safe("a\x1b[31mb\nc\r\x07") == "a\\x1b[31mb\\nc\\r\\x07"
    assert safe("\u202eevil") == "\\u202eevil"
    assert safe("gr\u00fcn \u4f60") == "gr\u00fcn \u4f60"
    assert safe(None) == "-"


def test_json_is_one_line_with_its_schema_first(capsys: pytest.CaptureFixture[str]) -> None:
    Output().json("zkcoord.x.y/1", {"b": b"\xffa", "s": {2, 1}, "t": (1,)})
    out = capsys.readouterr().out
    assert out == '{"schema": "zkcoord.x.y/1", "b": "\\\\xffa", "s": [1, 2], "t": [1]}\n'


def test_errors_are_kept_for_a_command_that_runs_and_for_none_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    PROBLEMS.want_json()  # a part of the command line, read without running it
    Output().error("e")
    assert capsys.readouterr().err == "error: e\n"
    PROBLEMS.begin()
    PROBLEMS.want_json()
    Output().error("e")
    assert capsys.readouterr().err == ""
    assert '"message": "e"' in PROBLEMS.document(1)
    PROBLEMS.end()
    assert PROBLEMS.document(1) == ""


def test_talk_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output()
    output.note("n")
    output.warn("w")
    output.error("e", "do this")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "n\nwarning: w\nerror: e\n  try: do this\n"


def test_tables_are_aligned_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("A", "N"), [("x", 1), ("long", 100)], right=("N",))
    assert capsys.readouterr().out == "A       N\nx       1\nlong  100\n"


def test_an_empty_table_says_so_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("A",), [], empty="nothing there")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "nothing there\n")


class TestColor:
    @pytest.fixture(autouse=True)
    def terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gate, "_is_terminal", lambda _: True)
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")

    def talk(self, capsys: pytest.CaptureFixture[str], *, color: bool | None = None) -> str:
        Output(color=color).warn("w")
        return capsys.readouterr().err

    def test_on_a_terminal(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "\x1b[" in self.talk(capsys)

    @pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
    def test_off_by_environment(
        self,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        value: str,
    ) -> None:
        monkeypatch.setenv(name, value)
        assert self.talk(capsys) == "warning: w\n"

    def test_off_by_flag(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.talk(capsys, color=False) == "warning: w\n"

    def test_rich_tables_keep_markup_as_text(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        Output().table(("A",), [("[red]x[/red]",)])
        assert "[red]x[/red]" in capsys.readouterr().out

    def test_no_colour_is_no_escape_at_all(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        Output().table(("A", "N"), [("x", 1)], right=("N",))
        Output().fields([("a", 1)])
        assert "\x1b" not in capsys.readouterr().out

    def test_a_narrow_terminal_gets_rows_one_below_the_other(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "40")
        columns = ("PLACE", "NAME", "PID", "SINCE", "TOKEN")
        rows = [("holds", "lock run sleep", 27783, "3.8s", 8589934603)] * 2
        Output().table(columns, rows, right=("PID", "SINCE", "TOKEN"))
        record = "PLACE  holds\nNAME   lock run sleep\nPID    27783\nSINCE  3.8s\n"
        record += "TOKEN  8589934603\n"
        assert capsys.readouterr().out == f"{record}\n{record}"

    @pytest.mark.parametrize("width", ["54", "60", "80", "200"])
    def test_numbers_in_tables_stay_whole(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: str
    ) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", width)
        rows = [("waits, 100 ahead", "a very long name " * 4, 8589934603)]
        Output().table(("PLACE", "NAME", "TOKEN"), rows, right=("TOKEN",))
        out = capsys.readouterr().out
        assert "8589934603" in out
        assert all(len(line) <= int(width) for line in out.splitlines())

    def test_json_is_indented_for_people(self, capsys: pytest.CaptureFixture[str]) -> None:
        Output().json("s/1", {"a": 1})
        out = capsys.readouterr().out
        assert out.count("\n") > 1
        assert json.loads(out) == {"schema": "s/1", "a": 1}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (0.012, "12ms"),
        (1.52, "1.5s"),
        (59.9, "1m00s"),
        (252, "4m12s"),
        (3661, "1h01m"),
        (90000, "1d01h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 processes"), (1, "1 process"), (2, "2 processes")]
)
def test_counts(number: int, text: str) -> None:
    assert counted(number, "process", "processes") == text
    assert counted(number, "reader") == text.replace("processes", "readers").replace(
        "process", "reader"
    )


def test_who_asks_has_a_name_also_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asker().endswith(f"@{socket.gethostname()}")

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert asker() == f"uid {os.getuid()}@{socket.gethostname()}"


def test_an_unknown_moment_is_a_dash() -> None:
    assert moment(0.0) == "-"
