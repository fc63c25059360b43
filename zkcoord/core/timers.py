"""Times at which something about a task falls due: a heap, cleaned lazily.

An entry names its task by id only, so that it keeps nothing alive, and is checked against the task
when it comes up. Entries of tasks that ended are swept when they outnumber the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Container
from typing import TypeAlias

DUE = 0
"""A task that waited may be dispatched."""
EXPIRE = 1
"""A task's deadline."""
GRACE = 2
"""An agent had its time to answer a cancellation."""

Timer: TypeAlias = tuple[float, str, int]


class Timers:
    """(time, task, kind), earliest first. O(log n) to add and to take."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[Timer] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, time: float, id_: str, kind: int) -> None:
        """Remember one."""
        heapq.heappush(self._heap, (time, id_, kind))

    def pop(self, now: float) -> Timer | None:
        """The earliest that is due, or None."""
        heap = self._heap
        return heapq.heappop(heap) if heap and heap[0][0] <= now else None

    def next(self) -> float | None:
        """When the earliest is due."""
        return self._heap[0][0] if self._heap else None

    def sweep(self, live: Container[str], count: int) -> None:
        """Drop the entries of tasks not in `live`, if there are many; `count` is its size."""
        if len(self._heap) > 4 * count + 1024:
            self._heap = [timer for timer in self._heap if timer[1] in live]
            heapq.heapify(self._heap)
