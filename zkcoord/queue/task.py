"""Tasks as functions: ``@queue.task()`` and what it makes.

The function stays callable as it was. ``submit`` takes the same arguments, checked by type checkers
against the function's own signature and when called; a parameter annotated ``TaskContext`` is the
agent's to fill and no part of it. (Type checkers see that only when it is the first parameter.)
"""

from __future__ import annotations

import copy
import inspect
import sys
import typing
from collections.abc import Callable, Coroutine
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from zkcoord.core import attributes
from zkcoord.core.attributes import LIMITS, Unreadable
from zkcoord.core.records import Priority
from zkcoord.errors import ConfigError
from zkcoord.queue.context import TaskContext
from zkcoord.queue.handlers import Handler
from zkcoord.queue.options import TaskOptions
from zkcoord.queue.submitter import Order, Submitter
from zkcoord.queue.ticket import Decode, Ticket
from zkcoord.zk.blocking import refuse_in_event_loop

P = ParamSpec("P")
C = TypeVar("C")
R = TypeVar("R")


class OptionChanges(TypedDict, total=False):
    """Keyword arguments of ``options``; see :class:`~zkcoord.queue.options.TaskOptions`."""

    priority: Priority
    deadline: float | None
    delay: float | None
    timeout: float | None
    attempts: int | None
    retry: float | None
    requires: tuple[str, ...]
    tenant: str | None
    key: str | None
    id: str | None
    trace: str | None
    result: bool


class Opener(Protocol):
    """Opens the submitting side at first use."""

    def opened(self) -> Submitter:
        """The submitter; may block."""

    async def opened_async(self) -> Submitter:
        """The submitter, without blocking the event loop."""


class Submittable(Generic[P, R]):
    """A task of a queue, submitted by calling it elsewhere. Made by ``@queue.task()``.

    Attributes:
        name: the task's name, unique in its queue.
        function: the function itself.
        handler: how an agent calls it.
    """

    def __init__(
        self, queue: Opener, name: str, function: Callable[..., Any], options: TaskOptions
    ) -> None:
        check_name(name)
        if options.id is not None:
            raise ConfigError(f"task {name!r}: id: belongs to one submission, not to the task")
        self.name = name
        self.function = function
        self.handler = Handler(name, function)
        self._queue = queue
        self._options = options
        self._signature = _signature_without(function, self.handler.context_parameter)
        self._fitting = _fitting(self._signature)
        self._decode: Decode | None = None
        self.__name__ = name
        self.__doc__ = function.__doc__
        self.__wrapped__ = function  # `inspect.signature` and doctest look through it

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the function's parameters, the context included."""
        try:
            return tuple(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):
            return ()

    def options(self, **changes: Unpack[OptionChanges]) -> Self:
        """The same task with other options; keep it for many submissions.

        Raises:
            ConfigError: lists every bad option.
        """
        derived = copy.copy(self)
        vars(derived)["_options"] = changed(self._options, changes)
        return derived

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Ticket[R]:
        """Submit, and return once the broker has the task.

        Waits the pace when the queue asks to slow down, and for room in the send buffer; all of
        it within ``SubmitterConfig.submit_s``. The first submission opens the connections.

        Raises:
            Rejected: the queue is full or the deadline cannot be met; nothing was written.
            PublishTimeout: not confirmed in time; the task may have been written.
            TaskTooLarge: the arguments are too large.
            TypeError, ValueError: the arguments do not fit the function, or have no JSON form.
            NodeMissing, EnsembleUnavailable, StreamError: there is no such queue, or no server.
            RuntimeError: called inside an event loop; use ``await task.submit_async(...)``.
        """
        refuse_in_event_loop(f"{self.name}.submit()", f"await {self.name}.submit_async(...)")
        order = self._order(args, kwargs)
        return self._queue.opened().submit(order)

    def submit_nowait(self, *args: P.args, **kwargs: P.kwargs) -> Ticket[R]:
        """Hand over to the send buffer and return at once: for many tasks.

        Nothing waits, not even the pace: look at ``ticket.verdict.pace``. The task counts as
        submitted when ``ticket.confirmed`` is done. Only the first call opens connections, which
        blocks.

        Raises:
            BufferFull: wait for confirmations, then go on.
            Rejected, TaskTooLarge, TypeError, ValueError: as `submit`.
        """
        order = self._order(args, kwargs)
        return self._queue.opened().submit_nowait(order)

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> Ticket[R]:
        """:meth:`submit` for asyncio; the same errors."""
        order = self._order(args, kwargs)
        submitter = await self._queue.opened_async()
        return await submitter.submit_async(order)

    def _order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Order:
        # What needs no look at names is told by its number: `bind` takes longer than all the rest.
        if self._signature is not None and (kwargs or len(args) not in self._fitting):
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"task {self.name!r}: {error}") from None
        if self._decode is None:
            self._decode = result_decoder(self.function)
        return Order(self.name, args, kwargs, self._options, self._decode)


