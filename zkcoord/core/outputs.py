"""What a leader sends: records for the inbox, results, dead and checkpoint topics, as bytes.

Outputs are a function of facts. Each carries the log offset of its batch; when all outputs of a
batch are acknowledged, tell :meth:`~.leader.Leader.acknowledged`.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from zkcoord.config import QueueConfig
from zkcoord.core import deadletters, results
from zkcoord.core.apply import Effects, Tombstones
from zkcoord.core.records import (
    VERSION,
    Cancel,
    CancelAsked,
    Cancelled,
    Checkpointed,
    Died,
    Discarded,
    Dispatched,
    Headers,
    Inbox,
    Positioned,
    Refused,
    Rejected,
    Run,
    Succeeded,
)
from zkcoord.core.tasks import ENDED, RUNNING, Task, keep

POSITION_KEY = b"#position"
INBOX_BYTES_MAX = 800_000
"""Of one inbox record, roughly; a single larger order still goes, in a record of its own."""
INBOX_ORDERS_MAX = 1000

_encode = msgspec.msgpack.Encoder().encode


class Topic(IntEnum):
    """Which of the queue's topics an output goes to."""

    INBOX = 0
    RESULTS = 1
    DEAD = 2
    CHECKPOINT = 3


class Output(msgspec.Struct, gc=False):
    """One record to send.

    Attributes:
        topic: where to.
        partition: the agent's for INBOX, the one the submitter named for RESULTS (drop the output
            when the topic has no such partition), None for DEAD and CHECKPOINT.
        key, value, headers: the record; a CHECKPOINT value of None is a tombstone.
        offset: log offset of the batch it comes from; -1 for reminders, whose acknowledgement
            nobody waits for.

    Order matters within a partition. CHECKPOINT records must be written by the fenced
    transactional producer, in the order given.
    """

    topic: Topic
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    offset: int


class _Pile:
    """Orders for one agent that are not packed yet."""

    __slots__ = ("last", "orders", "partition", "size")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.orders: list[Run | Cancel] = []
        self.size = 0
        self.last = False


