"""Write a leader's checkpoint entries in the background.

Transactions take 4-40 ms each, far too long for the leader's loop, so a thread writes whatever has
gathered, one transaction at a time, in order.

Only one leader may write. The writer's transactional id is the queue's, so opening it fences every
older writer. The lease is checked *after* opening: a leader that still held its lease then was
elected before any newer one, whose own opening comes later and fences this writer. A leader whose
lease has ended never opens the writer again. So no entry of an old leader can land after an entry
of a newer one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from zkcoord.errors import StreamError, WriterFenced
from zkcoord.kafka import CompactedWriter

log = logging.getLogger("zkcoord.queue")

Entry: TypeAlias = tuple[bytes, bytes | None]

WRITE_TIMEOUT_S = 30.0
RETRY_S = 0.5
RETRY_S_MAX = 5.0
ENTRIES_MAX = 5000
"""Of one transaction, roughly: whole batches are taken until this is reached."""
BYTES_MAX = 8 * 1024 * 1024


class Checkpointing:
    """One leader's writer of the checkpoint topic.

    Args:
        queue: for messages.
        connect: makes the writer, again after a failure.
        may_write: whether the lease is still believed; asked after each opening.
        pending_max: entries that may wait; see :attr:`is_full`.
    """

    def __init__(
        self,
        queue: str,
        connect: Callable[[], CompactedWriter],
        may_write: Callable[[], bool],
        *,
        pending_max: int = 50_000,
    ) -> None:
        self._queue = queue
        self._connect = connect
        self._may_write = may_write
        self._pending_max = pending_max
        self._waiting: deque[tuple[int, Sequence[Entry]]] = deque()
        self._count = 0
        self._settled: deque[int] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(
            target=self._run, name=f"zkcoord-checkpoint-{queue}", daemon=True
        )

    def start(self) -> None:
        """Open the writer and write what is offered."""
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """Whether more should be decided only after some entries have been written."""
        return self._count >= self._pending_max

    def offer(self, offset: int, entries: Sequence[Entry]) -> None:
        """Write the entries of the batch at log offset `offset`. Never blocks."""
        with self._wake:
            self._waiting.append((offset, entries))
            self._count += len(entries)
            self._wake.notify()

    def settled(self) -> list[int]:
        """Log offsets whose entries were committed since the last call."""
        done = []
        while self._settled:
            done.append(self._settled.popleft())
        return done

    def close(self, timeout: float = 1.0) -> None:
        """Stop; a transaction under way is finished or discarded by the next leader's opening."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        pause = RETRY_S
        complained = False
        while not self._stopping:
            writer = self._connect()
            try:
                writer.open(WRITE_TIMEOUT_S)
                if not self._may_write():
                    return
                while (batches := self._take()) is not None:
                    self._write(writer, batches)
                    pause, complained = RETRY_S, False
            except WriterFenced as error:
                if not self._may_write():
                    log.info("checkpoint of queue %s belongs to a newer leader", self._queue)
                    return
                log.warning("checkpoint writer of queue %s was fenced: %s", self._queue, error)
            except StreamError as error:
                if not complained:
                    log.warning("checkpoint of queue %s not written: %s", self._queue, error)
                complained = True
            finally:
                writer.close(0.5)
            with self._wake:
                if self._wake.wait_for(lambda: self._stopping, pause):
                    return
            pause = min(2 * pause, RETRY_S_MAX)
            if not self._may_write():
                return

    def _take(self) -> list[tuple[int, Sequence[Entry]]] | None:
        """What to write next, left in place until it is committed; None when stopping."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._stopping)
            if self._stopping:
                return None
            taken = []
            entries = size = 0
            for offset, group in self._waiting:
                taken.append((offset, group))
                entries += len(group)
                size += sum(len(key) + len(value or b"") for key, value in group)
                if entries >= ENTRIES_MAX or size >= BYTES_MAX:
                    break
            return taken

    def _write(self, writer: CompactedWriter, batches: list[tuple[int, Sequence[Entry]]]) -> None:
        last: dict[bytes, bytes | None] = {}
        for _, group in batches:
            for key, value in group:
                last.pop(key, None)  # keep the order of the last mention
                last[key] = value
        writer.write(list(last.items()), WRITE_TIMEOUT_S)
        with self._wake:
            for _ in batches:
                offset, group = self._waiting.popleft()
                self._count -= len(group)
                self._settled.append(offset)
