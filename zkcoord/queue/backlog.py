"""Attempts that wait for a slot in their agent: highest class first, in order of arrival."""

from __future__ import annotations

from collections import deque

from zkcoord.core.records import Priority
from zkcoord.queue.attempt import Attempt


class Backlog:
    """Four queues, one per class. Attempts that ended while they waited are skipped.

    A leader gives an agent hardly more than its slots, so this is short; it fills when a handler
    does not stop in time and keeps its slot, or when a new leader counts differently.
    """

    def __init__(self) -> None:
        self._classes: list[deque[Attempt]] = [deque() for _ in Priority]
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, attempt: Attempt) -> None:
        """Let it wait."""
        self._classes[min(max(attempt.order.priority, 0), 3)].append(attempt)
        self._size += 1

    def removed(self) -> None:
        """One that waits was marked as ended."""
        self._size -= 1

    def next(self) -> Attempt | None:
        """The next to start, or None."""
        for waiting in self._classes:
            while waiting:
                attempt = waiting.popleft()
                if not attempt.ended:
                    self._size -= 1
                    return attempt
        return None

    def clear(self) -> list[Attempt]:
        """Empty it; returns what waited."""
        waited = [a for waiting in self._classes for a in waiting if not a.ended]
        for waiting in self._classes:
            waiting.clear()
        self._size = 0
        return waited
