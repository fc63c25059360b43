"""Where a leader works: the state, its own soft structures, and the batch being decided.

Each method here decides one thing about one task: it writes the fact, which applies it to the
state, and keeps queue, timers and agents in step. What to decide is said by the modules around it:
:mod:`~.intake`, :mod:`~.answers`, :mod:`~.upkeep`.
"""

from __future__ import annotations

from random import Random

from zkcoord.config import QueueConfig, SchedulerConfig
from zkcoord.core.admission import Admission, Meter
from zkcoord.core.apply import Effects, Fold
from zkcoord.core.dispatch import Dispatch, order_of
from zkcoord.core.fleet import UNSENT, Agent, Fleet
from zkcoord.core.records import (
    Accepted,
    CancelAsked,
    Cancelled,
    Died,
    Discarded,
    Dispatched,
    Fact,
    Origin,
    Released,
    Reprioritized,
    Retrying,
    Submission,
    Succeeded,
)
from zkcoord.core.state import State
from zkcoord.core.tasks import PROVISIONAL, READY, RUNNING, Task
from zkcoord.core.timers import DUE, EXPIRE, GRACE, Timers

FACT_BYTES = 64
"""Of a small fact beside its id, at most."""
TEXT_CHARS_MAX = 4096
EXPIRED = "expired"
"""Reason of a cancellation because of the task's deadline."""


