"""Brings inbox records to the executor, as fast as it has room for them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from zkcoord.errors import RecordsTrimmed, StreamError, ZkcoordError
from zkcoord.kafka import BEGINNING, Partition, Reader

_log = logging.getLogger(__name__)

READ_S = 0.25
READ_LIMIT = 256
AHEAD = 2  # batches read before the executor has taken them
ROOM_S = 0.005
ERROR_S = 1.0


class Taking(Protocol):
    """What the feed asks of the executor; both on the loop's thread."""

    @property
    def has_room(self) -> bool:
        """Whether more should be read."""

    def take(self, values: Sequence[bytes | None]) -> None:
        """Obey inbox records; None stands for one that was lost."""


class Feed:
    """A thread that reads one inbox partition for one incarnation.

    A broker that is away is waited for. Records that were deleted unread count as lost, so that
    the agent tells the leader what it has.

    Args:
        loop: the agent's event loop.
        open_reader: makes the reader, in the feed's thread.
        place: topic and partition.
        position: offset of the first record that may concern this incarnation.
        executor: who takes the records.
        on_failure: called in the feed's thread with a reason when it cannot go on.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        open_reader: Callable[[], Reader],
        place: Partition,
        position: int,
        executor: Taking,
        on_failure: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._open = open_reader
        self._place = place
        self._position = position
        self._executor = executor
        self._on_failure = on_failure
        self._permits = threading.Semaphore(AHEAD)
        self._owed = 0  # permits kept back while there is no room
        self._looking: asyncio.TimerHandle | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zkcoord-inbox", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self) -> None:
        """Bring nothing more. Does not wait."""
        self._stop.set()

    def join(self, timeout: float) -> bool:
        """Whether the thread has ended within `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with self._open() as reader:
                reader.assign({self._place: self._position})
                while not self._stop.is_set():
                    if self._permits.acquire(timeout=READ_S):
                        self._pass_on(self._read(reader))
        except ZkcoordError as error:
            self._on_failure(f"the inbox cannot be read: {error}")

    def _read(self, reader: Reader) -> list[bytes | None]:
        """The next records; empty only when it is time to stop."""
        while not self._stop.is_set():
            try:
                records = reader.read(READ_LIMIT, READ_S)
            except RecordsTrimmed as error:
                _log.warning("inbox records were deleted before they were read: %s", error)
                reader.seek(self._place, BEGINNING)
                return [None]
            except StreamError as error:
                _log.warning("the inbox cannot be read now: %s", error)
                self._stop.wait(ERROR_S)
                continue
            if records:
                return [record.value for record in records]
        return []

    def _pass_on(self, values: list[bytes | None]) -> None:
        if values and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, values)

    def _deliver(self, values: list[bytes | None]) -> None:
        """On the loop."""
        if self._stop.is_set():
            return
        self._executor.take(values)
        self._owed += 1
        if self._looking is None:
            self._relieve()

    def _relieve(self) -> None:
        """Let the thread read on once there is room."""
        self._looking = None
        if self._stop.is_set() or not self._owed:
            return
        if self._executor.has_room:
            self._permits.release(self._owed)
            self._owed = 0
        else:
            self._looking = self._loop.call_later(ROOM_S, self._relieve)
