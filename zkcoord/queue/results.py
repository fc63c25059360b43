"""Results come to whoever waits for them.

A submitting process picks one partition of the `results` topic, names it in its tasks, and reads
it by plain assignment from its end as it stood before the first submission. One thread serves all
its tickets. A ticket that nobody holds any more is forgotten; results of others are passed over.
"""

from __future__ import annotations

import logging
import threading
import time
from weakref import WeakValueDictionary

from zkcoord.config import KafkaConfig
from zkcoord.core import results
from zkcoord.errors import (
    BufferFull,
    DecodeError,
    RecordsTrimmed,
    StreamClosed,
    StreamError,
)
from zkcoord.kafka import BEGINNING, END, Reader, Record
from zkcoord.queue.patience import patiently
from zkcoord.queue.ticket import Latch
from zkcoord.queue.topics import Topics

log = logging.getLogger("zkcoord.queue")

READ_LIMIT = 1000
READ_S = 0.2
RETRY_S = 0.5
RETRY_S_MAX = 5.0

Outcome = Latch[results.Result]


class ResultsReader:
    """Waits for results of one process on one partition.

    Args:
        config, topics: where the results are.
        partition: which partition the submitted tasks name.
        waiting_max: bound on tickets that wait; beyond it `expect` raises BufferFull.
        client_id: for the brokers' logs.
        timeout: seconds to find the partition's end.

    Raises:
        BrokerUnavailable: no broker answered in time.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topics: Topics,
        *,
        partition: int,
        waiting_max: int,
        client_id: str,
        timeout: float,
    ) -> None:
        self.partition = partition
        self._place = (topics.results, partition)
        self._waiting_max = waiting_max
        self._waiting: WeakValueDictionary[str, Outcome] = WeakValueDictionary()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._reader = Reader(config, client_id=client_id)
        try:
            self._reader.assign({self._place: END})
            ends = patiently(self._reader.ends, time.monotonic() + timeout)
            self._reader.assign({self._place: ends[self._place]})
        except BaseException:
            self._reader.close()
            raise
        self._thread = threading.Thread(target=self._run, name="zkcoord-results", daemon=True)
        self._thread.start()

    def expect(self, task_id: str) -> Outcome:
        """What will be settled with the result of `task_id`, for as long as somebody holds it.

        Raises:
            BufferFull: too many wait already.
        """
        with self._lock:
            outcome = self._waiting.get(task_id)
            if outcome is None:
                if len(self._waiting) >= self._waiting_max:
                    raise BufferFull(
                        f"{self._waiting_max} tickets wait for their results already",
                        hint="let go of tickets, submit with options(result=False), or raise "
                        "waiting_max",
                    )
                outcome = self._waiting[task_id] = Latch()
            return outcome

    def close(self, timeout: float = 2.0) -> None:
        """Stop; whoever still waits gets StreamClosed."""
        self._stop.set()
        self._thread.join(timeout)
        self._reader.close()
        with self._lock:
            waiting = list(self._waiting.items())
        for task_id, outcome in waiting:
            outcome.fail(
                StreamClosed(
                    f"the queue was closed while task {task_id} was waited for; the task goes on"
                )
            )

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            try:
                for record in self._reader.read(READ_LIMIT, READ_S):
                    self._hear(record)
                pause = 0.0
            except StreamClosed:
                return
            except RecordsTrimmed as error:
                log.warning("results were deleted before they were read, some are lost: %s", error)
                self._reader.assign({self._place: BEGINNING})
            except StreamError as error:
                if pause == 0.0:
                    log.warning("results cannot be read, trying again: %s", error)
                pause = min(RETRY_S_MAX, max(RETRY_S, 2 * pause))

    def _hear(self, record: Record) -> None:
        try:
            outcome = self._waiting.get((record.key or b"").decode())
            if outcome is not None:
                outcome.settle(results.decode(record.value))
        except (DecodeError, UnicodeDecodeError) as error:
            log.warning("a result at offset %d cannot be read: %s", record.offset, error)