class Desk:
    """The soft state of a leader, and the batch being decided.

    Attributes:
        now: the batch's time.
        facts, size: decided so far, and their bytes as encoded, at most roughly.
        consumed: next offset per (source, partition), not in a batch yet.
        reserved: slots that are kept for some class.
        touched: tasks with a provisional log offset in them.
        gone: ids of tasks that ended in the batch; `ended` of those that were checkpointed.
    """

    def __init__(
        self, state: State, fleet: Fleet, config: QueueConfig, own: SchedulerConfig, rng: Random
    ) -> None:
        self.state = state
        self.fleet = fleet
        self.config = config
        self.own = own
        self.rng = rng
        self.fold = Fold(state)
        self.queues = Dispatch(config.classes, fleet)
        self.timers = Timers()
        self.meter = Meter()
        self.reserved = sum(c.reserved_slots for c in config.classes)
        self.admission = Admission(config, self.meter)
        self.now = state.at
        self.facts: list[Fact] = []
        self.size = 0
        self.consumed: dict[tuple[int, int], int] = {}
        self.touched: list[Task] = []
        self.ended: list[str] = []
        self.gone: set[str] = set()
        self._take_over()

    def begin(self, now: float) -> None:
        """Start a batch. Time never falls."""
        self.now = max(now, self.state.at)
        self.fold.offset = PROVISIONAL
        self.fold.at = self.now
        self.fold.index = 0
        self.fold.effects = []
        self.facts = []
        self.size = 0
        self.gone = set()

    def finish_batch(self, sent: int) -> Effects:
        """The batch is complete and carries this watermark; what is to be sent because of it."""
        self.state.at = self.now
        self.fold.settle(sent)
        return self.fold.effects

    def read_back(self, offset: int) -> None:
        """The batch stands at log offset `offset`: write that where it was provisional."""
        for task in self.touched:
            if task.offset == PROVISIONAL:
                task.offset = offset
            if task.fence == PROVISIONAL:
                task.fence = offset
            if task.stale == PROVISIONAL:
                task.stale = offset
        self.touched = []
        ended = self.state.ended
        for id_ in self.ended:
            if ended.get(id_) == PROVISIONAL:
                ended[id_] = offset
        self.ended = []

    def full(self, share: float = 1.0) -> bool:
        """Whether the batch has reached this share of its bounds."""
        return (
            len(self.facts) >= share * self.own.batch_facts_max
            or self.size >= share * self.own.batch_bytes_max
        )

    def fits(self, size: int) -> bool:
        """Whether `size` more bytes fit; something always fits into an empty batch."""
        return not self.facts or self.size + size <= self.own.batch_bytes_max

    def is_old(self, origin: Origin) -> bool:
        """Whether the record was consumed before."""
        return origin.offset < self.state.inputs.get((origin.source, origin.partition), 0)

    def consume(self, origin: Origin) -> None:
        """The record is dealt with by the facts of this batch."""
        key = (origin.source, origin.partition)
        self.consumed[key] = self.state.inputs[key] = origin.offset + 1

    def write(self, fact: Fact, size: int = FACT_BYTES) -> None:
        """Decide a fact."""
        self.facts.append(fact)
        self.size += size
        self.fold.apply(fact)

    # --- one task -------------------------------------------------------------------------------

    def accept(self, sub: Submission, size: int) -> Task:
        """The task becomes live."""
        now = self.now
        estimate = self.meter.estimates.of(sub.task)
        due = sub.not_before or 0.0
        if due <= now:
            due = 0.0
        # The broker's clock says when it arrived, but a clock ahead of ours earns no later place.
        arrival = due or min(sub.origin.timestamp, now)
        budget = self.config.classes[sub.priority].budget_s
        order = order_of(arrival, budget, deadline=sub.expires_at, estimate=estimate)
        self.write(Accepted(sub, order, due), size)
        task = self.state.tasks[sub.id]
        task.estimate = estimate
        self.touched.append(task)
        self.meter.note_in(sub.priority, estimate)
        if sub.expires_at is not None:
            self.timers.add(sub.expires_at, sub.id, EXPIRE)
        if due:
            self.timers.add(due, sub.id, DUE)
        else:
            self.queues.push(task)
        return task

    def dispatch(self, task: Task, agent: Agent) -> None:
        """The task, just taken from the queue, goes to the agent."""
        id_ = task.sub.id
        fact = Dispatched(id_, task.attempt + 1, agent.partition, agent.incarnation)
        self.facts.append(fact)
        self.size += FACT_BYTES + weigh_text(id_)
        self.fold.dispatched(fact)
        self.fold.index += 1
        self.touched.append(task)
        agent.running[id_] = task
        agent.unconfirmed[id_] = self.now
        self.queues.assigned(agent)

    def succeed(self, task: Task, fact: Succeeded) -> None:
        """The current attempt succeeded."""
        self._left_agent(task)
        self.gone.add(fact.id)
        if task.kept:
            self.ended.append(fact.id)
        self.facts.append(fact)
        self.size += FACT_BYTES + weigh_text(fact.id) + len(fact.result)
        self.fold.succeeded(fact)
        self.fold.index += 1
        self.meter.note_out(task.priority, task.estimate)
        self.meter.estimates.learn(task.sub.task, fact.finished - fact.started)

    def end(self, task: Task, fact: Died | Discarded | Cancelled) -> None:
        """The task ends without success, whatever its phase."""
        if task.phase == RUNNING:
            self._left_agent(task)
            self.meter.note_out(task.priority, task.estimate)
        else:
            self.queues.discard(task)
        self.gone.add(fact.id)
        if task.kept:
            self.ended.append(fact.id)
        text = fact.error if type(fact) is Died else fact.reason
        self.write(fact, FACT_BYTES + weigh_text(task.sub.id) + weigh_text(text))

    def abandon(self, task: Task, fact: Died | Cancelled) -> None:
        """The task ends while its agent may still run it; the slot stays taken until it answers."""
        agent = self.fleet.agents.get(task.incarnation)
        if agent is not None and agent.live:
            agent.lingering.add((task.sub.id, task.attempt))
        self.end(task, fact)

    def retry(self, task: Task, fact: Retrying) -> None:
        """The current attempt failed; another follows when it is due."""
        self._left_agent(task)
        self.meter.note_out(task.priority, task.estimate)
        self.write(fact, FACT_BYTES + weigh_text(fact.id) + weigh_text(fact.error))
        self.touched.append(task)
        if fact.due > self.now:
            self.timers.add(fact.due, task.sub.id, DUE)
        else:
            self.queues.push(task)

    def release(self, task: Task, reason: str, *, crash: bool) -> None:
        """The current attempt ended without a verdict; the task goes back to its old place."""
        self._left_agent(task)
        self.write(
            Released(task.sub.id, task.attempt, reason, crash),
            FACT_BYTES + weigh_text(task.sub.id) + weigh_text(reason),
        )
        self.touched.append(task)
        self.queues.push(task)

    def ask_cancel(self, task: Task, reason: str) -> None:
        """The agent is to stop the current attempt."""
        self.write(CancelAsked(task.sub.id, reason), FACT_BYTES + weigh_text(task.sub.id + reason))
        self.touched.append(task)
        self.timers.add(self.now + self.own.cancel_s, task.sub.id, GRACE)

    def reprioritize(self, task: Task, priority: int) -> None:
        """The task moves to another class, ordered there by when it arrived."""
        waits = task.ticket != 0
        self.queues.discard(task)
        budget = self.config.classes[priority].budget_s
        arrival = min(task.sub.origin.timestamp, task.accepted)
        order = order_of(arrival, budget, deadline=task.sub.expires_at, estimate=task.estimate)
        self.write(
            Reprioritized(task.sub.id, priority, order), FACT_BYTES + weigh_text(task.sub.id)
        )
        self.touched.append(task)
        if waits:
            self.queues.push(task)

    def cancelled_end(self, task: Task, error: str) -> Died | Cancelled:
        """How a task ends whose cancellation was asked for and whose attempt is over."""
        if task.cancel == EXPIRED:
            text = error or "its deadline passed while it ran"
            return Died(task.sub.id, task.attempt, EXPIRED, text[:TEXT_CHARS_MAX])
        return Cancelled(task.sub.id, task.attempt, task.cancel or error[:TEXT_CHARS_MAX])

    # --- inside ---------------------------------------------------------------------------------

    def _left_agent(self, task: Task) -> None:
        agent = self.fleet.agents.get(task.incarnation)
        if agent is not None:
            agent.running.pop(task.sub.id, None)
            agent.unconfirmed.pop(task.sub.id, None)
            self.fleet.touch(agent)

    def _take_over(self) -> None:
        """Build queue, timers and holders from the state."""
        now, ready = self.now, []
        # What earlier leaders learned is not in the log; until the first completions every task
        # is expected to take the nominal time.
        estimate = self.meter.estimates.of("")
        timers = self.timers
        for id_, task in self.state.tasks.items():
            task.ticket = 0
            task.estimate = estimate
            if task.sub.expires_at is not None:
                timers.add(task.sub.expires_at, id_, EXPIRE)
            if task.phase == READY:
                if task.due > now:
                    timers.add(task.due, id_, DUE)
                else:
                    ready.append(task)
            else:
                holder = self.fleet.holder(task.partition, task.incarnation)
                holder.running[id_] = task
                holder.unconfirmed[id_] = UNSENT
                self.fleet.touch(holder)
                if task.cancel is not None:
                    timers.add(task.asked + self.own.cancel_s, id_, GRACE)
        self.queues.fill(ready)


def weigh_text(text: str) -> int:
    """Bytes of a text as encoded, at most."""
    return len(text) if text.isascii() else 4 * len(text)
