"""What becomes of tasks that do not succeed, and how task code steers its own fate."""

from __future__ import annotations

from zkcoord.errors.base import ZkcoordError


class Rejected(ZkcoordError):
    """Admission refused the task; nothing was written.

    Attributes:
        reason: one word, such as ``overload`` or ``infeasible``.
        retry_after: seconds to wait before the next try, above zero.
    """

    retriable = True

    def __init__(self, message: str, *, reason: str, retry_after: float) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


class ResultTimeout(ZkcoordError, TimeoutError):
    """No result yet. The task goes on; ask again."""

    retriable = True


class TaskFailed(ZkcoordError):
    """The task ended without success.

    Attributes:
        task_id: which task.
        state: ``dead``, ``failed``, ``cancelled`` or ``rejected``.
        reason: one word, as in the dead letter.
    """

    def __init__(self, message: str, *, task_id: str, state: str, reason: str) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.state = state
        self.reason = reason


class TaskCancelled(TaskFailed):
    """The task was cancelled before it succeeded."""


class TaskSignal(Exception):
    """Raised by task code to steer its own fate. Not a :class:`ZkcoordError`."""


class Retry(TaskSignal):
    """Try again, after `delay` seconds or after the policy's next delay when None."""

    def __init__(self, reason: str = "", *, delay: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay = delay


class Discard(TaskSignal):
    """End the task as failed, at once and without a dead letter."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class AttemptStopped(TaskSignal):
    """The attempt must stop: its time is up, it was cancelled, or its agent leaves or was lost.

    Raised by ``ctx.check()`` in a handler.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
