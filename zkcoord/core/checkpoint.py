"""When tasks get a checkpoint record, and from where a cold fold may start.

A task that is still live some time after it was accepted, or after it changed since its last
record, is checkpointed. Tasks that end sooner never touch the checkpoint topic.

A *mark* is a log offset with everything that stood there but the tasks. It becomes the checkpoint's
position P once a fold from P over the checkpoint gives the same as a fold of the whole log:

1. every live task accepted or changed before P has a record that shows it as it was at P or later.
   Changes that a record shows already are skipped by the fold (`as_of`);
2. tasks accepted before P that ended at or after P without a record are of no consequence: the
   outputs of their end are acknowledged;
3. tasks that ended before P while their tombstones were not yet due are named in the position.

So a mark first *ripens*, when (1) holds for what was decided; the log's end is noted. When the
watermark has passed that end, the records of (1) are written and the outputs of (2) acknowledged:
it may be published. Both conditions hold for ever after.
"""

from __future__ import annotations

from collections import deque

import msgspec

from zkcoord.core.records import Position
from zkcoord.core.state import State

MARKS_MAX = 16
ENDED_MAX = 1000
"""Tasks that a position may name; while more wait for their tombstones none is made."""
RECORDS_MAX = 500
RECORDS_BYTES_MAX = 8 * 1024 * 1024
"""What one decision checkpoints, at most roughly."""


class Mark(msgspec.Struct):
    """A candidate for the checkpoint's position; `ripe_at` is the log's end when it ripened."""

    position: Position
    ripe_at: int = -1


class Planner:
    """Decides about checkpoint records and positions. Soft state of one leader.

    Args:
        after_s: how long a change may be without a record.
        every_s: how often a mark is made.

    Attributes:
        is_idle: nothing but checkpoint records and positions was decided since the last mark.
    """

    def __init__(self, after_s: float, every_s: float) -> None:
        self._after_s = after_s
        self._every_s = every_s
        self._marks: deque[Mark] = deque()
        self._marked_at = float("-inf")
        self._times: deque[tuple[float, int]] = deque()
        self._old = -1
        self.is_idle = False

    def note(self, at: float, offset: int) -> None:
        """Our batch at log offset `offset`, decided at `at`, was read back.

        Remembers about when each offset was, one sample a second.
        """
        if not self._times or at - self._times[-1][0] >= min(1.0, self._after_s / 8):
            self._times.append((at, offset))

    def wants_mark(self, state: State, now: float) -> bool:
        """Whether it is time for another mark."""
        return (
            now - self._marked_at >= self._every_s
            and not self.is_idle
            and len(self._marks) < MARKS_MAX
            and len(state.ended) <= ENDED_MAX
        )

    def mark(self, position: Position, now: float) -> None:
        """The fold may start at `position`, the log's end, once that ripens."""
        self._marked_at = now
        self.is_idle = True
        self._marks.append(Mark(position))

    def due(self, state: State, now: float) -> list[str]:
        """Tasks to checkpoint now: those longest without a true record."""
        while self._times and self._times[0][0] <= now - self._after_s:
            self._old = self._times.popleft()[1]
        found: list[str] = []
        size = 0
        for id_, task in state.young.items():
            if task.stale > self._old or len(found) >= RECORDS_MAX or size >= RECORDS_BYTES_MAX:
                break
            if id_ not in state.ended:  # an earlier task of this id still has a record to bury
                found.append(id_)
                size += task.size
        return found

    def ripen(self, state: State, end: int) -> None:
        """Look which marks have ripened; `end` is the log's end. Nothing in flight."""
        if not any(mark.ripe_at < 0 for mark in self._marks):
            return
        first = next(iter(state.young.values()), None)
        oldest = end if first is None else first.stale
        for mark in self._marks:
            if mark.ripe_at < 0 and oldest >= mark.position.offset:
                mark.ripe_at = end

    def publish(self, sent: int) -> Position | None:
        """The latest mark that may be published under the watermark `sent`, taken out."""
        found = None
        while self._marks and 0 <= self._marks[0].ripe_at <= sent:
            found = self._marks.popleft().position
        return found
