"""What an agent makes of its inbox: which orders are new, which are repeats, which are not its own.

An inbox partition outlives the agents that claim it, a take-over re-sends what the old leader may
have sent, and a deposed leader may still write. So nothing in an inbox is taken at face value:

- a record for another queue or another *incarnation* of the partition's agent is dropped;
- a record of a lower *term* than one seen before is dropped;
- an order is new when it is newer than everything known of **its own task**, by (fence, attempt).
  Never by a position in the partition: a re-sent order that was lost the first time stands behind
  orders that arrived, and must still run;
- a new term, a hole in the sequence of a term, an unreadable record, or a cancellation of
  something never seen makes the agent answer with all it has (:class:`~.records.DidHave`).

The rules are pure: no clock, no I/O. One instance serves one incarnation and one thread at a time.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from zkcoord.core.records import Cancel, Inbox, Run

RECENT = 65_536
"""How many ended attempts are remembered at least. A leader re-sends only what stands behind its
watermark, which trails by a few batches, so this is far more than it can repeat."""


class Drop(Enum):
    """Why a whole record was not obeyed."""

    QUEUE = "another queue"
    EARLIER = "an earlier incarnation"
    LATER = "a later incarnation: this one's claim is gone"
    TERM = "a deposed leader's term"


class Decision(msgspec.Struct, gc=False):
    """What one inbox record asks of the agent.

    Attributes:
        run: attempts to start, in the order given; they count as held from now on.
        cancel: cancellations of attempts that the agent holds.
        repeated: (id, attempt) of orders that the agent holds already; tell the leader that they
            arrived.
        superseded: (id, attempt) held, of which a newer attempt has just arrived; stop them, their
            outcome no longer counts.
        have: answer with all attempts held: the leader may be wrong about them.
        last: no order follows: the leader knows that the agent drains.
        dropped: why the record was not obeyed, or None.
    """

    run: list[Run]
    cancel: list[Cancel]
    repeated: list[tuple[str, int]]
    superseded: list[tuple[str, int]]
    have: bool
    last: bool = False
    dropped: Drop | None = None


class InboxRules:
    """Decides for each inbox record of one incarnation what is new in it.

    Memory is bounded: the attempts held (the agent bounds those), and between `recent` and twice
    `recent` ended ones. An attempt that ended longer ago than that would run again if it were
    re-sent; its report would be superseded.
    """

    def __init__(self, queue: str, incarnation: int, *, recent: int = RECENT) -> None:
        self._queue = queue
        self._incarnation = incarnation
        self._recent = recent
        self._term = -1
        self._next = 0
        self._held: dict[str, tuple[int, int]] = {}  # id -> (fence, attempt)
        # Two generations stand in for an LRU: insertion and eviction cost one dict operation.
        self._young: dict[str, tuple[int, int]] = {}
        self._old: dict[str, tuple[int, int]] = {}

    @property
    def incarnation(self) -> int:
        """The incarnation these rules serve."""
        return self._incarnation

    @property
    def term(self) -> int:
        """The highest term seen, or -1 before the first record."""
        return self._term

    def take(self, record: Inbox) -> Decision:
        """Decide about one record. Its new attempts count as held until :meth:`ended`."""
        decision = Decision([], [], [], [], have=False)
        decision.dropped = self._refuse(record)
        if decision.dropped is not None:
            return decision
        decision.have = self._follow(record.term, record.seq)
        decision.last = record.last
        for order in record.orders:
            if type(order) is Run:
                self._run(order, decision)
            elif type(order) is Cancel:
                self._cancel(order, decision)
        return decision

    def ended(self, task_id: str, attempt: int, fence: int) -> None:
        """The attempt is over, whatever its outcome; a repeat of it will be dropped."""
        known = self._held.get(task_id)
        if known != (fence, attempt):
            return  # a newer attempt has taken its place and is what must be remembered
        del self._held[task_id]
        if len(self._young) >= self._recent:
            self._old = self._young
            self._young = {}
        self._young[task_id] = known

    def holds(self, task_id: str, attempt: int) -> bool:
        """Whether the attempt arrived and has not ended."""
        known = self._held.get(task_id)
        return known is not None and known[1] == attempt

    def held(self) -> list[tuple[str, int]]:
        """All attempts that arrived and have not ended, for a :class:`~.records.DidHave`."""
        return [(task_id, known[1]) for task_id, known in self._held.items()]

    def _refuse(self, record: Inbox) -> Drop | None:
        if record.queue != self._queue:
            return Drop.QUEUE
        if record.incarnation != self._incarnation:
            return Drop.LATER if record.incarnation > self._incarnation else Drop.EARLIER
        return Drop.TERM if record.term < self._term else None

    def _follow(self, term: int, seq: int) -> bool:
        """Follow the sequence; whether the leader needs to hear what the agent holds."""
        if term > self._term:
            self._term = term
            self._next = seq + 1
            return True
        hole = seq > self._next
        self._next = max(self._next, seq + 1)  # a repeated record must not look like a hole later
        return hole

    def _known(self, task_id: str) -> tuple[int, int] | None:
        known = self._held.get(task_id)
        if known is None:
            known = self._young.get(task_id)
            if known is None:
                known = self._old.get(task_id)
        return known

    def _run(self, order: Run, decision: Decision) -> None:
        mark = (order.fence, order.attempt)
        known = self._known(order.id)
        if known is None or mark > known:
            held = self._held.get(order.id)
            if held is not None:
                decision.superseded.append((order.id, held[1]))
            self._held[order.id] = mark
            decision.run.append(order)
        elif self._held.get(order.id) == mark:
            decision.repeated.append((order.id, order.attempt))

    def _cancel(self, order: Cancel, decision: Decision) -> None:
        known = self._held.get(order.id)
        if known is not None and known[1] == order.attempt:
            decision.cancel.append(order)
        elif self._known(order.id) is None:
            decision.have = True  # its order was lost on the way, or is long forgotten
