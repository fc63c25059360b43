"""Functions that users hand over to be called later: looked at when they are handed over."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any] | None)


def check_callback(fn: Function, what: str) -> Function:
    """A function that the dispatcher's thread will call, or None for none; given back.

    Raises:
        TypeError: it cannot be called, or is ``async``: nobody would await what it returns.
    """
    given: object = fn
    if given is None:
        return fn
    if not callable(given):
        kind = type(given).__name__
        raise TypeError(f"{what} {given!r}: must be a function that can be called, not {kind}")
    if iscoroutinefunction(given) or iscoroutinefunction(getattr(given, "__call__", None)):  # noqa: B004
        raise TypeError(
            f"{what} {given!r}: must be a plain function, it is called on the session's own "
            "thread; from there asyncio.run_coroutine_threadsafe reaches an event loop"
        )
    return fn


def check_function(fn: Function, what: str) -> Function:
    """The same for a function that has to be given.

    Raises:
        TypeError: it cannot be called, or is ``async``.
    """
    if fn is None:
        raise TypeError(f"{what} None: must be a function that can be called")
    return check_callback(fn, what)
