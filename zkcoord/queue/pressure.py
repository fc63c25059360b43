"""Admission at the edge: decide about a submission from the pressure znode, without a round trip.

The leader publishes what each class can take; every submitting process watches that znode. How old
the news is counts from its arrival on our own clock, because clocks of different machines differ;
only for a value that is the first for long, and may have stood there for days, the leader's own
time is believed.
A pressure that is missing or stale means: slow down a little, never reject (see `core.verdict`).
"""

from __future__ import annotations

import logging
import threading
import time

import msgspec

from zkcoord.config import QueueConfig
from zkcoord.core.records import Pressure
from zkcoord.core.verdict import STALE_AFTER_S, Verdict, judge
from zkcoord.zk import Session

log = logging.getLogger("zkcoord.queue")

_decode = msgspec.json.Decoder(Pressure).decode


class Edge:
    """Watches a queue's pressure and judges submissions by it. Thread-safe.

    The watch goes on across reconnects and lost sessions.

    Args:
        session: to watch with; stays open.
        path: the pressure znode.
        config: the queue's, for the classes' delay budgets.
    """

    def __init__(self, session: Session, path: str, config: QueueConfig) -> None:
        self._path = path
        self._budgets = tuple(standing.budget_s for standing in config.classes)
        # What was published, when it was heard (monotonic), and how old it was then.
        self._news: tuple[Pressure | None, float, float] = (None, float("-inf"), 0.0)
        self._heard = threading.Event()
        self._watch = session.nodes.watch(path, self._on_change)

    @property
    def pressure(self) -> Pressure | None:
        """What was published last, as far as known."""
        return self._news[0]

    def wait_first(self, timeout: float) -> bool:
        """Wait until the znode was read once, whether it is there or not."""
        return self._heard.wait(timeout)

    def decide(self, priority: int, deadline: float | None = None) -> Verdict:
        """The verdict on a submission of class `priority` that must end within `deadline` s."""
        pressure, heard_at, age = self._news
        since = time.monotonic() - heard_at
        now = time.time() if pressure is None else pressure.at + age + since
        return judge(
            pressure,
            priority,
            now,
            budget_s=self._budgets[priority],
            deadline=None if deadline is None else now + deadline,
        )

    def close(self) -> None:
        """Stop watching."""
        self._watch.close()

    def _on_change(self, data: bytes | None, _stat: object) -> None:
        pressure = None
        if data is not None:
            try:
                pressure = _decode(data)
            except (msgspec.MsgspecError, ValueError) as error:
                log.warning("%s does not hold a pressure: %s", self._path, error)
        heard_at = time.monotonic()
        age = 0.0
        if pressure is not None and heard_at - self._news[1] > STALE_AFTER_S:
            # The first for long: it may have changed at any time since.
            age = max(0.0, time.time() - pressure.at)
        self._news = (pressure, heard_at, age)
        self._heard.set()
