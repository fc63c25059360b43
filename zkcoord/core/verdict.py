"""Accept, slow down or reject: decided from a queue's published pressure, without a round trip.

Used at the edge by submitters and at intake for records whose producer could not ask.

A leader refreshes its pressure every few seconds even when nothing changes, so an older one means
that nobody leads just now, or that the watch is cut. That is no reason to refuse work: Kafka keeps
it. So a missing or stale pressure means *slow down a little*, never reject.
"""

from __future__ import annotations

import msgspec

from zkcoord.core.records import Pressure

STALE_AFTER_S = 15.0
"""A pressure older than this is not believed: three missed refreshes."""
BLIND_PACE_S = 0.05
"""How long one submission waits while the pressure is missing or stale."""
RETRY_S_MIN = 0.2
RETRY_S_MAX = 3600.0

ACCEPT = "accept"
SLOW = "slow"
REJECT = "reject"


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What becomes of one submission.

    Attributes:
        kind: ``accept``, ``slow`` or ``reject``.
        pace: seconds to wait before submitting, above zero when slowed, else 0.
        retry_after: seconds to wait before trying again, above zero when rejected, else 0.
        reason: ``""``, ``pressure``, ``unknown`` (no fresh pressure), ``overload``, ``infeasible``
            (it would start after its deadline) or ``expired`` (the deadline has passed).
    """

    kind: str
    pace: float = 0.0
    retry_after: float = 0.0
    reason: str = ""


_ACCEPTED = Verdict(ACCEPT)
_BLIND = Verdict(SLOW, pace=BLIND_PACE_S, reason="unknown")


def judge(
    pressure: Pressure | None,
    priority: int,
    now: float,
    *,
    budget_s: float,
    deadline: float | None = None,
) -> Verdict:
    """Decide about one submission of class `priority`.

    Args:
        pressure: what the leader published last, or None when nothing is known.
        priority: 0 to 3.
        now: wall-clock seconds.
        budget_s: the class's delay budget; with the fill it gives the predicted start delay.
        deadline: wall-clock time by which the task must have ended, if any.
    """
    if deadline is not None and deadline <= now:
        return Verdict(REJECT, retry_after=RETRY_S_MIN, reason="expired")
    if pressure is None or now - pressure.at > STALE_AFTER_S:
        return _BLIND
    standing = pressure.classes[priority]
    if standing.verdict == REJECT:
        return Verdict(
            REJECT, retry_after=max(standing.retry_after, RETRY_S_MIN), reason="overload"
        )
    if deadline is not None:
        wait = standing.fill * budget_s
        if now + wait > deadline:
            # At half the budget the queue is short enough again for most deadlines.
            later = min(max(wait - budget_s / 2, RETRY_S_MIN), RETRY_S_MAX)
            return Verdict(REJECT, retry_after=later, reason="infeasible")
    if standing.verdict == SLOW:
        return Verdict(SLOW, pace=max(standing.pace, 0.001), reason="pressure")
    return _ACCEPTED
