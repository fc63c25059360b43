"""Handlers: what runs a task, and how its end becomes a report.

Two kinds exist. An ``async def`` runs on the agent's event loop and must not block it. A plain
function runs on one of the agent's threads.

A third place is kept for handlers outside the process (a child process, a command, an HTTP
endpoint), which can be killed when they do not stop in time. They are to enter here as further
members of :class:`Kind` with a runner beside `runners.py`; nothing else has to change.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from zkcoord.core.drafts import has_non_finite
from zkcoord.core.records import DidFail, DidReturn, DidSucceed, Report
from zkcoord.errors import ConfigError, DecodeError, Discard, Retry
from zkcoord.queue.attempt import Attempt, Verdict
from zkcoord.queue.context import TaskContext
from zkcoord.queue.failures import where

ERROR_CHARS = 2000
"""Longest error text in a report; the rest is cut."""

RESULT_BYTES_MAX = 900_000
"""Largest result, encoded. A report wraps it, and the log wraps that."""

_encode = msgspec.json.Encoder().encode


class Kind(Enum):
    """Where a handler runs."""

    ASYNC = "async"
    THREAD = "thread"


class Handler:
    """A function that runs tasks of one name.

    Raises:
        ConfigError: `function` cannot be called with arguments from JSON.

    Attributes:
        name: the task's name.
        function: what to call.
        kind: where it runs.
        context_parameter: name of the parameter that takes the TaskContext, or None.
    """

    __slots__ = ("_context_index", "context_parameter", "function", "kind", "name")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ConfigError(f"handler of task {name!r}: {function!r} is not callable")
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise ConfigError(f"handler of task {name!r}: a generator has no result to report")
        self.name = name
        self.function = function
        self.kind = Kind.ASYNC if _is_async(function) else Kind.THREAD
        self.context_parameter, self._context_index = _context_place(name, function)

    def with_context(
        self, arguments: Sequence[Any], keywords: dict[str, Any], context: Any
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """What to call the function with: the caller's arguments do not count the context."""
        parameter, index = self.context_parameter, self._context_index
        if parameter is None:
            return arguments, keywords
        if index is None or len(arguments) <= index:
            return arguments, {**keywords, parameter: context}
        return (*arguments[:index], context, *arguments[index:]), keywords

    def fits(self, arguments: Sequence[Any], keywords: dict[str, Any]) -> bool:
        """Whether these arguments can be bound. Slow: only asked after a TypeError."""
        if self.context_parameter in keywords:
            return False  # the agent's to give
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            return True  # a builtin that does not say
        given, named = self.with_context(arguments, keywords, None)
        try:
            signature.bind(*given, **named)
        except TypeError:
            return False
        return True


def handlers_from(
    functions: Mapping[str, Callable[..., Any]] | Iterable[tuple[str, Callable[..., Any]]],
) -> dict[str, Handler]:
    """A table of handlers by task name; raises ConfigError for what cannot be one."""
    pairs = functions.items() if isinstance(functions, Mapping) else functions
    return {name: Handler(name, function) for name, function in pairs}


def report_value(attempt: Attempt, value: Any, finished: float) -> Report:
    """The report of an attempt whose handler returned `value`."""
    if attempt.verdict is not None:
        return report_verdict(attempt, finished)
    order = attempt.order
    try:
        result = _encode(value)
        if b"null" in result and has_non_finite(value):
            raise ValueError("JSON has no NaN and no infinity; return None or a text")  # noqa: TRY301
    except (TypeError, ValueError, msgspec.EncodeError, RecursionError, OverflowError) as error:
        if inspect.iscoroutine(value):
            value.close()  # else Python warns that nobody awaited it
        text = f"the result, a {type(value).__name__}, cannot be written as JSON: {error}"
        return _failed(attempt, "error", text, finished)
    if len(result) > RESULT_BYTES_MAX:
        text = f"the result has {len(result)} bytes, more than {RESULT_BYTES_MAX}; store it"
        return _failed(attempt, "error", text + " elsewhere and return where", finished)
    return DidSucceed(order.id, order.attempt, result, attempt.started, finished, order.fence)


def report_error(attempt: Attempt, error: BaseException, finished: float) -> Report:
    """The report of an attempt whose handler raised `error`."""
    if attempt.verdict is not None:
        return report_verdict(attempt, finished)
    if isinstance(error, Retry):
        return _failed(attempt, "retry", error.reason, finished, delay=error.delay)
    if isinstance(error, Discard):
        return _failed(attempt, "discard", error.reason, finished)
    if isinstance(error, DecodeError):
        return _failed(attempt, "malformed", str(error), finished)
    if isinstance(error, asyncio.CancelledError):
        return _failed(attempt, "error", "CancelledError: the handler cancelled itself", finished)
    if isinstance(error, TypeError) and _is_misfit(attempt, error):
        return _failed(attempt, "malformed", f"the arguments do not fit: {error}", finished)
    attempt.error = error
    place = where(error)
    words = _words(error)
    if place:
        words = f"{_cut(words, ERROR_CHARS - len(place) - 1)} {place}"
    return _failed(attempt, "error", words, finished)


def report_verdict(attempt: Attempt, finished: float) -> Report:
    """The report of an attempt that was stopped, however its handler took it."""
    if attempt.verdict is Verdict.DRAINED:
        order = attempt.order
        return DidReturn(order.id, order.attempt, "drained", order.fence)
    kind = "timeout" if attempt.verdict is Verdict.TIMEOUT else "cancelled"
    return _failed(attempt, kind, attempt.reason, finished)


def _failed(
    attempt: Attempt, kind: str, error: str, finished: float, *, delay: float | None = None
) -> DidFail:
    error = _cut(error, ERROR_CHARS)
    # Lone surrogates cannot be encoded; an error text must never stop its own report.
    error = error.encode("utf-8", "replace").decode("utf-8")
    order = attempt.order
    return DidFail(
        order.id, order.attempt, kind, error, delay, attempt.started, finished, order.fence
    )


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 1] + "…"


def _words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # a broken __str__ of task code
        text = "(its message cannot be read)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _is_misfit(attempt: Attempt, error: TypeError) -> bool:
    """Whether the TypeError came from the call itself rather than from inside the handler."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not Attempt.invoke.__code__:
        trace = trace.tb_next
    if trace is None or trace.tb_next is not None:
        return False  # a frame below the call: the handler's own
    call = attempt.call
    return call is not None and not attempt.handler.fits(call.args, call.kwargs)


def _is_async(function: Callable[..., Any]) -> bool:
    if inspect.iscoroutinefunction(function):
        return True
    return inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _context_place(name: str, function: Callable[..., Any]) -> tuple[str | None, int | None]:
    """The name of the parameter that takes the context, and its place unless it must be named."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None, None
    for index, parameter in enumerate(parameters):
        if parameter.name == "ctx" or _is_context(parameter.annotation):
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise ConfigError(
                    f"handler of task {name!r}: parameter {parameter.name!r} takes the context "
                    "and must be accepted by name"
                )
            positional = parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            return parameter.name, index if positional else None
    return None, None


def _is_context(annotation: Any) -> bool:
    if isinstance(annotation, str):  # from __future__ import annotations
        return annotation.rpartition(".")[2] == TaskContext.__name__
    return annotation is TaskContext
