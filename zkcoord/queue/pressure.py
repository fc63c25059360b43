"""Admission at the edge: decide about a submission from the pressure znode, without a round trip.

The leader publishes what each class can take; every submitting process watches that znode. How old
the news is counts from its arrival on our own clock, because clocks of different machines differ;
only for the first value, which may have stood there for days, the leader's own time is believed.
A pressure that is missing or stale means: slow down a little, never reject (see `core.verdict`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import msgspec

from zkcoord.config import QueueConfig
from zkcoord.core.records import Pressure
from zkcoord.core.verdict import Verdict, judge
from zkcoord.errors import ZkcoordError
from zkcoord.zk import Session

log = logging.getLogger("zkcoord.queue")

RECONNECT_S = 0.5
RECONNECT_S_MAX = 30.0

_decode = msgspec.json.Decoder(Pressure).decode


class Edge:
    """Watches a queue's pressure and judges submissions by it. Thread-safe.

    Args:
        session: to watch with.
        path: the pressure znode.
        config: the queue's, for the classes' delay budgets.
        reconnect: makes a new session when this one is lost, or None when somebody else owns it:
            then the pressure stays unknown after a loss.
    """

    def __init__(
        self,
        session: Session,
        path: str,
        config: QueueConfig,
        *,
        reconnect: Callable[[], Session] | None = None,
    ) -> None:
        self._path = path
        self._budgets = tuple(standing.budget_s for standing in config.classes)
        self._reconnect = reconnect
        # What was published, when it was heard (monotonic), and how old it was then.
        self._news: tuple[Pressure | None, float, float] = (None, 0.0, 0.0)
        self._heard = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._session = session
        self._watch_with(session)

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
        """Stop watching; the session stays open unless it was made here."""
        self._closed.set()
        with self._lock:
            self._watch.close()
            if self._reconnect is not None:
                self._session.close()

    def _watch_with(self, session: Session) -> None:
        self._watch = session.nodes.watch(self._path, self._on_change)
        if self._reconnect is not None:
            session.lost.add_callback(self._on_lost)

    def _on_change(self, data: bytes | None, _stat: object) -> None:
        pressure = None
        if data is not None:
            try:
                pressure = _decode(data)
            except (msgspec.MsgspecError, ValueError) as error:
                log.warning("%s does not hold a pressure: %s", self._path, error)
        first = not self._heard.is_set()
        age = max(0.0, time.time() - pressure.at) if first and pressure is not None else 0.0
        self._news = (pressure, time.monotonic(), age)
        self._heard.set()

    def _on_lost(self) -> None:
        if not self._closed.is_set():
            threading.Thread(target=self._begin_again, name="zkcoord-edge", daemon=True).start()

    def _begin_again(self) -> None:
        """A lost session never comes back: make a new one, for as long as it takes."""
        if self._reconnect is None:
            return
        pause = RECONNECT_S
        while not self._closed.wait(pause):
            try:
                session = self._reconnect()
            except ZkcoordError as error:
                log.warning("the pressure of %s cannot be watched: %s", self._path, error)
                pause = min(RECONNECT_S_MAX, 2 * pause)
                continue
            with self._lock:
                if self._closed.is_set():
                    session.close()
                    return
                self._session.close()
                self._session = session
                # What is read first may be old news again.
                self._heard.clear()
                self._watch_with(session)
            return
