"""Notice that topics were given more partitions, in the background.

Anybody may add partitions to a queue's topics while it works. What is written to a new partition
must be read, so the leader looks again now and then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from zkcoord.errors import StreamError

log = logging.getLogger("zkcoord.queue")

EVERY_S = 30.0


class Growth:
    """Counts partitions every now and then.

    Args:
        queue: for messages.
        count: asks the brokers how many partitions each topic has; may block.
        known: how many there were at the start.
        every_s: seconds between looks.
    """

    def __init__(
        self,
        queue: str,
        count: Callable[[], Mapping[str, int]],
        known: Mapping[str, int],
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self._queue = queue
        self._count = count
        self._known = dict(known)
        self._news: Mapping[str, int] | None = None
        self._every_s = every_s
        self._failing = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"zkcoord-grow-{queue}", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def take(self) -> Mapping[str, int] | None:
        """The new counts of all topics when any has grown since the last call, else None."""
        news, self._news = self._news, None
        return news

    def close(self, timeout: float = 0.5) -> None:
        """Stop."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                counts = self._count()
            except StreamError as error:
                if not self._failing:
                    log.warning("partitions of queue %s not counted: %s", self._queue, error)
                self._failing = True
                continue
            self._failing = False
            grown = {t: n for t, n in counts.items() if n > self._known.get(t, 0)}
            if grown:
                log.info("queue %s has more partitions: %s", self._queue, grown)
                self._known.update(grown)
                self._news = dict(self._known)
