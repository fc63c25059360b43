"""The demo's report: computed from the queue's log and the agents' ledgers, nothing else.

Definitions, so that the figures can be argued with:

* *latency* is the run of the attempt that succeeded, from its start to its end in the handler;
  *turnaround* is from the broker's timestamp of the submitted record to that end.
* *efficiency* is busy slot-time over available slot-time while work was waiting: an instant counts
  when at least one task could start and had not; a slot is available while its agent lives, and
  busy while an attempt runs on it.
* *lost* tasks were submitted and have no terminal fact; *doubled* tasks have two.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from zkcoord.core import records as r

CLASS_NAMES = tuple(p.name.lower() for p in r.Priority)


@dataclass(slots=True)
class Story:
    """What the log says of one task."""

    id: str
    task: str
    priority: int
    submitted: float
    waits: list[tuple[float, float]] = field(default_factory=list)  # could start, had not
    attempts: int = 0
    reasons: list[str] = field(default_factory=list)  # why each repeated attempt was repeated
    terminals: list[str] = field(default_factory=list)
    died_of: str = ""
    started: float = 0.0
    finished: float = 0.0
    _ready: float | None = None

    @property
    def running(self) -> bool:
        """Whether an attempt is with an agent."""
        return not self.terminals and self._ready is None

    def ready(self, at: float) -> None:
        """The task could start from `at` on."""
        self._ready = at

    def dispatched(self, at: float) -> None:
        """An attempt was given to an agent at `at`."""
        if self._ready is not None:
            self.waits.append((min(self._ready, at), at))
        self._ready = None
        self.attempts += 1


@dataclass(slots=True)
class History:
    """The log as the report needs it."""

    stories: dict[str, Story] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    dispatches: list[tuple[float, int, str, int]] = field(default_factory=list)
    terms: list[tuple[int, str]] = field(default_factory=list)  # (term, leader), in order
    superseded: int = 0


def tell(history: History, batch: r.Batch) -> None:
    """Fold one batch, which must not be void."""
    for fact in batch.facts:
        _tell(history, batch, fact)


def _tell(history: History, batch: r.Batch, fact: r.Fact) -> None:
    at = batch.at
    match fact:
        case r.TermOpened():
            history.terms.append((batch.term, fact.leader))
        case r.Accepted(task=task):
            story = Story(task.id, task.task, task.priority, task.origin.timestamp)
            story.ready(max(at, fact.due))
            history.stories[task.id] = story
        case r.Rejected():
            history.rejected[fact.reason] += 1
        case r.Superseded():
            history.superseded += 1
        case _:
            story_or_none = history.stories.get(getattr(fact, "id", ""))
            if story_or_none is not None:
                _turn(history, story_or_none, batch, fact)


def _turn(history: History, story: Story, batch: r.Batch, fact: r.Fact) -> None:
    match fact:
        case r.Dispatched():
            story.dispatched(batch.at)
            history.dispatches.append((batch.at, batch.term, fact.id, fact.attempt))
        case r.Retrying():
            story.reasons.append(_cause(fact.error))
            story.ready(max(batch.at, fact.due))
        case r.Released():
            story.reasons.append(fact.reason)
            story.ready(batch.at)
        case r.Succeeded():
            story.terminals.append("succeeded")
            story.started, story.finished = fact.started, fact.finished
        case r.Died():
            story.terminals.append("dead")
            story.died_of = fact.reason
        case r.Discarded():
            story.terminals.append("failed")
        case r.Cancelled():
            story.terminals.append("cancelled")
        case _:
            pass


def _cause(error: str) -> str:
    """The short form of why an attempt is repeated."""
    return error.partition(":")[0].strip() or "error"


def distribution(values: Sequence[float], scale: float = 1000.0) -> dict[str, float | None]:
    """Mean, p50, p95, p99 and max of `values` (seconds), in milliseconds; None without values."""
    if not values:
        return dict.fromkeys(("mean", "p50", "p95", "p99", "max"))
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    figures = {
        "mean": statistics.fmean(ordered),
        "p50": at(0.50),
        "p95": at(0.95),
        "p99": at(0.99),
        "max": ordered[-1],
    }
    return {name: round(value * scale, 1) for name, value in figures.items()}


def efficiency(
    waits: Iterable[tuple[float, float]],
    busy: Iterable[tuple[float, float]],
    available: Iterable[tuple[float, float, int]],
) -> float:
    """Busy over available slot-time while at least one task waited; 1.0 when none ever did.

    Args:
        waits: intervals in which a task could start and had not.
        busy: intervals in which an attempt ran.
        available: intervals in which an agent lived, with its number of slots.
    """
    edges: list[tuple[float, int, int]] = []
    for begin, end in waits:
        edges += [(begin, 0, 1), (end, 0, -1)]
    for begin, end in busy:
        edges += [(begin, 1, 1), (end, 1, -1)]
    for begin, end, slots in available:
        edges += [(begin, 2, slots), (end, 2, -slots)]
    edges.sort()
    level = [0, 0, 0]
    last = used = offered = 0.0
    for at, kind, step in edges:
        if level[0] > 0:
            used += (at - last) * min(level[1], level[2])
            offered += (at - last) * level[2]
        level[kind] += step
        last = at
    return used / offered if offered > 0 else 1.0


def leader_gap(dispatches: Sequence[tuple[float, int, str, int]], killed_at: float) -> float | None:
    """Seconds from the leader's death to the first dispatch of a later term; None without one."""
    before = max((term for at, term, _, _ in dispatches if at <= killed_at), default=0)
    after = [at for at, term, _, _ in dispatches if term > before and at >= killed_at]
    return min(after) - killed_at if after else None
