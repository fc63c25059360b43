"""Follows the queue's log while the demo runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

from zkcoord.config import KafkaConfig, QueueConfig
from zkcoord.core.records import Priority
from zkcoord.core.replica import Replica
from zkcoord.errors import ZkcoordError
from zkcoord.kafka import LogReader
from zkcoord_cli.demo.report import History, Story, tell


class LogTail:
    """A thread that folds the log into a :class:`~.report.History` as it grows.

    The void rule is the library's own: its :class:`~zkcoord.core.replica.Replica` says what counts.
    """

    def __init__(self, kafka: KafkaConfig, topic: str, queue: str) -> None:
        self.history = History()
        self.offset = 0
        self.voids = 0
        self.error: ZkcoordError | None = None
        self._replica = Replica(queue, QueueConfig())
        self._reader = LogReader(kafka, topic, client_id="zkcoord-demo")
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zkcoord-demo-tail", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(10)
        self._reader.close()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                records = self._reader.read(500, 0.1)
                with self._changed:
                    for record in records:
                        self._feed(record.offset, record.value or b"")
                    self._changed.notify_all()
        except ZkcoordError as error:
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def _feed(self, offset: int, value: bytes) -> None:
        batch = self._replica.feed(offset, value)
        self._replica.owed.clear()
        self.offset = offset + 1
        if batch is None:
            self.voids += 1
        else:
            tell(self.history, batch)

    def wait(self, condition: Callable[[History], bool], timeout: float) -> bool:
        """Wait until `condition` holds; False when it did not within `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self.error is not None or condition(self.history), timeout
            ) and (self.error is None or condition(self.history))

    def look(self) -> View:
        """Counts for the live view."""
        with self._changed:
            return View(self.history)


class View:
    """What the live view shows, counted from the log."""

    def __init__(self, history: History) -> None:
        stories = list(history.stories.values())
        self.accepted = len(stories)
        self.ended = Counter(s.terminals[0] for s in stories if s.terminals)
        self.running = sum(s.running for s in stories)
        self.classes = {p: _of_class(stories, p) for p in Priority}
        self.repeated = Counter(reason for s in stories for reason in s.reasons)
        self.terms = list(history.terms)


def _of_class(stories: list[Story], priority: Priority) -> tuple[int, int, int]:
    """Waiting, running, ended tasks of one class."""
    mine = [s for s in stories if s.priority == priority]
    ended = sum(bool(s.terminals) for s in mine)
    running = sum(s.running for s in mine)
    return len(mine) - ended - running, running, ended
