"""When a partition counts as standing still although records wait in it.

Seen with librdkafka 2.16 on a starved machine and a topic a second old: a client fetched nothing
any more, or stopped after two records, for as long as it was watched, while its own questions
were answered and no error was shown. Here is the judgement, without a client or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zkcoord.kafka.record import END, Partition

STALL_S = 3.0

_UNRESOLVED_S = 1.0
_ASK_EVERY_S_MAX = 30.0
_AGAIN_S_MAX = 300.0


class Stalled(NamedTuple):
    """A partition to be read anew from `offset`, the `times`-th time at this position."""

    place: Partition
    position: int
    end: int
    offset: int
    times: int


class Standstill:
    """Judges from positions and end offsets which partitions stand still.

    The reader's client tells when it reaches a partition's end, so a position that lies before the
    end (for ``read_committed``: before the first open transaction) means unread records. Neither
    transaction markers nor holes left by compaction look like that. A partition is stalled when
    two answers, at least `stall_s` apart, found records beyond the same position, both times with
    nothing fetched in the reader's hands.

    A reader that is not asked to read is not judged: whoever drives this calls it from reads, when
    all that was fetched is read; a delay of that beyond `stall_s` makes the suspicion begin anew.

    Args:
        stall_s: seconds of standing still; also how often the brokers are asked at most, save for
            a start at END: until an end is known it is asked for each second, from the first reads
            on, so that no record that comes after it is skipped.
    """

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self.due = 0.0
        self._seen: dict[Partition, int] = {}
        self._suspects: dict[Partition, tuple[int, float]] = {}
        self._repeats: dict[Partition, tuple[int, int, float]] = {}
        self._starts: dict[Partition, int] = {}
        self._failed = 0

    def assigned(self, positions: Mapping[Partition, int], now: float) -> None:
        """Begin anew with these positions."""
        self._seen = dict(positions)
        self._suspects = {}
        self._repeats = {}
        self._starts = {}
        self._failed = 0
        self.due = now if END in positions.values() else now + self._stall_s

    def starts(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        """The same positions, with END replaced by the end as it was when it was first asked."""
        return {
            place: self._starts.get(place, at) if at == END else at
            for place, at in positions.items()
        }

    def still(self, positions: Mapping[Partition, int], now: float) -> list[Partition]:
        """The partitions that have not moved since the last call: their ends are to be asked."""
        if now - self.due > self._stall_s:
            self._suspects = {}
        self.due = now + self._stall_s
        still = [place for place, at in positions.items() if self._seen.get(place) == at]
        self._seen = dict(positions)
        return still

    def seen(self, place: Partition) -> int | None:
        """The position that the last :meth:`still` went by."""
        return self._seen.get(place)

    def unanswered(self, now: float) -> None:
        """The question failed: ask more and more rarely, for asking blocks."""
        self._failed += 1
        if any(self._unresolved(place) for place in self._seen):
            self.due = now + min(_UNRESOLVED_S, self._stall_s) * min(self._failed, 10)
        else:
            self.due = now + min(_ASK_EVERY_S_MAX, self._stall_s * 2 ** min(self._failed, 10))
        self._suspects = {}

    def judge(self, ends: Mapping[Partition, int], now: float) -> list[Stalled]:
        """What stands still, given the ends of partitions that :meth:`still` named."""
        self._failed = 0
        found = []
        for place in self._seen.keys() - ends.keys():
            self._suspects.pop(place, None)
        for place, end in ends.items():
            position = self._seen[place]
            start = self._starts.setdefault(place, end) if position == END else position
            if end <= max(start, 0):
                self._suspects.pop(place, None)
                continue
            suspected, since = self._suspects.get(place, (position, now))
            if suspected != position:
                since = now
            self._suspects[place] = (position, since)
            if now - since < self._stall_s:
                continue
            at, times, again = self._repeats.get(place, (position, 0, 0.0))
            if at != position:
                times, again = 0, 0.0
            if now < again:
                continue
            times += 1
            pause = min(_AGAIN_S_MAX, self._stall_s * 2 ** min(times, 10))
            # An unresolved END is from now on a position like any other.
            self._repeats[place] = (start, times, now + pause)
            self._seen[place] = start
            self._suspects[place] = (start, now)
            found.append(Stalled(place, position, end, start, times))
        return found

    def _unresolved(self, place: Partition) -> bool:
        return self._seen[place] == END and place not in self._starts
