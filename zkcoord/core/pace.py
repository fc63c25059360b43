"""How fast a queue moves: estimated waits from the hand-offs that were seen.

Hand-offs are taken for events of constant rate, and the rate's maximum likelihood estimate is
their number over the time they were watched for, the time since the last one included: a holder
who stays long makes the estimate grow, as it should. Source: the censored exponential model,
Lawless, "Statistical Models and Methods for Lifetime Data", 2nd ed., §4.1.

Nothing here reads a clock.
"""

from __future__ import annotations

from collections import deque

WINDOW = 32


class Pace:
    """The last 32 times that one queue's head was seen to have moved on."""

    __slots__ = ("_moves", "_since")

    def __init__(self, now: float) -> None:
        self._moves: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._since = now

    def begin(self, now: float) -> None:
        """Nobody looked for a while: that time counts for nothing."""
        self._since = now

    def looked(self, now: float, departed: int) -> None:
        """The queue was looked at: so many have left its head since the look before."""
        if departed:
            self._moves.append((now - self._since, departed))
            self._since = now

    def interval(self, now: float) -> float | None:
        """Seconds from one hand-off to the next; None before the first was seen."""
        if not self._moves:
            return None
        watched = now - self._since + sum(seconds for seconds, _ in self._moves)
        return watched / sum(count for _, count in self._moves)

    def estimate(self, ahead: int, now: float) -> float | None:
        """Seconds until `ahead` contenders in front have gone; None when nothing is known."""
        interval = self.interval(now)
        return None if interval is None else ahead * interval


def departed(before: list[str], after: dict[str, int]) -> int:
    """How many have left the head between two looks.

    Args:
        before: nodes in order.
        after: the nodes there are now.
    """
    for gone, node in enumerate(before):
        if node in after:
            return gone
    return len(before)
