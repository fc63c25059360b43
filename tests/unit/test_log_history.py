from __future__ import annotations

from typing import Any

import msgspec
import pytest

from zkcoord.core import records as r
from zkcoord.errors import DecodeError
from zkcoord.inspector.history import LogScan

ORIGIN = r.Origin(2, 0, 7, 1000.0)


def submission(task_id: str = "a", **more: Any) -> r.Submission:
    return r.Submission(task_id, "mail.send", 2, ORIGIN, b"{}", **more)


def kept(task_id: str, *, phase: int = 0, attempt: int = 0, due: float = 0.0) -> r.KeptTask:
    return r.KeptTask(
        version=1, as_of=8, task=submission(task_id), order=1.0, priority=2, offset=1,
        accepted=1001.0, phase=phase, due=due, attempt=attempt, failures=0, crashes=0,
        partition=3, incarnation=77, fence=5, dispatched=1002.0, started=0.0, cancel=None,
        asked=0.0,
    )  # fmt: skip


class Writer:
    """Writes log records as a leader would."""

    def __init__(self, scan: LogScan) -> None:
        self.scan = scan
        self.offset = 0

    def write(self, term: int, n: int, *facts: r.Fact, at: float = 1001.0) -> bool:
        batch = r.Batch(1, term, n, at, [], -1, list(facts))
        self.offset += 1
        return self.scan.feed(self.offset - 1, msgspec.msgpack.encode(batch))


def test_the_life_of_a_task_that_fails_once() -> None:
    scan = LogScan(only="a")
    log = Writer(scan)
    log.write(5, 0, r.TermOpened("one"))
    log.write(5, 1, r.Accepted(submission(), 1.0), r.Accepted(submission("b"), 1.0))
    log.write(5, 2, r.Dispatched("a", 1, 3, 77), r.Dispatched("b", 1, 3, 77), at=1002.0)
    log.write(5, 3, r.Retrying("a", 1, 1010.0, "ValueError: no", 1002.1, 1002.2), at=1003.0)
    log.write(5, 4, r.Dispatched("a", 2, 4, 78), at=1010.0)
    assert scan.tasks["a"].state == "running"
    log.write(5, 5, r.Succeeded("a", 2, b'"ok"', 1010.1, 1010.5), at=1011.0)
    view = scan.tasks["a"]
    assert (view.state, view.attempt, view.partition, view.result) == ("succeeded", 2, 4, '"ok"')
    assert (view.submitted, view.accepted, view.finished) == (1000.0, 1001.0, 1010.5)
    assert list(scan.tasks) == ["a"], "others are passed over"
    told = [(f.what, f.attempt, f.offset) for f in scan.facts]
    assert told == [
        ("accepted", 0, 1),
        ("dispatched", 1, 2),
        ("failed", 1, 3),
        ("dispatched", 2, 4),
        ("succeeded", 2, 5),
    ]
    assert scan.facts[2].detail == "next in 7.0 s: ValueError: no"


@pytest.mark.parametrize(
    ("fact", "state", "reason"),
    [
        (r.Died("a", 1, "exhausted", "KeyError"), "dead", "exhausted"),
        (r.Discarded("a", 1, "not wanted"), "failed", "not wanted"),
        (r.Cancelled("a", 1, "by hand"), "cancelled", "by hand"),
        (r.Released("a", 1, "agent lost", crash=True), "pending", "agent lost"),
        (r.CancelAsked("a", "by hand"), "running", "by hand"),
        (r.Superseded("a", 1, 7, "DidFail"), "running", ""),
    ],
)
def test_what_may_follow_a_dispatch(fact: r.Fact, state: str, reason: str) -> None:
    scan = LogScan()
    log = Writer(scan)
    log.write(5, 0, r.Accepted(submission(), 1.0), r.Dispatched("a", 1, 0, 1))
    log.write(5, 1, fact)
    assert (scan.tasks["a"].state, scan.tasks["a"].reason) == (state, reason)
    assert scan.tasks["a"].is_terminal == (state in {"dead", "failed", "cancelled"})