class Packer:
    """Makes outputs of one leader's effects. Numbers the inbox records of each agent.

    Args:
        queue: its name.
        config: of the queue; gives the time limit of tasks that name none.
        term: the leader's.
    """

    def __init__(self, queue: str, config: QueueConfig, term: int) -> None:
        self._queue = queue
        self._timeout = config.timeout_s
        self._term = term
        self._seq: dict[int, int] = {}
        self._piles: dict[int, _Pile] = {}
        self._out: list[Output] = []
        self._offset = -1
        self._at = 0.0
        self._as_of = -1

    def forget(self, incarnation: int) -> None:
        """The agent is gone; nothing is sent to it any more."""
        self._seq.pop(incarnation, None)

    def pack(self, effects: Effects, offset: int, at: float, as_of: int) -> list[Output]:
        """The outputs of the batch at log offset `offset`, decided at `at`.

        `as_of` is the log offset of the last batch that the tasks' present state contains: no
        batch may be in flight.
        """
        self._offset, self._at, self._as_of = offset, at, as_of
        for cause, about, index in effects:
            kind = type(cause)
            if kind is Dispatched:
                self._dispatch(cause, about)  # type: ignore[arg-type]
            elif kind is Succeeded:
                self._success(cause, about, index)  # type: ignore[arg-type]
            elif kind is Died or kind is Discarded or kind is Cancelled:
                self._ending(cause, about, index)  # type: ignore[arg-type]
            elif kind is CancelAsked:
                self.cancel(about, cause.reason)  # type: ignore[arg-type,union-attr]
            elif kind is Rejected:
                self._rejection(cause, index)  # type: ignore[arg-type]
            elif kind is Refused:
                self._refusal(cause, index)  # type: ignore[arg-type]
            else:
                self._checkpoint(cause, about)  # type: ignore[arg-type]
        return self._finish()

    # --- reminders: the same orders again, belonging to no batch ------------------------------

    def remind(self, tasks: list[Task]) -> None:
        """Add the current dispatches of `tasks` to the reminders."""
        for task in tasks:
            self._order(task)
            if task.cancel is not None:
                self.cancel(task, task.cancel)

    def greet(self, partition: int, incarnation: int, *, last: bool) -> None:
        """Add a record to the reminders, empty unless more was added: agents answer a new term.

        With `last`, it says that no order follows.
        """
        self._pile(partition, incarnation).last = last

    def stop(self, partition: int, incarnation: int, order: Cancel) -> None:
        """Add a cancellation of an attempt that is not the task's current one."""
        self._put(partition, incarnation, order, 100)

    def reminders(self) -> list[Output]:
        """What was added since the last call."""
        if not self._piles:
            return []
        self._offset = -1
        return self._finish()

    # --- inbox ----------------------------------------------------------------------------------

    def _dispatch(self, fact: Dispatched, task: Task) -> None:
        # After a take-over the task may have moved on: an order that was superseded is not sent.
        if (
            task.attempt == fact.attempt
            and task.phase == RUNNING
            and task.incarnation == fact.incarnation
        ):
            self._order(task)

    def _order(self, task: Task) -> None:
        sub = task.sub
        value = sub.value
        order = Run(
            sub.id,
            task.attempt,
            task.fence,
            sub.task,
            task.priority,
            value,
            sub.headers,
            sub.key,
            self._timeout if sub.timeout is None else sub.timeout,
            sub.expires_at,
            sub.trace,
        )
        self._put(task.partition, task.incarnation, order, task.size)

    def cancel(self, task: Task, reason: str) -> None:
        """Tell the agent that has the task to stop it."""
        if task.phase == RUNNING:
            order = Cancel(task.sub.id, task.attempt, reason)
            self._put(task.partition, task.incarnation, order, 100 + len(reason))

    def _pile(self, partition: int, incarnation: int) -> _Pile:
        pile = self._piles.get(incarnation)
        if pile is None:
            pile = self._piles[incarnation] = _Pile(partition)
        return pile

    def _put(self, partition: int, incarnation: int, order: Run | Cancel, size: int) -> None:
        pile = self._piles.get(incarnation)
        if pile is None:
            pile = self._piles[incarnation] = _Pile(partition)
        elif pile.size + size > INBOX_BYTES_MAX or len(pile.orders) >= INBOX_ORDERS_MAX:
            self._seal(incarnation, pile)
            pile = self._piles[incarnation] = _Pile(partition)
        pile.orders.append(order)
        pile.size += size

    def _seal(self, incarnation: int, pile: _Pile) -> None:
        seq = self._seq.get(incarnation, 0)
        self._seq[incarnation] = seq + 1
        record = Inbox(VERSION, self._queue, self._term, incarnation, seq, pile.orders, pile.last)
        self._out.append(
            Output(Topic.INBOX, pile.partition, None, _encode(record), [], self._offset)
        )

    def _finish(self) -> list[Output]:
        if self._piles:
            for incarnation, pile in self._piles.items():
                self._seal(incarnation, pile)
            self._piles = {}
        out, self._out = self._out, []
        return out

    # --- results, dead letters ------------------------------------------------------------------

    def _fact(self, index: int) -> str:
        return f"{self._offset}.{index}"

    def _success(self, fact: Succeeded, task: Task, index: int) -> None:
        result = results.succeeded(
            fact.id,
            attempt=fact.attempt,
            result=fact.result,
            started=fact.started,
            finished=fact.finished,
            fact=self._fact(index),
        )
        self._result(task.sub.reply, result)

    def _result(self, partition: int | None, result: results.Result) -> None:
        key, value = results.encode(result)
        self._out.append(Output(Topic.RESULTS, partition, key, value, [], self._offset))

    def _ending(self, fact: Died | Discarded | Cancelled, task: Task, index: int) -> None:
        sub = task.sub
        state, reason, error = _words(fact)
        if sub.reply is not None:
            ended = results.ended(
                sub.id,
                state,
                reason=reason,
                error=error,
                fact=self._fact(index),
                attempt=fact.attempt,
            )
            self._result(sub.reply, ended)
        if type(fact) is Died:
            letter = deadletters.DeadLetter(
                reason=reason,
                error=error,
                fact=self._fact(index),
                origin=sub.origin,
                value=sub.value,
                key=sub.key,
                headers=sub.headers,
                last=self._at,
                id=sub.id,
                task=sub.task,
                attempts=fact.attempt,
            )
            self._bury(letter)

    def _rejection(self, fact: Rejected, index: int) -> None:
        if fact.reply is not None and fact.id is not None:
            ended = results.ended(
                fact.id,
                "rejected",
                reason=fact.reason,
                error=fact.detail,
                fact=self._fact(index),
                retry_after=fact.retry_after,
            )
            self._result(fact.reply, ended)
        letter = deadletters.DeadLetter(
            reason=fact.reason,
            error=fact.detail,
            fact=self._fact(index),
            origin=fact.origin,
            value=fact.value,
            key=fact.key,
            headers=fact.headers,
            last=self._at,
            id=fact.id,
            size=fact.size,
            sha256=fact.sha256,
        )
        self._bury(letter)

    def _refusal(self, fact: Refused, index: int) -> None:
        letter = deadletters.DeadLetter(
            reason=fact.reason,
            error=fact.detail,
            fact=self._fact(index),
            origin=fact.origin,
            value=fact.value,
            key=None,
            headers=[],
            last=self._at,
            size=fact.size,
            sha256=fact.sha256,
        )
        self._bury(letter)

    def _bury(self, letter: deadletters.DeadLetter) -> None:
        key, value, headers = deadletters.encode(letter)
        self._out.append(Output(Topic.DEAD, None, key, value, headers, self._offset))

    # --- checkpoint -----------------------------------------------------------------------------

    def _checkpoint(
        self, cause: Checkpointed | Positioned | Tombstones, about: list[Task] | None
    ) -> None:
        if isinstance(cause, Checkpointed):
            # A task that ended since needs no record: its end stands in the log behind this fact.
            for task in about or ():
                if task.phase != ENDED:
                    self._entry(task.sub.id.encode(), _encode(keep(task, self._as_of)))
        elif isinstance(cause, Positioned):
            self._entry(POSITION_KEY, _encode(cause.position))
        else:
            for id_ in cause.ids:
                self._entry(id_.encode(), None)

    def _entry(self, key: bytes, value: bytes | None) -> None:
        self._out.append(Output(Topic.CHECKPOINT, None, key, value, [], self._offset))


def _words(fact: Died | Discarded | Cancelled) -> tuple[str, str, str]:
    """State, reason and error of a task that ended without success, in the words of users."""
    if type(fact) is Died:
        return "dead", fact.reason, fact.error
    if type(fact) is Discarded:
        return "failed", "discarded", fact.reason
    return "cancelled", "cancelled", fact.reason
