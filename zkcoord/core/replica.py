"""A follower of a queue's log: the void rule, and the fold of what is not void.

Every reader of a log follows the same rules: standbys, the leader itself, ``queue show``. A batch
carries (term, n); within a term n rises by one from 0. So

- a batch of a lower term than one seen before is void: its writer was deposed;
- within the term anything but the last n + 1 is void: the same bytes may have been appended twice
  because the outcome of the first append was unknown;
- a higher term begins with n = 0, its opening; nothing else raises the term.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from zkcoord.config import QueueConfig
from zkcoord.core.apply import Effects, Fold
from zkcoord.core.records import VERSION, Batch, KeptTask, Position
from zkcoord.core.state import State
from zkcoord.core.tasks import revive
from zkcoord.errors import DecodeError

_decode = msgspec.msgpack.Decoder(Batch).decode


class Replica:
    """The state of a queue as its log tells it, up to :attr:`position`.

    Attributes:
        queue: its name.
        config: what all parties of the queue agree on.
        term, n: of the last batch that was not void; -1 before the first.
        position: the next log offset.
        start: the log offset that the fold began at.
        state: the fold, a :class:`~.state.State`; read it, never write to it.
        owed: per batch at or above the watermark that asks for outputs: (log offset, the batch's
            time, effects). Bounded, because a leader stops deciding while too much is owed.
        voids: how many void records were seen.
    """

    def __init__(self, queue: str, config: QueueConfig) -> None:
        self.queue = queue
        self.config = config
        self.term = -1
        self.n = -1
        self.position = 0
        self.start = 0
        self.state = State()
        self.fold = Fold(self.state)
        self.owed: deque[tuple[int, float, Effects]] = deque()
        self.voids = 0

    @property
    def watermark(self) -> int:
        """Every output of batches below this log offset is acknowledged."""
        return self.state.sent

    def restore(self, position: Position, tasks: Iterable[KeptTask]) -> None:
        """Start from a checkpoint: feed the log from ``position.offset`` on.

        `tasks` are the last records per key of the checkpoint topic, tombstones left out.

        Raises:
            DecodeError: a record of a version that is not known.
        """
        _check_version("checkpoint: the position", position.version)
        state = State()
        state.at = position.at
        state.sent = position.sent
        state.paused = position.paused
        state.inputs = {(source, part): next_ for source, part, next_ in position.inputs}
        state.ended = dict(position.ended)
        state.totals = list(position.totals)
        for kept in tasks:
            _check_version(f"checkpoint: the record of task {kept.task.id!r}", kept.version)
            if kept.offset < state.ended.get(kept.task.id, -1):
                continue  # it ended before the position; its tombstone is still to come
            state.add(revive(kept))
        self.state = state
        self.fold = Fold(state)
        self.term = position.term
        self.n = position.n
        self.position = self.start = position.offset
        self.owed.clear()

    def feed(self, offset: int, value: bytes) -> Batch | None:
        """Follow one record of the log; the batch, or None when it is void.

        Offsets must rise. What lies below :attr:`position` is ignored.

        Raises:
            DecodeError: bytes that are no batch of a known version.
        """
        if offset < self.position:
            return None
        batch = decode_batch(offset, value)
        self.position = offset + 1
        if not self.admits(batch):
            self.voids += 1
            return None
        self.term = batch.term
        self.n = batch.n
        effects = self.fold.batch(batch, offset)
        if effects:
            self.owed.append((offset, batch.at, effects))
        settle(self.owed, self.state.sent)
        return batch

    def admits(self, batch: Batch) -> bool:
        """Whether the batch is not void as the next of the log."""
        if batch.term == self.term:
            return batch.n == self.n + 1
        return batch.term > self.term and batch.n == 0


def settle(owed: deque[tuple[int, float, Effects]], sent: int) -> None:
    """Forget what the watermark says is acknowledged."""
    while owed and owed[0][0] < sent:
        owed.popleft()


def decode_batch(offset: int, value: bytes) -> Batch:
    """Read a record of the log.

    Raises:
        DecodeError: bytes that are no batch of a known version.
    """
    try:
        batch = _decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DecodeError(f"log: the record at offset {offset} is no batch: {error}") from error
    _check_version(f"log: the record at offset {offset}", batch.version)
    return batch


def _check_version(what: str, version: int) -> None:
    if version != VERSION:
        raise DecodeError(
            f"{what} has version {version}, {VERSION} is known",
            hint="a newer zkcoord wrote it: upgrade this process",
        )
