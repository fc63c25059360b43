"""What a handler can know and ask while it runs one attempt."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from zkcoord.core.records import Priority, Run
from zkcoord.errors import AttemptStopped

if TYPE_CHECKING:
    from zkcoord.zk import Session

_LOGGER = logging.getLogger("zkcoord.task")


class TaskContext:
    """Given by an agent to a handler with a parameter annotated `TaskContext` or named ``ctx``.

    Attributes:
        id, task, attempt, priority: which attempt of which task this is, and the task's name;
            attempts count from 1.
        fencing_token: rises with every attempt of the task. Hand it to whatever the handler
            writes to, so that a superseded attempt cannot overwrite a newer one.
        deadline: wall-clock seconds by which the *task* must have ended, or None.
        agent: name of the agent.
        session: the agent's ZooKeeper session, for locks and other recipes; None in tests without
            servers. When it is lost the attempt is stopped, and its leases are lost with it.
        cancelled: set when the attempt must stop: its time is up, it was cancelled, the agent
            leaves, or the session was lost. An async handler gets `asyncio.CancelledError` as
            well; a handler in a thread must look here, or call :meth:`check`, between steps.
            After `cancelled` it has the agent's grace to clean up.
        reason: why `cancelled` was set, or the empty string.
    """

    __slots__ = (
        "_expires",
        "_log",
        "_valid",
        "agent",
        "attempt",
        "cancelled",
        "deadline",
        "fencing_token",
        "id",
        "priority",
        "reason",
        "session",
        "task",
    )

    def __init__(
        self,
        order: Run,
        *,
        agent: str,
        session: Session | None = None,
        valid: Callable[[], bool] | None = None,
    ) -> None:
        self.id = order.id
        self.task = order.task
        self.attempt = order.attempt
        self.priority = Priority(order.priority)
        self.fencing_token = order.fence
        self.deadline = order.expires_at
        self.agent = agent
        self.session = session
        self.cancelled = threading.Event()
        self.reason = ""
        self._valid = valid
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        limit = order.timeout
        if order.expires_at is not None:
            limit = min(limit, order.expires_at - time.time())
        self._expires = time.monotonic() + limit

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds ``task``, ``task_id`` and ``attempt`` to its records."""
        if self._log is None:
            extra = {"task": self.task, "task_id": self.id, "attempt": self.attempt}
            self._log = logging.LoggerAdapter(_LOGGER, extra)
        return self._log

    def remaining(self) -> float:
        """Seconds until the attempt's time limit or the task's deadline, at least 0."""
        return max(0.0, self._expires - time.monotonic())

    def check(self) -> None:
        """Return when the attempt may go on.

        Raises:
            AttemptStopped: it must stop now. Let it pass, or clean up and raise anything: how an
                attempt that was told to stop ends is reported by why it was told.
        """
        if self.cancelled.is_set():
            raise AttemptStopped(self.reason)
        if self._valid is not None and not self._valid():
            raise AttemptStopped("the agent's session can no longer be believed")

    def stop(self, reason: str) -> None:
        """Tell the handler to stop. Called by the agent."""
        self.reason = reason
        self.cancelled.set()
