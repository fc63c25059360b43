"""Read a queue's log: what became of tasks.

A light reader, apart from the scheduler's fold: it keeps one small view per task and no bodies. The
rules for which records count are the log's own (see :mod:`zkcoord.core.records`): a record of a
lower term after one of a higher is void, and within a term the numbers rise by one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import msgspec

from zkcoord.core.records import (
    VERSION,
    Accepted,
    Batch,
    CancelAsked,
    Cancelled,
    Died,
    Discarded,
    Dispatched,
    Duplicate,
    Fact,
    KeptTask,
    Priority,
    Rejected,
    Released,
    Reprioritized,
    Retrying,
    Started,
    Submission,
    Succeeded,
    Superseded,
)
from zkcoord.core.tasks import RUNNING
from zkcoord.errors import DecodeError
from zkcoord.inspector.views import FactView, TaskView

TASKS_MAX = 1_000_000

_decode_batch = msgspec.msgpack.Decoder(Batch).decode


class _Head(msgspec.Struct, array_like=True, gc=False):
    """The first members of a batch; the rest is skipped without being built."""

    version: int
    term: int
    n: int
    at: float


_decode_head = msgspec.msgpack.Decoder(_Head).decode


class LogOrder:
    """Says which records of a log count.

    A reader that begins in the middle of a log cannot know the term before it: it believes what it
    sees first, until a higher term shows.
    """

    def __init__(self) -> None:
        self.term = -1
        self.n = -1

    def takes(self, term: int, n: int) -> bool:
        """Whether the next record counts, given its header; moves on when it does."""
        if self.term == -1:
            counts = True
        elif term == self.term:
            counts = n == self.n + 1
        else:
            counts = term > self.term and n == 0
        if counts:
            self.term, self.n = term, n
        return counts


class LogScan:
    """Folds log records into task views.

    Args:
        only: a task id: records that do not mention it are passed over without being decoded.
        tasks_max: bound on views kept; the ones that ended longest ago are dropped first.
    """

    def __init__(self, *, only: str | None = None, tasks_max: int = TASKS_MAX) -> None:
        self.tasks: OrderedDict[str, TaskView] = OrderedDict()
        self.facts: list[FactView] = []
        self.dropped = 0
        self._only = only
        self._needle = None if only is None else only.encode()
        self._tasks_max = tasks_max
        self._order = LogOrder()

    def feed(self, offset: int, value: bytes | None) -> bool:
        """Fold one record; False when it is void.

        Raises:
            DecodeError: the record is of a version that this program does not know, or no batch.
        """
        if value is None:
            raise DecodeError(f"the log holds a null record at offset {offset}")
        try:
            head = _decode_head(value)
            if head.version != VERSION:
                raise DecodeError(
                    f"the log holds version {head.version} at offset {offset}, we read {VERSION}",
                    hint="upgrade zkcoord here",
                )
            if not self._order.takes(head.term, head.n):
                return False
            if self._needle is not None and self._needle not in value:
                return True
            batch = _decode_batch(value)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise DecodeError(
                f"the log's record at offset {offset} is no batch: {error}"
            ) from error
        for fact in batch.facts:
            self._apply(fact, batch.at, offset)
        return True

    def start_with(self, tasks: Iterable[KeptTask]) -> None:
        """Know tasks of a checkpoint before the log's first record.

        Facts that the log still has from before the checkpoint are folded again on top; what
        comes out is the same, since facts carry resolved values.
        """
        for kept in tasks:
            if self._only in (None, kept.task.id) and kept.task.id not in self.tasks:
                self.tasks[kept.task.id] = _kept_view(kept)

    def _apply(self, fact: Fact, at: float, offset: int) -> None:
        task_id = fact.task.id if isinstance(fact, Accepted) else getattr(fact, "id", None)
        if task_id is None or self._only not in (None, task_id):
            return
        rule = _RULES.get(type(fact))
        if rule is None:
            return
        view = self.tasks.get(task_id)
        if isinstance(fact, Accepted):
            view = self.tasks[task_id] = _new_view(fact.task)
            self.tasks.move_to_end(task_id)
            self._bound()
        elif isinstance(fact, Rejected):
            view = self.tasks.setdefault(task_id, _rejected_view(fact))
        elif view is None:
            view = self.tasks[task_id] = TaskView(id=task_id, task="", state="", priority="")
        what, detail = rule(view, fact, at)
        if not isinstance(fact, (Superseded, Duplicate)):
            view.changed = at
        if self._only is not None:
            attempt = getattr(fact, "attempt", 0)
            self.facts.append(
                FactView(at=at, what=what, attempt=attempt, detail=detail, offset=offset)
            )

    def _bound(self) -> None:
        """Drop a tenth at a time, so that looking for what has ended costs little per task."""
        if len(self.tasks) <= self._tasks_max:
            return
        count = max(1, self._tasks_max // 10)
        ended = (task_id for task_id, task in self.tasks.items() if task.is_terminal)
        going = list(islice(ended, count)) or list(islice(self.tasks, count))
        for task_id in going:
            del self.tasks[task_id]
        self.dropped += len(going)


def _new_view(task: Submission) -> TaskView:
    return TaskView(
        id=task.id,
        task=task.task,
        state="pending",
        priority=_class(task.priority),
        tenant=task.tenant,
        requires=task.requires,
        submitted=task.origin.timestamp,
        expires_at=task.expires_at,
    )


def _kept_view(kept: KeptTask) -> TaskView:
    view = _new_view(kept.task)
    if kept.phase == RUNNING:
        view.state = "running"
    elif kept.due > kept.accepted:
        view.state = "retrying" if kept.attempt else "waiting"
    view.priority = _class(kept.priority)
    view.accepted = view.changed = kept.accepted
    view.due = kept.due
    view.attempt = kept.attempt
    view.started = kept.started
    view.partition = kept.partition if kept.partition >= 0 else None
    return view


def _rejected_view(fact: Rejected) -> TaskView:
    return TaskView(
        id=fact.id or "",
        task="",
        state="rejected",
        priority=_class(fact.origin.source),
        submitted=fact.origin.timestamp,
    )


def _class(priority: int) -> str:
    return Priority(priority).name.lower() if 0 <= priority <= 3 else ""


# --- one rule per fact: change the view, say what happened and the detail -------------------------

_Rule = Callable[[TaskView, Any, float], tuple[str, str]]


def _accepted(view: TaskView, fact: Accepted, at: float) -> tuple[str, str]:
    view.accepted = at
    view.due = fact.due
    view.state = "waiting" if fact.due > at else "pending"
    origin = fact.task.origin
    return "accepted", f"{view.priority} {origin.partition}/{origin.offset}"


def _rejected(view: TaskView, fact: Rejected, at: float) -> tuple[str, str]:
    if not view.accepted:  # else the record is a later one that used the id of a known task
        view.state, view.reason, view.error, view.finished = (
            "rejected", fact.reason, fact.detail, at,
        )  # fmt: skip
    return "rejected", f"{fact.reason}: {fact.detail}"


def _dispatched(view: TaskView, fact: Dispatched, _: float) -> tuple[str, str]:
    view.state, view.attempt, view.partition = "running", fact.attempt, fact.partition
    view.started = 0.0
    view.reason = ""
    return "dispatched", f"to inbox {fact.partition}, incarnation {fact.incarnation}"


def _started(view: TaskView, fact: Started, _: float) -> tuple[str, str]:
    view.started = fact.started
    return "started", ""


def _succeeded(view: TaskView, fact: Succeeded, _: float) -> tuple[str, str]:
    view.state, view.started, view.finished = "succeeded", fact.started, fact.finished
    view.result = fact.result.decode("utf-8", "backslashreplace")
    return "succeeded", f"ran {fact.finished - fact.started:.3f} s"


def _retrying(view: TaskView, fact: Retrying, at: float) -> tuple[str, str]:
    view.state, view.due, view.error = "retrying", fact.due, fact.error
    return "failed", f"next in {max(0.0, fact.due - at):.1f} s: {fact.error}"


def _released(view: TaskView, fact: Released, _: float) -> tuple[str, str]:
    view.state, view.reason, view.partition = "pending", fact.reason, None
    return "put back", fact.reason


def _died(view: TaskView, fact: Died, at: float) -> tuple[str, str]:
    view.state, view.reason, view.finished = "dead", fact.reason, at
    view.error = fact.error or view.error
    return "dead", f"{fact.reason}: {fact.error}" if fact.error else fact.reason


def _discarded(view: TaskView, fact: Discarded, at: float) -> tuple[str, str]:
    view.state, view.reason, view.finished = "failed", fact.reason, at
    return "discarded", fact.reason


def _cancel_asked(view: TaskView, fact: CancelAsked, _: float) -> tuple[str, str]:
    view.reason = fact.reason
    return "cancel asked", fact.reason


def _cancelled(view: TaskView, fact: Cancelled, at: float) -> tuple[str, str]:
    view.state, view.reason, view.finished = "cancelled", fact.reason, at
    return "cancelled", fact.reason


def _superseded(_: TaskView, fact: Superseded, __: float) -> tuple[str, str]:
    return "late report", f"{fact.kind} of incarnation {fact.incarnation}, changed nothing"


def _reprioritized(view: TaskView, fact: Reprioritized, _: float) -> tuple[str, str]:
    view.priority = _class(fact.priority)
    return "reprioritized", f"to {view.priority}"


def _duplicate(_: TaskView, fact: Duplicate, __: float) -> tuple[str, str]:
    return "duplicate", f"dropped record {fact.origin.partition}/{fact.origin.offset}"


_RULES: dict[type[Any], _Rule] = {
    Accepted: _accepted,
    Rejected: _rejected,
    Dispatched: _dispatched,
    Started: _started,
    Succeeded: _succeeded,
    Retrying: _retrying,
    Released: _released,
    Died: _died,
    Discarded: _discarded,
    CancelAsked: _cancel_asked,
    Cancelled: _cancelled,
    Superseded: _superseded,
    Reprioritized: _reprioritized,
    Duplicate: _duplicate,
}
