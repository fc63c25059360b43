"""What a handler may be, and how its end becomes a report."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from zkcoord.core.records import DidFail, DidReturn, DidSucceed, Report, Run
from zkcoord.errors import AttemptStopped, ConfigError, Discard, Retry
from zkcoord.queue.attempt import Attempt, Verdict
from zkcoord.queue.context import TaskContext
from zkcoord.queue.handlers import (
    ERROR_CHARS,
    RESULT_BYTES_MAX,
    Handler,
    Kind,
    report_error,
    report_value,
)
from zkcoord.queue.ledger import Entry, Ledger, outcome_of, read


def attempt_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Attempt:
    value = msgspec.json.encode({"task": "t", "args": args, "kwargs": kwargs})
    order = Run("id", 2, 33, "t", 1, value, [], None, 30.0, None, None)
    attempt = Attempt(order, Handler("t", function), 70)
    attempt.started = 1.0
    attempt.context = TaskContext(order, agent="one")
    return attempt


def outcome(attempt: Attempt) -> Report:
    """The report that a thread would make of it."""
    try:
        value = attempt.invoke()
    except Exception as error:
        trace = error.__traceback__  # begins here, where a runner's begins in the agent
        return report_error(attempt, error.with_traceback(trace and trace.tb_next), 2.0)
    return report_value(attempt, value, 2.0)


def failure(attempt: Attempt) -> DidFail:
    report = outcome(attempt)
    assert isinstance(report, DidFail)
    return report


async def coroutine(a: int) -> int:
    return a


def plain(a: int) -> int:
    return a


@dataclasses.dataclass
class Measure:
    value: float


class Callee:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (coroutine, Kind.ASYNC),
        (plain, Kind.THREAD),
        (functools.partial(coroutine, 1), Kind.ASYNC),
        (functools.partial(plain, 1), Kind.THREAD),
        (Callee(), Kind.ASYNC),
        (len, Kind.THREAD),
    ],
)
def test_kinds(function: Callable[..., Any], kind: Kind) -> None:
    assert Handler("t", function).kind is kind


def by_annotation(a: int, context: TaskContext) -> str:
    return f"{a} {context.id}"


def by_name(ctx: Any, a: int) -> str:
    return f"{a} {ctx.id}"


@pytest.mark.parametrize(
    ("function", "parameter"),
    [(by_annotation, "context"), (by_name, "ctx"), (plain, None), (len, None)],
)
def test_the_context_is_passed_where_it_is_asked_for(
    function: Callable[..., Any], parameter: str | None
) -> None:
    assert Handler("t", function).context_parameter == parameter


@pytest.mark.parametrize("function", [by_annotation, by_name])
def test_a_handler_gets_its_context_by_name(function: Callable[..., Any]) -> None:
    report = outcome(attempt_of(function, a=5))
    assert isinstance(report, DidSucceed)
    assert report.result == b'"5 id"'


def with_more(ctx: Any, **more: Any) -> str:
    return f"{more} {ctx.id}"


@pytest.mark.parametrize("function", [by_name, with_more])
def test_a_context_from_a_producer_is_malformed(function: Callable[..., Any]) -> None:
    report = failure(attempt_of(function, a=5, ctx="forged"))
    assert (report.kind, "'ctx'" in report.error) == ("malformed", True)


def test_what_cannot_be_a_handler_is_refused() -> None:
    def generator() -> Iterator[int]:
        yield 1

    def positional(ctx: Any, /) -> None: ...

    for function in (generator, positional, "text"):
        with pytest.raises(ConfigError, match="handler of task 't'"):
            Handler("t", function)  # type: ignore[arg-type]


@pytest.mark.parametrize("args", [[], [1, 2], ["x", "y"]])
def test_arguments_that_do_not_fit_are_malformed(args: list[Any]) -> None:
    report = failure(attempt_of(plain, *args))
    assert report.kind == "malformed"
    assert "argument" in report.error


def test_a_type_error_of_the_handler_itself_is_its_error() -> None:
    def work(a: int) -> int:
        return plain()  # type: ignore[call-arg]

    assert failure(attempt_of(work, 1)).kind == "error"
    assert failure(attempt_of(len, 5)).kind == "error"  # of a builtin, whose arguments fit


def test_a_wrapper_that_takes_more_than_it_says_is_not_blamed_on_the_producer() -> None:
    @functools.wraps(plain)
    def wrapper(*args: Any) -> int:
        raise TypeError("inside")

    assert failure(attempt_of(wrapper, 1, 2)).kind == "error"


@pytest.mark.parametrize(
    ("error", "kind", "text", "delay"),
    [
        (ValueError("bad"), "error", "ValueError: bad", None),
        (KeyError(), "error", "KeyError", None),
        (Retry("busy", delay=2.0), "retry", "busy", 2.0),
        (Retry(), "retry", "", None),
        (Discard("no use"), "discard", "no use", None),
        (AttemptStopped("x"), "error", "AttemptStopped: x", None),
        (ValueError("\ud800"), "error", "ValueError: ?", None),
    ],
)
def test_errors_become_failures(
    error: Exception, kind: str, text: str, delay: float | None
) -> None:
    def work() -> None:
        raise error

    report = failure(attempt_of(work))
    said, place, _ = report.error.partition(" at test_agent_handlers.py:")
    assert (report.kind, said, report.delay) == (kind, text, delay)
    assert bool(place) is (kind == "error")
    assert (report.id, report.attempt, report.started, report.finished) == ("id", 2, 1.0, 2.0)
    msgspec.msgpack.encode(report)


def test_error_texts_are_bounded_and_a_broken_one_is_survived() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def long() -> None:
        raise ValueError("x" * 10 * ERROR_CHARS)

    def unprintable() -> None:
        raise Unprintable

    assert len(failure(attempt_of(long)).error) == ERROR_CHARS
    said = failure(attempt_of(unprintable)).error
    assert said.startswith("Unprintable: (its message cannot be read) at test_agent_handlers.py:")
    assert failure(attempt_of(long)).error.endswith(" in long")


def test_an_error_text_says_where_it_was_raised() -> None:
    def bank(depth: int) -> None:
        if depth == 0:
            raise KeyError("account")
        bank(depth - 1)

    def work(depth: int) -> None:
        bank(depth)

    near, far = failure(attempt_of(work, 0)).error, failure(attempt_of(work, 50)).error
    place = r"test_agent_handlers\.py:\d+ in"
    assert re.fullmatch(rf"KeyError: 'account' at {place} bank, from {place} work", near)
    between = rf"(, from {place} bank){{2}}, from …"
    assert re.fullmatch(rf"KeyError: 'account' at {place} bank{between}, from {place} work", far)


@pytest.mark.parametrize(
    "value", [float("nan"), [1, float("inf")], {"a": {"b": -float("inf")}}, Measure(float("nan"))]
)
def test_a_result_that_json_would_lose_is_a_clear_failure(value: Any) -> None:
    report = failure(attempt_of(lambda: value))
    assert report.kind == "error"
    assert "no NaN" in report.error


@pytest.mark.parametrize("value", [None, [None, 1.5], {"a": "null"}, msgspec.Raw(b"null")])
def test_a_null_is_a_result(value: Any) -> None:
    assert isinstance(outcome(attempt_of(lambda: value)), DidSucceed)


def circle() -> Any:
    ring: list[Any] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize("value", [object(), {1j}, "\ud800", circle(), {(1, 2): 3}, 2**70 * 1j])
def test_a_result_without_json_form_is_a_clear_failure(value: Any) -> None:
    report = failure(attempt_of(lambda: value))
    assert report.kind == "error"
    assert "cannot be written as JSON" in report.error


def test_a_forgotten_async_is_told_and_leaves_no_warning() -> None:
    report = failure(attempt_of(lambda: coroutine(1)))
    assert "a coroutine, cannot be written" in report.error


def test_a_result_that_is_too_large_is_a_clear_failure() -> None:
    report = failure(attempt_of(lambda: "x" * RESULT_BYTES_MAX))
    assert report.kind == "error"
    assert f"more than {RESULT_BYTES_MAX}" in report.error


@pytest.mark.parametrize(
    ("verdict", "kind"), [(Verdict.TIMEOUT, "timeout"), (Verdict.CANCELLED, "cancelled")]
)
def test_a_stopped_attempt_is_reported_by_its_verdict(verdict: Verdict, kind: str) -> None:
    for function in (plain, json.loads):  # one returns, one raises
        attempt = attempt_of(function, 1)
        attempt.verdict, attempt.reason = verdict, "because"
        report = failure(attempt)
        assert (report.kind, report.error) == (kind, "because")


def test_a_drained_attempt_is_given_back() -> None:
    attempt = attempt_of(plain, 1)
    attempt.verdict = Verdict.DRAINED
    assert outcome(attempt) == DidReturn("id", 2, "drained", 33)


def test_the_context_tells_when_to_stop() -> None:
    valid = [True]
    order = Run("id", 2, 33, "t", 1, b"", [], None, 30.0, time.time() + 5, None)
    context = TaskContext(order, agent="one", valid=lambda: valid[0])
    context.check()
    assert 0 < context.remaining() <= 5
    valid[0] = False
    with pytest.raises(AttemptStopped, match="session"):
        context.check()
    context.stop("enough")
    assert context.cancelled.is_set()
    with pytest.raises(AttemptStopped, match="enough"):
        context.check()


def test_the_context_logs_with_the_task(caplog: pytest.LogCaptureFixture) -> None:
    context = attempt_of(by_name, 1).context
    assert context is not None
    context.log.warning("look")
    [record] = caplog.records
    assert (record.__dict__["task_id"], record.__dict__["attempt"]) == ("id", 2)


def test_a_ledger_is_read_back_without_its_torn_end(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger")
    attempt = attempt_of(plain, 1)
    done = DidSucceed("id", 2, b"1", 1.0, 2.0)
    with Ledger(path) as one, Ledger(path) as other:
        one.write(Entry.of(attempt, "one", "start"))
        other.write(Entry.of(attempt, "other", "end", outcome_of(attempt, done)))
    with Path(path).open("ab") as file:
        file.write(b'{"at": 1')
    lines = read(path)
    assert [(line.agent, line.event, line.outcome) for line in lines] == [
        ("one", "start", ""),
        ("other", "end", "succeeded"),
    ]
    assert (lines[0].id, lines[0].attempt, lines[0].fence, lines[0].incarnation) == (
        "id",
        2,
        33,
        70,
    )
