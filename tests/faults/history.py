"""What a queue's log says happened, told by a reader that shares no code with `core`'s fold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from zkcoord.config import KafkaConfig
from zkcoord.core.records import (
    Accepted,
    Batch,
    Cancelled,
    Died,
    Discarded,
    Dispatched,
    Rejected,
    Succeeded,
)
from zkcoord.errors import BrokerUnavailable
from zkcoord.kafka import BEGINNING, LogReader

TERMINAL = {
    Succeeded: "succeeded",
    Died: "dead",
    Discarded: "failed",
    Cancelled: "cancelled",
    Rejected: "rejected",
}


class History:
    """Follows the log from its beginning.

    Attributes:
        ends: task id -> the terminal states found, in order; more than one is a violation.
        accepted: how often each id was accepted.
        dispatched: (id, attempt) of dispatches that are not void.
        terms: terms in the order of their openings.
        voids: terms of void records.
        violations: times or input offsets that fell.
        records: the raw records, with their offsets.
    """

    def __init__(self, config: KafkaConfig, topic: str) -> None:
        self._reader = LogReader(config, topic, client_id="test.history", offset=BEGINNING)
        self._last = (-1, -1)
        self.records: list[tuple[int, bytes]] = []
        self._at = 0.0
        self.ends: dict[str, list[str]] = {}
        self.accepted: Counter[str] = Counter()
        self.dispatched: set[tuple[str, int]] = set()
        self.terms: list[int] = []
        self.voids: list[int] = []
        self.violations: list[str] = []
        self._inputs: dict[tuple[int, int], int] = {}

    def update(self) -> None:
        """Read on to the end, or as far as a broker lets us."""
        try:
            for records in self._reader.read_to_end(20.0):
                for record in records:
                    value = record.value or b""
                    self.records.append((record.offset, value))
                    self._feed(record.offset, msgspec.msgpack.decode(value, type=Batch))
        except BrokerUnavailable:
            return  # it is asked again

    def close(self) -> None:
        self._reader.close()

    def states(self, ids: Iterable[str]) -> Counter[str]:
        """How many of `ids` ended in which state."""
        return Counter(state for task_id in ids for state in self.ends.get(task_id, ["live"]))

    def ended(self, ids: Iterable[str]) -> bool:
        return all(task_id in self.ends for task_id in ids)

    def _feed(self, offset: int, batch: Batch) -> None:
        term, n = self._last
        if (batch.term, batch.n) != (term, n + 1) and not (batch.term > term and batch.n == 0):
            self.voids.append(batch.term)
            return
        if batch.term > term:
            self.terms.append(batch.term)
        self._last = (batch.term, batch.n)
        if batch.at < self._at and batch.n > 0:  # an opening is written before the log is known
            self.violations.append(f"offset {offset}: time fell from {self._at} to {batch.at}")
        self._at = max(self._at, batch.at)
        for source, partition, following in batch.inputs:
            if following < self._inputs.get((source, partition), 0):
                self.violations.append(f"offset {offset}: inputs of {source} went back")
            self._inputs[source, partition] = following
        for fact in batch.facts:
            self._note(fact)

    def _note(self, fact: object) -> None:
        if isinstance(fact, Accepted):
            self.accepted[fact.task.id] += 1
        elif isinstance(fact, Dispatched):
            self.dispatched.add((fact.id, fact.attempt))
        elif type(fact) in TERMINAL:
            task_id = getattr(fact, "id", None)
            if task_id is not None:
                self.ends.setdefault(task_id, []).append(TERMINAL[type(fact)])
