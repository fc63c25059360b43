"""Lease arithmetic: until when may a client believe that its session lives?

A ZooKeeper server counts a session's time from the moment it *receives* something. A request that
was answered was received no earlier than it was sent, so the session cannot end before

    send time of the last acknowledged request + negotiated timeout.

The margin in front of that covers clock drift, the time to stop work and, on an ensemble, half a
tick: a follower tells the leader whom it has heard only that often.
Source: ``SessionTrackerImpl`` and ``Learner.ping`` of Apache ZooKeeper; expiry rounds up.

Nothing here reads a clock. Times are seconds of one clock that runs on while the machine sleeps.
"""

from __future__ import annotations


def valid_until(acknowledged: float, timeout: float, margin: float) -> float:
    """The moment up to which a session may be believed.

    Args:
        acknowledged: send time of the last acknowledged request.
        timeout: session timeout that the server granted.
        margin: how long before the earliest possible expiry to stop believing.
    """
    return acknowledged + timeout - margin


class Belief:
    """What one session may still believe. Once it is over it stays over.

    Attributes:
        acknowledged: send time of the latest request known to be answered.
        valid_until: see :func:`valid_until`; never moves back.
    """

    __slots__ = ("_ended", "acknowledged", "margin", "timeout", "valid_until")

    def __init__(self, acknowledged: float, timeout: float, margin: float) -> None:
        self.acknowledged = acknowledged
        self.timeout = timeout
        self.margin = margin
        self.valid_until = valid_until(acknowledged, timeout, margin)
        self._ended = False

    def acknowledge(self, sent: float, now: float) -> bool:
        """A request sent at `sent` was answered. False when the belief is over.

        An answer that comes after `valid_until` is too late: somebody may have acted on our
        silence already, so the belief ends instead of being renewed.
        """
        if self.over(now):
            return False
        if sent > self.acknowledged:
            self.acknowledged = sent
            self.valid_until = valid_until(sent, self.timeout, self.margin)
        return True

    def over(self, now: float) -> bool:
        """Whether the session can no longer be believed at `now`."""
        if now >= self.valid_until:
            self._ended = True
        return self._ended

    def end(self) -> None:
        """The session is known to be over, whatever the clock says."""
        self._ended = True

    def remaining(self, now: float) -> float:
        """Seconds of belief left at `now`; 0 when it is over."""
        return 0.0 if self.over(now) else self.valid_until - now
