"""The leader's loop: read inputs, decide, append, read back, send, hear, and again.

One thread runs it. It never waits for anything but the log and, when idle, for the next input:

- while a batch is on its way to the log, inputs for the next one are read and parsed;
- when the batch is read back its outputs are sent; nothing is sent before;
- acknowledgements move the watermark, which travels in the next batch;
- checkpoint, trimming and pressure have threads of their own, so none of them can delay dispatch.

The loop ends when the process is asked to stop, when the lease is no longer believed, or when a
higher term stands in the log. Safety does not hang on noticing in time: what a deposed leader
appends is void, and it sends only what it has read back as not void.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum

import msgspec

from zkcoord.core.attributes import Limits
from zkcoord.core.inputs import Inputs
from zkcoord.core.leader import Leader
from zkcoord.core.records import Origin, Source
from zkcoord.errors import Deposed
from zkcoord.kafka import LogReader, Record
from zkcoord.queue.appending import Appending
from zkcoord.queue.delivery import Delivery
from zkcoord.queue.duty import Duty
from zkcoord.queue.intake import Intake
from zkcoord.queue.roster import Roster
from zkcoord.queue.upkeep import Upkeep
from zkcoord.recipes import Lease

log = logging.getLogger("zkcoord.queue")

READ_LIMIT = 200
LOG_WAIT_S = 0.002
"""For the batch under way: the read ends when it arrives; this bounds the wait for the rest."""
IDLE_WAIT_S = 0.001
IDLE_WAIT_S_MAX = 0.004
"""Idle, inputs are looked at this often; the wait grows from the lower to the upper bound.

The client knows no time below a millisecond. Measured: 5 % of a core at the lower bound, 1.8 % at
the upper.
"""
CYCLE_S = 0.005
PACE_S = 0.005
BUSY_INPUTS = 24
"""After a batch of so many inputs the next is decided no sooner than `PACE_S` after it: under load
the cost of a task is mostly its share of the requests that a batch makes at broker and receivers.
"""
DENSE_S = 0.005
DENSE_PACE_S = 0.004
"""Batches that would follow one another within `DENSE_S` keep `DENSE_PACE_S` apart. Measured at 500
tasks a second: half the batches, a tenth less work for the brokers, the same delays.
"""
BUDGET_MIN = 64
BUDGET_MAX = 2000
"""Inputs per batch adapt within these so that one decision takes about `CYCLE_S`."""
REPORTS_MAX = 256
CONTROL_MAX = 64
FINISH_S = 2.0
"""How long a leader that resigns waits for its last batch and its outputs."""


class Ending(Enum):
    """Why a leadership ended."""

    RESIGNED = "resigned"
    LEASE = "lease lost"
    DEPOSED = "deposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the loop works with, made ready by :func:`~.takeover.take_over`."""

    leader: Leader
    reader: LogReader
    appending: Appending
    delivery: Delivery
    intake: Intake
    roster: Roster
    upkeep: Upkeep


