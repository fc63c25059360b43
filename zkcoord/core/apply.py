"""Apply facts to a state. The same code folds a log for a standby and for the leader itself.

Applying is total: a fact about a task that is not live changes nothing. That is what lets a fold
begin in the middle of the log, at a checkpoint: of tasks that ended since, only late facts are
seen.

A task that came from the checkpoint already contains the facts up to its record's log offset. They
change nothing then, but what must be sent because of them is still said, in case it was not sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import msgspec

from zkcoord.core.records import (
    Accepted,
    Batch,
    CancelAsked,
    Cancelled,
    Checkpointed,
    Died,
    Discarded,
    Dispatched,
    Duplicate,
    Fact,
    Paused,
    Positioned,
    Refused,
    Rejected,
    Released,
    Reprioritized,
    Retrying,
    Started,
    Succeeded,
    Superseded,
    TermOpened,
)
from zkcoord.core.state import State
from zkcoord.core.tasks import ENDED, READY, RUNNING, Task, weigh


class Tombstones(msgspec.Struct, gc=False):
    """Tasks whose checkpoint records are to go: follows from a watermark, not from a fact."""

    ids: list[str]


Cause: TypeAlias = Fact | Tombstones

Effect: TypeAlias = "tuple[Cause, Task | list[Task] | None, int]"
"""Why something is to be sent: the fact, what it is about, and its place in the batch."""

Effects: TypeAlias = list[Effect]


class Fold:
    """Applies the facts of one batch after the other to a state.

    Attributes:
        state: what is folded into.
        offset: log offset of the current batch; :data:`~.tasks.PROVISIONAL` while its leader has
            not read it back.
        at: the current batch's time.
        index: place of the next fact in its batch.
        effects: what is to be sent because of the current batch.
    """

    __slots__ = ("at", "effects", "index", "offset", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.offset = -1
        self.at = 0.0
        self.index = 0
        self.effects: Effects = []

    def begin(self, offset: int, at: float, sent: int) -> None:
        """Turn to the next batch: its place, time, and watermark.

        Time never falls: an opening was written before its leader knew what stands before it.
        """
        self.offset = offset
        self.at = self.state.at = max(at, self.state.at)
        self.index = 0
        self.effects = []
        self.settle(sent)

    def batch(self, batch: Batch, offset: int) -> Effects:
        """Apply the whole batch at log offset `offset`; what is to be sent because of it."""
        self.begin(offset, batch.at, batch.sent)
        inputs = self.state.inputs
        for source, partition, next_ in batch.inputs:
            inputs[source, partition] = next_
        table = self.TABLE
        for fact in batch.facts:
            table[type(fact)](self, fact)
            self.index += 1
        return self.effects

    def apply(self, fact: Fact) -> None:
        """Apply one fact of the current batch."""
        self.TABLE[type(fact)](self, fact)
        self.index += 1

    # --- one per fact ---------------------------------------------------------------------------

    def accepted(self, fact: Accepted) -> None:
        """The task becomes live."""
        state = self.state
        state.totals[2] += 1
        sub = fact.task
        id_ = sub.id
        if id_ in state.tasks:
            return  # it came from the checkpoint, with this fact in it
        task = Task(sub, fact.order, sub.priority, self.offset, self.at, READY, fact.due)
        task.stale = self.offset
        task.size = weigh(sub)
        state.tasks[id_] = state.young[id_] = task
        state.ready[task.priority] += 1
        state.bytes += task.size

    def dispatched(self, fact: Dispatched) -> None:
        """The attempt belongs to an agent now."""
        state = self.state
        state.totals[5] += 1
        task = state.tasks.get(fact.id)
        offset = self.offset
        if task is None or offset < task.offset:
            return
        self.effects.append((fact, task, self.index))
        if offset <= task.as_of:
            return
        if task.phase == READY:
            task.phase = RUNNING
            state.ready[task.priority] -= 1
            state.running_of[task.priority] += 1
            state.running += 1
        task.attempt = fact.attempt
        task.partition = fact.partition
        task.incarnation = fact.incarnation
        task.fence = offset
        task.dispatched = self.at
        task.started = 0.0
        if task.stale < 0:
            self._spoil(task)

    def _started(self, fact: Started) -> None:
        self.state.totals[6] += 1
        task = self._changing(fact.id)
        if task is not None:
            task.started = fact.started

    def succeeded(self, fact: Succeeded) -> None:
        """Terminal. Nobody is told when nobody listens."""
        self.state.totals[7] += 1
        task = self.state.tasks.get(fact.id)
        if task is None or self.offset < task.offset:
            return
        if task.sub.reply is not None:
            self.effects.append((fact, task, self.index))
        if self.offset > task.as_of:
            self._end(task)

    def _retrying(self, fact: Retrying) -> None:
        self.state.totals[8] += 1
        task = self._changing(fact.id)
        if task is not None:
            task.failures += 1
            task.due = fact.due
            self._unassign(task)

    def _released(self, fact: Released) -> None:
        self.state.totals[9] += 1
        task = self._changing(fact.id)
        if task is not None:
            task.crashes += fact.crash
            task.due = 0.0
            self._unassign(task)

    def _died(self, fact: Died) -> None:
        self.state.totals[10] += 1
        self._ending(fact)

    def _discarded(self, fact: Discarded) -> None:
        self.state.totals[11] += 1
        self._ending(fact)

    def _cancelled(self, fact: Cancelled) -> None:
        self.state.totals[13] += 1
        self._ending(fact)

    def _cancel_asked(self, fact: CancelAsked) -> None:
        self.state.totals[12] += 1
        task = self.state.tasks.get(fact.id)
        if task is None or self.offset < task.offset:
            return
        self.effects.append((fact, task, self.index))
        task = self._changing(fact.id)
        if task is not None:
            task.cancel = fact.reason
            task.asked = self.at

    def _reprioritized(self, fact: Reprioritized) -> None:
        state = self.state
        state.totals[15] += 1
        task = self._changing(fact.id)
        if task is not None:
            counts = state.ready if task.phase == READY else state.running_of
            counts[task.priority] -= 1
            counts[fact.priority] += 1
            task.priority = fact.priority
            task.order = fact.order

    def _paused(self, fact: Paused) -> None:
        self.state.totals[16] += 1
        self.state.paused = fact.paused

    def _checkpointed(self, fact: Checkpointed) -> None:
        state = self.state
        state.totals[17] += 1
        kept: list[Task] = []
        for id_ in fact.ids:
            task = state.tasks.get(id_)
            if task is None or self.offset < task.offset:
                continue
            kept.append(task)
            if self.offset > task.as_of:
                task.kept = True
                task.stale = -1
                state.young.pop(id_, None)
        self.effects.append((fact, kept, self.index))

    def _opened(self, fact: TermOpened) -> None:  # noqa: ARG002 - only counted
        self.state.totals[1] += 1

    def _duplicate(self, fact: Duplicate) -> None:  # noqa: ARG002 - only counted
        self.state.totals[4] += 1

    def _superseded(self, fact: Superseded) -> None:  # noqa: ARG002 - only counted
        self.state.totals[14] += 1

    def _rejected(self, fact: Rejected) -> None:
        self.state.totals[3] += 1
        self.effects.append((fact, None, self.index))

    def _positioned(self, fact: Positioned) -> None:
        self.state.totals[18] += 1
        self.effects.append((fact, None, self.index))

    def _refused(self, fact: Refused) -> None:
        self.state.totals[19] += 1
        self.effects.append((fact, None, self.index))

    # --- shared ---------------------------------------------------------------------------------

    def _changing(self, id_: str) -> Task | None:
        """The task that a fact is about to change, None when it changes nothing."""
        task = self.state.tasks.get(id_)
        if task is None or self.offset <= task.as_of or self.offset < task.offset:
            return None
        if task.stale < 0:
            self._spoil(task)
        return task

    def _spoil(self, task: Task) -> None:
        """The task's checkpoint record no longer shows it as it is."""
        task.stale = self.offset
        self.state.young[task.sub.id] = task

    def _unassign(self, task: Task) -> None:
        if task.phase == RUNNING:
            state = self.state
            task.phase = READY
            state.running -= 1
            state.running_of[task.priority] -= 1
            state.ready[task.priority] += 1
        task.partition = task.incarnation = -1
        task.started = 0.0

    def _ending(self, fact: Died | Discarded | Cancelled) -> None:
        task = self.state.tasks.get(fact.id)
        if task is None or self.offset < task.offset:
            return
        self.effects.append((fact, task, self.index))
        if self.offset > task.as_of:
            self._end(task)

    def _end(self, task: Task) -> None:
        """The task is no longer live."""
        state = self.state
        id_ = task.sub.id
        del state.tasks[id_]
        if task.stale >= 0:
            state.young.pop(id_, None)
        if task.kept:
            state.ended[id_] = self.offset
        state.bytes -= task.size
        if task.phase == READY:
            state.ready[task.priority] -= 1
        else:
            state.running -= 1
            state.running_of[task.priority] -= 1
        task.phase = ENDED

    def settle(self, sent: int) -> None:
        """Move the watermark; tombstones fall due where a task's last outputs are acknowledged."""
        state = self.state
        if sent <= state.sent:
            return
        state.sent = sent
        due = []
        for id_, offset in state.ended.items():
            if offset >= sent:
                break
            due.append(id_)
        if due:
            for id_ in due:
                del state.ended[id_]
            self.effects.append((Tombstones(due), None, -1))

    TABLE: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        TermOpened: _opened,
        Accepted: accepted,
        Rejected: _rejected,
        Duplicate: _duplicate,
        Dispatched: dispatched,
        Started: _started,
        Succeeded: succeeded,
        Retrying: _retrying,
        Released: _released,
        Died: _died,
        Discarded: _discarded,
        CancelAsked: _cancel_asked,
        Cancelled: _cancelled,
        Superseded: _superseded,
        Reprioritized: _reprioritized,
        Paused: _paused,
        Checkpointed: _checkpointed,
        Positioned: _positioned,
        Refused: _refused,
    }