class Task(Submittable[P, R], Generic[P, C, R]):
    """A task without a context. `C` is what a direct call returns, `R` what a ticket gives."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Call the function here and now; no queue is involved."""
        value: C = self.function(*args, **kwargs)
        return value


class ContextTask(Submittable[P, R], Generic[P, C, R]):
    """A task whose first parameter is the agent's :class:`~zkcoord.queue.context.TaskContext`."""

    def __call__(self, ctx: TaskContext, /, *args: P.args, **kwargs: P.kwargs) -> C:
        """Call the function here and now, with a context of the caller's."""
        value: C = self.function(ctx, *args, **kwargs)
        return value


class TaskDecorator(Protocol):
    """What ``@queue.task()`` does to a function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the first that fits is meant
        self, function: Callable[Concatenate[TaskContext, P], Coroutine[Any, Any, R]], /
    ) -> ContextTask[P, Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[TaskContext, P], R], /
    ) -> ContextTask[P, R, R]: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


def check_name(name: str) -> None:
    """Whether a task can be called `name`.

    Raises:
        ConfigError: it is empty, too long or cannot be printed.
    """
    try:
        attributes.label("name", name, LIMITS.task_chars_max)
        name.encode()
    except Unreadable as error:
        raise ConfigError(f"task {name[:60]!r}: {error.detail}") from None
    except UnicodeEncodeError:
        raise ConfigError(f"task {name[:60]!r}: name: holds a lone surrogate") from None


def changed(options: TaskOptions, changes: OptionChanges) -> TaskOptions:
    """`options` with changes.

    Raises:
        ConfigError: lists every bad option.
    """
    given: dict[str, Any] = dict(changes)
    known = TaskOptions.__struct_fields__
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ConfigError(
            f"task options: unknown: {', '.join(unknown)}", hint=f"known are {', '.join(known)}"
        )
    if isinstance(given.get("requires"), list | set | frozenset):
        given["requires"] = tuple(given["requires"])
    fields = {name: getattr(options, name) for name in known}
    return TaskOptions(**(fields | given))


def result_decoder(function: Callable[..., Any]) -> Decode:
    """Reads a result as the type that `function` says it returns, where JSON can be read as it."""
    try:
        hints = typing.get_type_hints(function)
        return msgspec.json.Decoder(hints.get("return", Any)).decode
    except Exception:  # hints can be anything, and evaluating them can do anything
        return msgspec.json.Decoder().decode


def _fitting(signature: inspect.Signature | None) -> range:
    """How many positional arguments alone fit; empty when arguments must be named."""
    least = most = 0
    for parameter in signature.parameters.values() if signature is not None else ():
        required = parameter.default is parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL:
            most = sys.maxsize - 1
        elif parameter.kind is parameter.KEYWORD_ONLY and required:
            return range(0)
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            least += required
            most += 1
    return range(least, most + 1)


def _signature_without(
    function: Callable[..., Any], parameter: str | None
) -> inspect.Signature | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # a builtin that does not say
    if parameter is None:
        return signature
    kept = [p for name, p in signature.parameters.items() if name != parameter]
    try:
        return signature.replace(parameters=kept)
    except ValueError:
        return None