class Leading:
    """One term of leadership of one queue, from its opening read back to its end.

    Args:
        duty: the queue, and how this process serves it.
        lease: of the election; its token is the term.
        means: what the loop works with.
        closing: frees the means; run by :meth:`close`.
    """

    def __init__(self, duty: Duty, lease: Lease, means: Means, closing: ExitStack) -> None:
        self._closing = closing
        self._duty = duty
        self._lease = lease
        self._leader = means.leader
        self._reader = means.reader
        self._appending = means.appending
        self._delivery = means.delivery
        self._intake = means.intake
        self._roster = means.roster
        self._upkeep = means.upkeep
        self._limits = msgspec.structs.replace(
            Limits(), value_bytes_max=duty.description.config.value_bytes_max
        )
        self._inputs = Inputs()
        self._now = time.time()
        self._active = time.monotonic()
        self._next_timer = 0.0
        self._budget = 256
        self._not_before = 0.0
        self._decided = 0.0

    def run(self) -> Ending:
        """Lead until the end.

        Raises:
            RecordsTrimmed: inputs were deleted before they were read.
            DecodeError: the log holds what no release known here wrote.
        """
        try:
            while True:
                if not believes(self._lease):
                    return Ending.LEASE
                if self._duty.stopping():
                    self._finish()
                    return Ending.RESIGNED
                self._cycle()
        except Deposed:
            return Ending.DEPOSED

    def close(self) -> None:
        """Free everything. Call it after the lease was released: it may take a moment."""
        self._closing.close()

    def _cycle(self) -> None:
        leader = self._leader
        self._serve()
        if leader.in_flight is not None:
            if self._inputs.size < self._budget:
                self._take_inputs()
            self._follow(LOG_WAIT_S)
            return
        changed = self._roster.apply(leader)
        self._upkeep.tick(leader, self._intake, self._delivery, self._now)
        if self._delivery.is_full:
            self._hear(0.002)
            return
        self._delivery.send(leader.reminders(self._now))
        fresh = self._take_inputs()
        now = time.monotonic()
        wanted = fresh or changed or self._inputs.size or now >= self._next_timer
        if wanted and now < self._not_before and self._inputs.size < self._budget:
            self._follow(self._not_before - now)
            return
        if wanted and self._decide(now):
            self._active = now
            return
        # Nothing under way: whatever the log brings now is another leader's.
        self._follow(self._idle_wait(now))

    def _decide(self, began: float) -> bool:
        """Decide and append; whether there was anything to decide."""
        leader = self._leader
        self._now = max(self._now, time.time())
        size = self._inputs.size
        value = leader.decide(self._inputs, self._now)
        if value is not None:
            self._appending.append(value)
        ended = time.monotonic()
        if size >= BUSY_INPUTS:
            self._not_before = began + PACE_S
        elif began - self._decided < DENSE_S:
            self._not_before = began + DENSE_PACE_S
        else:
            self._not_before = 0.0
        self._decided = began
        self._next_timer = ended + leader.due(self._now)
        if size >= self._budget // 2:
            # A step towards the number of inputs that takes CYCLE_S.
            fitting = size * CYCLE_S / max(ended - began, 1e-6)
            self._budget = round(
                min(BUDGET_MAX, max(BUDGET_MIN, 0.8 * self._budget + 0.2 * fitting))
            )
        return value is not None

    def _serve(self) -> None:
        self._appending.serve()
        self._hear(0.0)

    def _hear(self, timeout: float) -> None:
        for offset in self._delivery.serve(timeout):
            self._leader.acknowledged(offset)

    def _follow(self, timeout: float) -> None:
        """Read the log; send what it allows."""
        leader = self._leader
        for record in self._reader.read(READ_LIMIT, timeout):
            outputs = leader.feed(record.offset, record.value or b"")
            if leader.in_flight is None:
                self._appending.landed()
            if outputs:
                self._delivery.send(outputs)
            self._upkeep.note_batch(self._now, record.offset)

    def _take_inputs(self) -> bool:
        """Read and parse inputs, within the budget and the leader's room."""
        inputs, intake = self._inputs, self._intake
        before = inputs.size
        if len(inputs.reports) < REPORTS_MAX:
            self._take(Source.REPORTS, intake.reports(REPORTS_MAX))
        if len(inputs.controls) < CONTROL_MAX:
            self._take(Source.CONTROL, intake.control(CONTROL_MAX))
        waiting = sum(map(len, inputs.tasks))
        if waiting < self._budget:
            room = self._leader.room()
            left = [most - len(held) for most, held in zip(room, inputs.tasks, strict=True)]
            for source, records in intake.tasks(self._budget - waiting, left):
                self._take(source, records)
        return inputs.size > before

    def _take(self, source: Source, records: list[Record]) -> None:
        take, limits = self._inputs.take, self._limits
        for _, partition, offset, timestamp, key, value, headers in records:
            take(Origin(source, partition, offset, timestamp), key, value, headers, limits=limits)

    def _idle_wait(self, now: float) -> float:
        idle = now - self._active
        return max(IDLE_WAIT_S, min(idle / 8, IDLE_WAIT_S_MAX, self._next_timer - now))

    def _finish(self) -> None:
        """Let the batch under way land and its outputs go out, within bounds."""
        deadline = time.monotonic() + FINISH_S
        while time.monotonic() < deadline and believes(self._lease):
            self._serve()
            if self._leader.in_flight is not None:
                self._follow(LOG_WAIT_S)
            elif self._delivery.unacknowledged:
                self._hear(0.002)
            else:
                return


def believes(lease: Lease) -> bool:
    """Whether the lease is still ours as far as can be known without asking."""
    return not lease.lost.is_set() and lease.valid_for() > 0
