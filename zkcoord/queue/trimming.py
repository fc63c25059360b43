"""Delete consumed records, in the background.

What may go is decided by the loop from facts that were read back: inputs behind the offsets that
the log says are consumed, and the log behind both its checkpoint and the history window. Such
offsets only ever rise, whoever leads, so a deletion that a deposed leader sends late removes
nothing that anybody still needs. Even so a leader stops trimming when its lease ends.

Trimming is a convenience: a failure is logged once and tried again at the next turn. Where the
scheduler has no right to delete records, ``zkcoord queue trim`` does the same as an operator.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping

from zkcoord.errors import StreamError
from zkcoord.kafka import Admin, Partition

log = logging.getLogger("zkcoord.queue")

INTERVAL_S = 10.0
REQUEST_TIMEOUT_S = 10.0


class Trimming:
    """Trims the topics of one queue while one leader's lease lasts.

    Args:
        queue: for messages.
        admin: deletes records; owned by this object from now on.
        may_trim: whether the lease is still believed.
        interval_s: seconds between turns.
    """

    def __init__(
        self,
        queue: str,
        admin: Admin,
        may_trim: Callable[[], bool],
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._queue = queue
        self._admin = admin
        self._may_trim = may_trim
        self._interval_s = interval_s
        self._wanted: Mapping[Partition, int] = {}
        self._done: dict[Partition, int] = {}
        self._failing: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"zkcoord-trim-{queue}", daemon=True)

    def start(self) -> None:
        """Begin to delete what is offered."""
        self._thread.start()

    def offer(self, offsets: Mapping[Partition, int]) -> None:
        """Records below these offsets may go. Never blocks; replaces what was offered before."""
        self._wanted = offsets

    def close(self, timeout: float = 1.0) -> None:
        """Stop."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._interval_s):
                if not self._may_trim():
                    return
                self._turn()
        finally:
            self._admin.close()

    def _turn(self) -> None:
        wanted = {p: o for p, o in self._wanted.items() if o > self._done.get(p, 0)}
        by_topic: dict[str, dict[Partition, int]] = {}
        for partition, offset in wanted.items():
            by_topic.setdefault(partition[0], {})[partition] = offset
        for topic, offsets in by_topic.items():
            if self._stop.is_set():
                return
            try:
                self._admin.trim(offsets, timeout=REQUEST_TIMEOUT_S)
            except StreamError as error:
                if topic not in self._failing:
                    self._failing.add(topic)
                    log.warning("topic %s of queue %s not trimmed: %s", topic, self._queue, error)
                continue
            self._failing.discard(topic)
            self._done.update(offsets)


class History:
    """Which log offsets are older than the history window.

    Keeps one sample per `step_s` seconds of log time, so its size is bounded by the window.

    Args:
        window_s: how long the log is kept for readers of history.
        samples_max: bound on samples; the step follows from it.
    """

    def __init__(self, window_s: float, *, samples_max: int = 4096) -> None:
        self._window_s = window_s
        self._step_s = max(1.0, window_s / samples_max)
        self._samples: deque[tuple[float, int]] = deque()
        self._behind = 0

    def note(self, at: float, offset: int) -> None:
        """The batch at log offset `offset` was decided at `at`."""
        samples = self._samples
        if not samples or at - samples[-1][0] >= self._step_s:
            samples.append((at, offset))

    def behind(self, now: float) -> int:
        """Every batch below this offset is older than the window."""
        samples = self._samples
        while samples and samples[0][0] < now - self._window_s:
            self._behind = samples.popleft()[1]
        return self._behind