def test_a_delayed_task_waits() -> None:
    scan = LogScan()
    Writer(scan).write(5, 0, r.Accepted(submission(), 1.0, due=2000.0))
    assert scan.tasks["a"].state == "waiting"


def test_rejected_records_show_and_do_not_overwrite_a_known_task() -> None:
    scan = LogScan()
    log = Writer(scan)
    refusal = r.Rejected(ORIGIN, b"{}", None, [], "overload", "full", id="x")
    log.write(5, 0, refusal, r.Rejected(ORIGIN, b"?", None, [], "malformed", "no JSON"))
    assert [(t.id, t.state, t.reason) for t in scan.tasks.values()] == [
        ("x", "rejected", "overload")
    ]
    log.write(5, 1, r.Accepted(submission("x"), 1.0), refusal)
    assert scan.tasks["x"].state == "pending"


def test_void_records_have_no_effect() -> None:
    scan = LogScan()
    log = Writer(scan)
    assert log.write(5, 0, r.Accepted(submission(), 1.0))
    assert log.write(5, 1, r.Dispatched("a", 1, 0, 1))
    assert not log.write(5, 1, r.Died("a", 1, "again", "")), "a repeat of the same number"
    assert not log.write(5, 3, r.Died("a", 1, "gap", "")), "a number too far"
    assert log.write(9, 0, r.TermOpened("two"))
    assert not log.write(5, 2, r.Died("a", 1, "zombie", "")), "a lower term"
    assert not log.write(12, 4, r.Died("a", 1, "no opening", "")), "a term starts at 0"
    assert scan.tasks["a"].state == "running"


def test_a_scan_may_begin_in_the_middle() -> None:
    scan = LogScan(only="a")
    log = Writer(scan)
    assert log.write(5, 40, r.Dispatched("a", 3, 2, 1))
    assert (scan.tasks["a"].state, scan.tasks["a"].attempt) == ("running", 3)


def test_void_records_are_noticed_without_decoding_what_is_passed_over() -> None:
    scan = LogScan(only="a")
    log = Writer(scan)
    log.write(5, 0, r.Accepted(submission("b"), 1.0))
    assert not log.write(5, 0, r.Accepted(submission("a"), 1.0))
    assert not scan.tasks


def test_memory_is_bounded_and_ended_tasks_go_first() -> None:
    scan = LogScan(tasks_max=2)
    log = Writer(scan)
    log.write(5, 0, r.Accepted(submission("a"), 1.0), r.Accepted(submission("b"), 1.0))
    log.write(5, 1, r.Cancelled("b", 0, ""), r.Accepted(submission("c"), 1.0))
    assert (list(scan.tasks), scan.dropped) == (["a", "c"], 1)


def test_a_checkpoint_gives_tasks_whose_beginning_was_trimmed() -> None:
    scan = LogScan(only="a")
    scan.start_with([kept("a", phase=1, attempt=2), kept("b")])
    assert scan.tasks["a"].state == "running"
    Writer(scan).write(5, 9, r.Succeeded("a", 2, b"1", 1.0, 2.0))
    assert (scan.tasks["a"].task, scan.tasks["a"].state) == ("mail.send", "succeeded")
    assert list(scan.tasks) == ["a"]


@pytest.mark.parametrize(
    ("attempt", "due", "state"),
    [(0, 0.0, "pending"), (0, 2000.0, "waiting"), (1, 2000.0, "retrying")],
)
def test_states_of_kept_tasks(attempt: int, due: float, state: str) -> None:
    scan = LogScan()
    scan.start_with([kept("a", attempt=attempt, due=due)])
    assert scan.tasks["a"].state == state


@pytest.mark.parametrize(
    "value", [None, b"", b"junk", msgspec.msgpack.encode([99, 1, 0, 1.0]), b"\x94\x01\x01\x00\xff"]
)
def test_what_is_no_batch_is_an_error(value: bytes | None) -> None:
    with pytest.raises(DecodeError, match="offset 3"):
        LogScan().feed(3, value)
