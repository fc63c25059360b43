"""The independent reader of the log finds what it is there to find."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))

from logreader import Findings, check_log

OPENING = (1, 0, [], -1, [[1, "s"]])
ORIGIN = [2, 0, 0, 5.0]


def accepted(id_: str = "a", place: int = 0) -> list[Any]:
    return [2, [id_, "t", 2, [2, 0, place, 5.0], b"{}", None, []], 5.0, 0.0]


def read(*batches: tuple[int, int, list, int, list]) -> Findings:
    return check_log(
        (offset, msgspec.msgpack.encode([1, term, n, 10.0 + offset, inputs, sent, facts]))
        for offset, (term, n, inputs, sent, facts) in enumerate(batches)
    )


def test_a_clean_life() -> None:
    found = read(
        OPENING,
        (1, 1, [[2, 0, 1]], 1, [accepted(), [5, "a", 1, 0, 100]]),
        (1, 2, [], 2, [[7, "a", 1, b"1", 11.0, 12.0]]),
    )
    assert found.problems == []
    assert (found.lost, found.doubled, found.voids) == ([], [], [])
    assert found.count("succeeded") == 1
    assert found.dispatched == {("a", 1, 100)}
    assert found.latencies() == [7.0]
    assert found.delays() == [6.0]
    assert found.terms == [(1, 0, "s")]


def test_a_task_without_an_end_is_lost() -> None:
    found = read(OPENING, (1, 1, [[2, 0, 1]], 1, [accepted()]))
    assert found.lost == [("a", 1)]
    assert found.problems == []


START = (1, 1, [[2, 0, 1]], 1, [accepted(), [5, "a", 1, 0, 100]])
END = [7, "a", 1, b"1", 11.0, 12.0]


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([START, (1, 2, [], 2, [END, END])], "two terminal facts"),
        ([START, (1, 2, [], 2, [[5, "a", 2, 0, 100]])], "dispatched while"),
        ([START, (1, 2, [], 2, [[9, "a", 1, "x", False], [5, "a", 3, 0, 100]])], "attempt 3"),
        ([START, (1, 2, [], 2, [[8, "a", 2, 5.0, "x", 1.0, 2.0]])], "not running"),
        ([START, (1, 2, [[2, 0, 1]], 2, [])], "input (2, 0) went from 1 to 1"),
        ([(1, 1, [], 1, [accepted()])], "a fact from input"),
        ([START, (1, 2, [[2, 0, 2]], 2, [accepted("b", 0)])], "a fact from input"),
        ([START, (1, 2, [[2, 0, 2]], 2, [accepted("a", 1)])], "accepted while live"),
        ([START, (1, 2, [], 0, [])], "watermark fell"),
        ([START, (1, 2, [], 7, [])], "beyond its own record"),
        ([(1, 1, [], 1, [[12, "ghost", "x"]])], "not live"),
        ([START, (2, 0, [[2, 0, 9]], -1, [[1, "s"]])], "an opening carries"),
    ],
)
def test_what_is_wrong_is_said(batches: list, said: str) -> None:
    assert any(said in problem for problem in read(OPENING, *batches).problems)


def test_void_records_count_for_nothing() -> None:
    found = read(
        OPENING,
        START,
        START,
        (2, 0, [], -1, [[1, "other"]]),
        (1, 2, [], 2, [END]),
        (2, 1, [], 2, [END]),
    )
    assert found.voids == [2, 4]
    assert found.problems == []
    assert found.doubled == []
