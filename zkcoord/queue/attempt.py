"""One attempt of a task, from its arrival at an agent to its end."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any

from zkcoord.core.records import Run
from zkcoord.core.wire import Call, decode_call

if TYPE_CHECKING:
    from zkcoord.queue.context import TaskContext
    from zkcoord.queue.handlers import Handler


class Verdict(Enum):
    """Why an attempt was stopped from outside. It outweighs whatever the handler then does."""

    TIMEOUT = "timeout"  # over its time limit: reported as a failure
    CANCELLED = "cancelled"  # the leader asked for it: reported as cancelled
    DRAINED = "drained"  # the agent leaves: given back
    LOST = "lost"  # the session is over: not reported, the leader gives it to others
    SUPERSEDED = "superseded"  # a newer attempt of the task arrived: its report changes nothing


class Attempt:
    """What the agent knows of one attempt. Owned by the agent's event loop.

    Attributes:
        order: what the leader asked for.
        handler: what runs it.
        incarnation: the agent's incarnation to which it was given.
        started: wall-clock start, 0.0 while it waits for a slot.
        verdict: why it was stopped, None while it was not.
        reason: the verdict in words.
        call: the decoded call, once it was made.
        context: what the handler sees of it; None when the handler does not ask.
        task: the asyncio task that runs it now.
        error: what the handler raised unexpectedly, until its end was told.
        timer: the next deadline: time limit, then grace.
        announced: the leader was told that it arrived or started.
        answered: its end was reported; a handler that goes on after that still fills its slot.
        ended: it is over.
    """

    __slots__ = (
        "announced",
        "answered",
        "call",
        "context",
        "ended",
        "error",
        "handler",
        "incarnation",
        "order",
        "reason",
        "started",
        "task",
        "timer",
        "verdict",
    )

    def __init__(self, order: Run, handler: Handler, incarnation: int = 0) -> None:
        self.order = order
        self.handler = handler
        self.incarnation = incarnation
        self.started = 0.0
        self.verdict: Verdict | None = None
        self.reason = ""
        self.call: Call | None = None
        self.context: TaskContext | None = None
        self.task: asyncio.Task[None] | None = None
        self.error: BaseException | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.announced = False
        self.answered = False
        self.ended = False

    def invoke(self) -> Any:
        """Decode the call and make it: a coroutine for async handlers, else the result.

        Raises:
            DecodeError: the record holds no call.
            TypeError: the arguments do not fit the handler.
            Exception: whatever a sync handler raises.
        """
        order = self.order
        self.call = call = decode_call(order.value, order.headers, order.key)
        handler = self.handler
        parameter = handler.context_parameter
        if parameter is None:
            return handler.function(*call.args, **call.kwargs)
        if parameter in call.kwargs:
            raise TypeError(f"got an unexpected keyword argument {parameter!r}")
        args, kwargs = handler.with_context(call.args, call.kwargs, self.context)
        return handler.function(*args, **kwargs)  # from here, or a misfit would not be seen as one

    def stop_timer(self) -> None:
        """Forget the pending deadline, if any."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
