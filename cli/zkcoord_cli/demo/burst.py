"""A short burst beyond capacity, so that slow-downs and refusals are seen and obeyed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from zkcoord import Priority, Queue
from zkcoord.errors import Rejected

TASKS_MAX = 1500
OFFER_S = 6.0
LAST_WAIT_S = 10.0


@dataclass(slots=True)
class Burst:
    """What became of the burst's submissions; `ids` are those that stand in Kafka."""

    verdicts: Counter[str] = field(default_factory=Counter)
    paced_s: float = 0.0
    waited_s: float = 0.0
    obeyed: int = 0  # refusals after which the next try, made when told, was taken
    ids: list[str] = field(default_factory=list)


def press(queue: Queue, tick: Callable[[], None]) -> Burst:
    """Submit small LOW tasks as fast as the queue's verdicts allow, for `OFFER_S` seconds.

    A slow-down is waited for by `submit` itself; a refusal is obeyed here. The last refusal is
    waited out too, within `LAST_WAIT_S`, so that it shows whether obeying helps.
    """
    burst = Burst()
    until = time.monotonic() + OFFER_S
    last = until + LAST_WAIT_S
    refused = False
    while len(burst.ids) < TASKS_MAX and time.monotonic() < (last if refused else until):
        tick()
        try:
            ticket = queue.submit_raw("ponder", (0.04,), priority=Priority.LOW, result=False)
        except Rejected as refusal:
            burst.verdicts["reject"] += 1
            pause = min(refusal.retry_after, max(0.0, last - time.monotonic()))
            burst.waited_s += pause
            _pause(pause, tick)
            refused = True
            continue
        burst.obeyed += refused
        refused = False
        burst.verdicts[ticket.verdict.kind] += 1
        burst.paced_s += ticket.verdict.pace
        burst.ids.append(ticket.id)
    return burst


def _pause(seconds: float, tick: Callable[[], None]) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        tick()
        time.sleep(min(0.1, left))
