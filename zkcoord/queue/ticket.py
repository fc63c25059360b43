"""What a submitter holds: whether the task is safe, and how it ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from zkcoord.core import results
from zkcoord.core.records import Control
from zkcoord.core.verdict import Verdict
from zkcoord.errors import (
    DecodeError,
    PublishTimeout,
    Rejected,
    ResultTimeout,
    StreamError,
    TaskCancelled,
    TaskFailed,
    ZkcoordError,
)
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.verbs import check_timeout

if TYPE_CHECKING:
    from zkcoord.queue.submitter import Submitter

T = TypeVar("T")
R = TypeVar("R")

Decode = Callable[[bytes], Any]

RETRY_AFTER_S_MIN = 0.2


class Latch(Generic[T]):
    """Settled once, by a value or an error. Its future is made only when somebody waits."""

    __slots__ = ("__weakref__", "_error", "_future", "_lock", "_settled", "_value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settled = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._future: Future[T] | None = None

    @property
    def settled(self) -> bool:
        """Whether a value or an error is there."""
        return self._settled

    def settle(self, value: T) -> None:
        """Set the value; the first one counts."""
        self._finish(value, None)

    def fail(self, error: BaseException) -> None:
        """Set the error; the first one counts."""
        self._finish(None, error)

    def result(self, timeout: float | None) -> T:
        """The value, or the error raised. Raises TimeoutError when it is not settled in time."""
        if not self._settled:
            return self.future().result(timeout)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def future(self) -> Future[T]:
        """A future of it. Cancelling it has no effect on others: there is one for all."""
        with self._lock:
            future = self._future
            if future is None:
                future = self._future = Future()
                future.set_running_or_notify_cancel()  # from here on it cannot be cancelled
                settled = self._settled
            else:
                settled = False
        if settled:
            self._complete(future)
        return future

    def _finish(self, value: T | None, error: BaseException | None) -> None:
        with self._lock:
            if self._settled:
                return
            self._value, self._error = value, error
            self._settled = True
            future = self._future
        if future is not None:
            self._complete(future)

    def _complete(self, future: Future[T]) -> None:
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._value)  # type: ignore[arg-type]


class Ticket(Generic[R]):
    """A submitted task. Given by the calls that submit one.

    The task goes on whatever happens to its ticket. ``await ticket`` gives the result in asyncio.

    Attributes:
        id: the task's id.
        task: the task's name.
        verdict: what admission said: ``accept`` or ``slow`` with the pace it asked for.
    """

    __slots__ = (
        "__weakref__",
        "_confirmation",
        "_decode",
        "_outcome",
        "_submitter",
        "id",
        "task",
        "verdict",
    )

    def __init__(
        self,
        submitter: Submitter,
        *,
        task_id: str,
        task: str,
        verdict: Verdict,
        decode: Decode,
        outcome: Latch[results.Result] | None,
    ) -> None:
        self.id = task_id
        self.task = task
        self.verdict = verdict
        self._submitter = submitter
        self._decode = decode
        self._confirmation: Latch[int] = Latch()
        self._outcome = outcome  # None: nobody asked for the result

    def __repr__(self) -> str:
        return f"<Ticket {self.id} of {self.task!r}: {self.state}>"

    @property
    def state(self) -> str:
        """``sending``, ``submitted``, ``lost`` (nothing more will be heard) or how it ended."""
        if self._outcome is not None and self._outcome.settled:
            future = self._outcome.future()
            return "lost" if future.exception() else future.result().state
        if self._confirmation.settled:
            return "lost" if self._confirmation.future().exception() else "submitted"
        return "sending"

    @property
    def confirmed(self) -> Future[int]:
        """Done when the broker has the record: the record's offset, or the error.

        The error is :class:`~zkcoord.errors.PublishTimeout` when the record may have been written.
        """
        return self._confirmation.future()

    def done(self) -> bool:
        """Whether the result is there; never waits."""
        return self._outcome is not None and self._outcome.settled

    def result(self, timeout: float | None = None) -> R:
        """Wait for the end of the task; what its handler returned.

        Args:
            timeout: seconds to wait; None waits as long as the task takes, 0 only looks.

        Raises:
            ResultTimeout: no result yet. The task goes on, and this can be called again.
            TaskFailed: it ended without success; ``state`` and ``reason`` say how.
            TaskCancelled: it was cancelled.
            Rejected: intake refused it; see ``retry_after``.
            DecodeError: the result does not fit the handler's return annotation.
            StreamError: the record was not written, or the queue was closed.
            ConfigError: a negative or infinite timeout.
            RuntimeError: called inside an event loop; use ``await ticket``.
        """
        if timeout is not None:
            check_timeout(timeout)
        if timeout != 0:
            refuse_in_event_loop("ticket.result()", "await ticket")
        outcome = self._awaited()
        try:
            return self._value(outcome.result(timeout))
        except TimeoutError as error:
            if isinstance(error, ZkcoordError):
                raise
            raise self._too_late(timeout) from None

    def __await__(self) -> Generator[Any, None, R]:
        return self._await_result().__await__()

    def cancel(self, reason: str = "", *, timeout: float | None = None) -> None:
        """Ask for cancellation, and wait until the request is written.

        A task that has not started will not start; one that runs is told to stop. Its end shows in
        :meth:`result`: it may have succeeded before the request was read.

        Raises:
            PublishTimeout: no confirmation within `timeout` seconds (None: as for `submit`).
            StreamError: the request was not written.
        """
        refuse_in_event_loop("ticket.cancel()", "await ticket.cancel_async()")
        self._submitter.control(
            Control(action="cancel", id=self.id, reason=reason), timeout=timeout
        )

    async def cancel_async(self, reason: str = "") -> None:
        """:meth:`cancel` for asyncio."""
        await self._submitter.control_async(Control(action="cancel", id=self.id, reason=reason))

    def on_ack(self, offset: int | None, error: StreamError | None) -> None:
        """The broker's answer; called by the submitter's thread."""
        if error is None:
            self._confirmation.settle(-1 if offset is None else offset)
            return
        self._confirmation.fail(error)
        if self._outcome is not None and not isinstance(error, PublishTimeout):
            self._outcome.fail(error)  # it was not written: nobody will answer

    async def _await_result(self) -> R:
        # Cancelling the wait has no effect on the shared future: it counts as running.
        return self._value(await asyncio.wrap_future(self._awaited().future()))

    def _awaited(self) -> Latch[results.Result]:
        if self._outcome is None:
            raise ResultTimeout(
                f"task {self.id} was submitted without asking for its result",
                hint="submit it with options(result=True)",
            )
        return self._outcome

    def _too_late(self, timeout: float | None) -> ResultTimeout:
        queue = self._submitter.description.queue
        return ResultTimeout(
            f"task {self.id} ({self.task}) has not ended after {timeout or 0:g} s",
            hint=f"it goes on; wait again, or look with: zkcoord task show {queue} {self.id}",
        )

    def _value(self, result: results.Result) -> R:
        if result.state == "succeeded":
            try:
                value: R = self._decode(bytes(result.result) or b"null")
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise DecodeError(
                    f"the result of task {self.id} ({self.task}) does not fit its handler's"
                    f" return annotation: {error}"
                ) from error
            return value
        raise error_of(result, self.task)


def error_of(result: results.Result, task: str) -> ZkcoordError:
    """The error that stands for a task that ended without success."""
    why = f"{result.reason}: {result.error}" if result.error else result.reason
    told = f"task {result.id} ({task}) is {result.state}: {why}"
    if result.state == "rejected":
        return Rejected(
            told, reason=result.reason, retry_after=max(result.retry_after, RETRY_AFTER_S_MIN)
        )
    kind = TaskCancelled if result.state == "cancelled" else TaskFailed
    return kind(told, task_id=result.id, state=result.state, reason=result.reason)
