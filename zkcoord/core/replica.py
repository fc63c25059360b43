"""A follower of a queue's log: the void rule, and the fold of what is not void.

Every reader of a log follows the same rules: the standby, the leader itself, ``queue show``. See
:meth:`Replica.feed`.
"""

from __future__ import annotations

from collections.abc import Iterable

from zkcoord.config import QueueConfig
from zkcoord.core.records import Batch, KeptTask, Position


class Replica:
    """The state of a queue as its log tells it, up to :attr:`position`.

    Attributes:
        queue: its name.
        config: what all parties of the queue agree on.
        term, n: of the last batch that was not void; -1 before the first.
        position: the next log offset.
        watermark: every output of batches below this log offset is acknowledged.
        state: the fold, a :class:`~.state.State`; read it, never write to it.
        voids: how many void records were seen.
    """

    def __init__(self, queue: str, config: QueueConfig) -> None:
        raise NotImplementedError

    def restore(self, position: Position, tasks: Iterable[KeptTask]) -> None:
        """Start from a checkpoint: feed the log from ``position.offset`` on.

        `tasks` are the last records per key of the checkpoint topic, tombstones left out.
        """
        raise NotImplementedError

    def feed(self, offset: int, value: bytes) -> Batch | None:
        """Follow one record of the log; the batch, or None when it is void.

        Offsets must rise. Raises DecodeError for bytes that are no batch of a known version.
        """
        raise NotImplementedError
