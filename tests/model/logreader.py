"""An independent reader of a queue's log, for tests.

It shares nothing with the product: msgpack is decoded into plain lists, the void rule and the fold
are written again from the design. :func:`check_log` is given the raw records and says what it found
wrong; fault tests read a real topic and ask it.

Checked, of what is not void: one terminal fact per accepted task; attempts numbered without a gap,
one at a time; input offsets that never fall and stand in the same record as the facts that came
from them; openings that carry nothing; time and watermark that never fall.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

# Tags of facts, from the format.
OPENED, ACCEPTED, REJECTED, DUPLICATE, DISPATCHED, STARTED, SUCCEEDED, RETRYING = range(1, 9)
RELEASED, DIED, DISCARDED, CANCEL_ASKED, CANCELLED, SUPERSEDED, REPRIORITIZED = range(9, 16)
PAUSED, CHECKPOINTED, POSITIONED, REFUSED = range(16, 20)
TERMINAL = {
    SUCCEEDED: "succeeded",
    DIED: "dead",
    DISCARDED: "failed",
    CANCELLED: "cancelled",
}


@dataclass
class Life:
    """One accepted task."""

    id: str
    accepted: int  # log offset
    at: float
    submitted: float
    task: str
    priority: int
    reply: int | None
    attempt: int = 0
    holder: tuple[int, int] | None = None  # partition, incarnation of the running attempt
    dispatches: list[tuple[int, int, int, int, float]] = field(default_factory=list)
    ends: list[tuple[str, int, int, float]] = field(
        default_factory=list
    )  # state, offset, index, at
    started: float | None = None
    retries: int = 0
    releases: list[str] = field(default_factory=list)


@dataclass
class Findings:
    """What a log says, and what is wrong with it.

    Attributes:
        problems: violations, in words.
        lives: every accepted task, by (id, log offset of its acceptance).
        lost: accepted without a terminal fact. Empty is right only when the queue is at rest.
        doubled: with more than one.
        voids: log offsets of void records.
        terms: (term, log offset, leader).
        origins: (source, partition, offset) of input records that facts say they came from.
        facts: (log offset, index) -> (tag, id) of the facts that are not void.
        dispatched: (id, attempt, incarnation) of every dispatch that is not void.
    """

    problems: list[str] = field(default_factory=list)
    lives: dict[tuple[str, int], Life] = field(default_factory=dict)
    voids: list[int] = field(default_factory=list)
    terms: list[tuple[int, int, str]] = field(default_factory=list)
    origins: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    facts: dict[tuple[int, int], tuple[int, Any]] = field(default_factory=dict)
    dispatched: set[tuple[str, int, int]] = field(default_factory=set)
    inputs: dict[tuple[int, int], int] = field(default_factory=dict)
    superseded: int = 0
    rejected: int = 0
    duplicates: int = 0
    refused: int = 0

    @property
    def lost(self) -> list[tuple[str, int]]:
        return [key for key, life in self.lives.items() if not life.ends]

    @property
    def doubled(self) -> list[tuple[str, int]]:
        return [key for key, life in self.lives.items() if len(life.ends) > 1]

    def count(self, state: str) -> int:
        """How many tasks ended as `state`: succeeded, dead, failed or cancelled."""
        return sum(1 for life in self.lives.values() if life.ends and life.ends[0][0] == state)

    def latencies(self) -> list[float]:
        """Seconds from submission to the terminal fact, per task that ended."""
        return [life.ends[0][3] - life.submitted for life in self.lives.values() if life.ends]

    def delays(self) -> list[float]:
        """Seconds from submission to the first dispatch, per task that was dispatched."""
        return [
            life.dispatches[0][4] - life.submitted
            for life in self.lives.values()
            if life.dispatches
        ]


class _Reader:
    def __init__(self) -> None:
        self.found = Findings()
        self.live: dict[str, Life] = {}
        self.term = -1
        self.n = -1
        self.at = float("-inf")
        self.sent = -1

    def record(self, offset: int, value: bytes) -> None:
        version, term, n, at, inputs, sent, facts = msgspec.msgpack.decode(value)
        if version != 1:
            self.problem(offset, f"version {version}")
            return
        if term == self.term and n == self.n + 1:
            self.n = n
        elif term > self.term and n == 0:
            self.term, self.n = term, 0
            self.opening(offset, inputs, sent, facts)
        else:
            self.found.voids.append(offset)
            return
        is_opening = n == 0
        if at < self.at and not is_opening:  # an opening does not know yet what time it is
            self.problem(offset, f"time fell from {self.at} to {at}")
        self.at = max(self.at, at)
        if sent != -1:
            if sent < self.sent:
                self.problem(offset, f"watermark fell from {self.sent} to {sent}")
            if sent > offset:
                self.problem(offset, f"watermark {sent} lies beyond its own record")
            self.sent = sent
        before = dict(self.found.inputs)
        for source, partition, next_ in inputs:
            key = (source, partition)
            if next_ <= before.get(key, 0):
                self.problem(offset, f"input {key} went from {before.get(key)} to {next_}")
            self.found.inputs[key] = next_
        for index, (tag, *fields) in enumerate(facts):
            self.fact(offset, index, at, tag, fields, before)

    def opening(self, offset: int, inputs: list, sent: int, facts: list) -> None:
        if inputs or sent != -1 or len(facts) != 1 or facts[0][0] != OPENED:
            self.problem(offset, "an opening carries more than its name")
        self.found.terms.append((self.term, offset, facts[0][1] if facts else ""))

    def problem(self, offset: int, text: str) -> None:
        self.found.problems.append(f"log offset {offset}: {text}")

    def origin(self, offset: int, origin: list, before: dict) -> None:
        source, partition, place, _ = origin
        key = (source, partition)
        self.found.origins.setdefault((source, partition, place), []).append(offset)
        if not before.get(key, 0) <= place < self.found.inputs.get(key, 0):
            self.problem(
                offset,
                f"a fact from input {key} at {place}, but its record says {before.get(key)}"
                f" to {self.found.inputs.get(key)}",
            )

    def fact(self, offset: int, index: int, at: float, tag: int, f: list, before: dict) -> None:
        found = self.found
        id_ = f[0][0] if tag == ACCEPTED else f[0] if f and isinstance(f[0], str) else None
        found.facts[offset, index] = (tag, id_)
        if tag == ACCEPTED:
            self.accepted(offset, at, f, before)
        elif tag == REJECTED:
            found.rejected += 1
            self.origin(offset, f[0], before)
        elif tag == DUPLICATE:
            found.duplicates += 1
            self.origin(offset, f[1], before)
            if f[0] not in self.live:
                self.problem(offset, f"duplicate of {f[0]}, which is not live")
        elif tag == REFUSED:
            found.refused += 1
            self.origin(offset, f[0], before)
        elif tag == SUPERSEDED:
            found.superseded += 1
        elif tag in (OPENED, PAUSED, CHECKPOINTED, POSITIONED):
            pass
        else:
            life = self.live.get(f[0])
            if life is None:
                self.problem(offset, f"fact {tag} about {f[0]}, which is not live")
                self.doubly(f[0], tag, offset, index, at)
            else:
                self.about(offset, index, at, tag, f, life)

    def doubly(self, id_: str, tag: int, offset: int, index: int, at: float) -> None:
        """A terminal fact about a task that ended counts as its second."""
        earlier = [life for life in self.found.lives.values() if life.id == id_]
        if tag in TERMINAL and earlier:
            earlier[-1].ends.append((TERMINAL[tag], offset, index, at))

    def accepted(self, offset: int, at: float, f: list, before: dict) -> None:
        sub = f[0]
        self.origin(offset, sub[3], before)
        if sub[0] in self.live:
            self.problem(offset, f"{sub[0]} accepted while live")
        reply = sub[14] if len(sub) > 14 else None
        life = Life(sub[0], offset, at, sub[3][3], sub[1], sub[2], reply)
        self.live[sub[0]] = life
        self.found.lives[sub[0], offset] = life

    def about(self, offset: int, index: int, at: float, tag: int, f: list, life: Life) -> None:
        if tag == DISPATCHED:
            _, attempt, partition, incarnation = f
            if attempt != life.attempt + 1:
                self.problem(offset, f"{life.id}: attempt {attempt} after {life.attempt}")
            if life.holder is not None:
                self.problem(offset, f"{life.id}: dispatched while attempt {life.attempt} runs")
            life.attempt, life.holder = attempt, (partition, incarnation)
            life.dispatches.append((attempt, partition, incarnation, offset, at))
            self.found.dispatched.add((life.id, attempt, incarnation))
        elif tag in (STARTED, SUCCEEDED, RETRYING, RELEASED):
            if life.holder is None or f[1] != life.attempt:
                self.problem(offset, f"{life.id}: fact {tag} about attempt {f[1]}, not running")
            if tag == STARTED or (tag == SUCCEEDED and life.started is None):
                life.started = f[2] if tag == STARTED else f[3]
            if tag == RETRYING:
                life.retries += 1
            if tag == RELEASED:
                life.releases.append(f[2])
            if tag != STARTED:
                life.holder = None
        if tag in TERMINAL:
            life.ends.append((TERMINAL[tag], offset, index, at))
            del self.live[life.id]


def check_log(records: Iterable[tuple[int, bytes]]) -> Findings:
    """Read (offset, value) pairs of a whole log, from its first record."""
    reader = _Reader()
    for offset, value in records:
        reader.record(offset, value)
    found = reader.found
    found.problems += [f"{id_} has two terminal facts" for id_, _ in found.doubled]
    found.problems += [
        f"input record {origin} was decided at log offsets {offsets}"
        for origin, offsets in found.origins.items()
        if len(offsets) > 1
    ]
    return found
