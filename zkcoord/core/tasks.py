"""A live task as the fold of the log knows it."""

from __future__ import annotations

import msgspec

from zkcoord.core.records import VERSION, KeptTask, Submission

READY = 0
"""Waits for a slot, or until `due`."""
RUNNING = 1
"""An attempt is with an agent."""
ENDED = 2
"""No longer live; seen only by those who still hold the object."""

PROVISIONAL = 1 << 62
"""Stands for the log offset of a batch that its leader has not read back yet."""

OVERHEAD_BYTES = 900
"""Memory of a live task beside its value and headers, roughly; measured with 100,000 of them."""


class Task(msgspec.Struct, gc=False):
    """A live task.

    The fields up to `stale` are a function of the log. The rest is a leader's own.

    Attributes:
        sub: what was submitted.
        order: fixed key within its class; the lowest goes first.
        priority: its class now.
        offset: log offset of the batch that accepted it; `accepted` is that batch's time.
        phase: READY, RUNNING or ENDED.
        due: not before this time; 0 when it need not wait.
        attempt: attempts dispatched so far.
        failures: attempts that count against the retry policy; `crashes` against their own bound.
        partition, incarnation: of the agent with the current attempt, -1 when there is none.
        fence: log offset of the current attempt's dispatch, `dispatched` that batch's time.
        started: when the agent started it, 0 when not reported.
        cancel: why it is to be cancelled, asked for at time `asked`; None when it is not.
        kept: it has a record in the checkpoint.
        stale: log offset of the first change that the checkpoint does not show; -1 for none.
        as_of: facts up to this log offset are in it already (it came from the checkpoint).
        ticket: of its entry in the dispatch queue, 0 when it has none.
        estimate: expected duration of an attempt, seconds.
        size: bytes it takes, roughly.
    """

    sub: Submission
    order: float
    priority: int
    offset: int
    accepted: float
    phase: int = READY
    due: float = 0.0
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    partition: int = -1
    incarnation: int = -1
    fence: int = -1
    dispatched: float = 0.0
    started: float = 0.0
    cancel: str | None = None
    asked: float = 0.0
    kept: bool = False
    stale: int = -1
    as_of: int = -1
    ticket: int = 0
    estimate: float = 0.0
    size: int = 0

    @property
    def id(self) -> str:
        """The task's id."""
        return self.sub.id

    def status(self, at: float) -> str:
        """Its state in the words of users: pending, waiting, retrying, running."""
        if self.phase == RUNNING:
            return "running"
        if self.due > at:
            return "retrying" if self.failures else "waiting"
        return "pending"


def weigh(sub: Submission) -> int:
    """Bytes that a live task takes, roughly."""
    size = OVERHEAD_BYTES + len(sub.value)
    for name, value in sub.headers:
        size += 150 + len(name) + (0 if value is None else len(value))
    return size


def keep(task: Task, as_of: int) -> KeptTask:
    """The task's record for the checkpoint, right after the batch at log offset `as_of`."""
    return KeptTask(
        version=VERSION,
        as_of=as_of,
        task=task.sub,
        order=task.order,
        priority=task.priority,
        offset=task.offset,
        accepted=task.accepted,
        phase=task.phase,
        due=task.due,
        attempt=task.attempt,
        failures=task.failures,
        crashes=task.crashes,
        partition=task.partition,
        incarnation=task.incarnation,
        fence=task.fence,
        dispatched=task.dispatched,
        started=task.started,
        cancel=task.cancel,
        asked=task.asked,
    )


def revive(kept: KeptTask) -> Task:
    """The live task of a checkpoint record."""
    return Task(
        sub=kept.task,
        order=kept.order,
        priority=kept.priority,
        offset=kept.offset,
        accepted=kept.accepted,
        phase=kept.phase,
        due=kept.due,
        attempt=kept.attempt,
        failures=kept.failures,
        crashes=kept.crashes,
        partition=kept.partition,
        incarnation=kept.incarnation,
        fence=kept.fence,
        dispatched=kept.dispatched,
        started=kept.started,
        cancel=kept.cancel,
        asked=kept.asked,
        kept=True,
        as_of=kept.as_of,
        size=weigh(kept.task),
    )
