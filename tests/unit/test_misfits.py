"""Arguments that do not fit a task: malformed, wherever its context stands and however it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from zkcoord import Queue, TaskContext
from zkcoord.core.records import DidFail, DidSucceed


def sync_first(ctx: TaskContext, a: int, b: int = 2) -> int:
    return a + b if b else hash([])


def sync_middle(a: int, ctx: TaskContext, b: int = 2) -> int:
    return a + b if b else hash([])


def sync_last(a: int, b: int = 2, *, ctx: TaskContext) -> int:
    return a + b if b else hash([])


def sync_without(a: int, b: int = 2) -> int:
    return a + b if b else hash([])


async def async_first(ctx: TaskContext, a: int, b: int = 2) -> int:
    return a + b if b else hash([])


async def async_middle(a: int, ctx: TaskContext, b: int = 2) -> int:
    return a + b if b else hash([])


async def async_last(a: int, b: int = 2, *, ctx: TaskContext) -> int:
    return a + b if b else hash([])


async def async_without(a: int, b: int = 2) -> int:
    return a + b if b else hash([])


def calling_itself(ctx: TaskContext, a: int) -> int:
    return calling_itself(ctx) if a else 0  # type: ignore[call-arg]


async def calling_itself_async(ctx: TaskContext, a: int) -> int:
    return await calling_itself_async(ctx) if a else 0  # type: ignore[call-arg]


FUNCTIONS = [
    sync_first,
    sync_middle,
    sync_last,
    sync_without,
    async_first,
    async_middle,
    async_last,
    async_without,
]


async def end_of(benches: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    queue = Queue("q", kafka="127.0.0.1:1", zookeeper="127.0.0.1:1")
    queue.task(name="work")(function)
    bench = benches({})
    bench.executor._handlers = queue.handlers
    value = msgspec.json.encode({"task": "work", "args": args, "kwargs": kwargs})
    bench.take(bench.run("a", value=value))
    return await bench.end_of("a")


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ([], {}),
        ([1, 2, 3], {}),
        ([1], {"a": 1}),
        ([1], {"c": 1}),
        ([], {"a": 1, "ctx": 5}),
        ([1, 2], {"ctx": 5}),
    ],
)
async def test_what_does_not_fit_is_malformed(
    benches: Any, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> None:
    report = await end_of(benches, function, *args, **kwargs)
    assert isinstance(report, DidFail)
    assert (report.kind, "do not fit: " in report.error) == ("malformed", True)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("args", "kwargs"), [([1], {}), ([1, 2], {}), ([1], {"b": 2}), ([], {"a": 1})]
)
async def test_what_fits_is_run(
    benches: Any, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> None:
    report = await end_of(benches, function, *args, **kwargs)
    assert isinstance(report, DidSucceed)
    assert report.result == b"3"


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("args", [["text"], [1, 0]])
async def test_a_type_error_in_the_body_is_an_error(
    benches: Any, function: Callable[..., Any], args: list[Any]
) -> None:
    report = await end_of(benches, function, *args)
    assert (report.kind, report.error[:11]) == ("error", "TypeError: ")


@pytest.mark.parametrize("function", [calling_itself, calling_itself_async])
async def test_a_misfit_of_a_call_in_the_body_is_an_error(
    benches: Any, function: Callable[..., Any]
) -> None:
    report = await end_of(benches, function, 1)
    assert (report.kind, "missing 1 required" in report.error) == ("error", True)
