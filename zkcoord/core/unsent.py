"""Which batches have outputs that are not acknowledged: where the watermark may stand."""

from __future__ import annotations

from collections import deque

from zkcoord.core.outputs import Output
from zkcoord.core.state import State

COUNT_MAX = 100_000
BYTES_MAX = 256 * 1024 * 1024
"""Outputs that may be unacknowledged, and their bytes, before nothing more is decided."""


class Unsent:
    """Batches by log offset, acknowledged in any order.

    Attributes:
        last: log offset of the last batch that had outputs, -1 before the first.
    """

    __slots__ = ("_bytes", "_count", "_done", "_offsets", "_open", "last")

    def __init__(self) -> None:
        self._offsets: deque[int] = deque()
        self._open: dict[int, tuple[int, int]] = {}
        self._done: set[int] = set()
        self._count = self._bytes = 0
        self.last = -1

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be decided before something was acknowledged."""
        return self._count >= COUNT_MAX or self._bytes >= BYTES_MAX

    def add(self, offset: int, outputs: list[Output]) -> list[Output]:
        """The batch at `offset`, higher than all before, has these; returns them."""
        if outputs:
            size = sum([len(output.value or b"") for output in outputs])
            self._offsets.append(offset)
            self.last = offset
            self._open[offset] = (len(outputs), size)
            self._count += len(outputs)
            self._bytes += size
        return outputs

    def acknowledged(self, offset: int) -> None:
        """All outputs of the batch at `offset` are."""
        count, size = self._open.pop(offset, (0, 0))
        if not count:
            return
        self._count -= count
        self._bytes -= size
        self._done.add(offset)
        offsets = self._offsets
        while offsets and offsets[0] in self._done:
            self._done.discard(offsets.popleft())

    def watermark(self, end: int) -> int:
        """Every output below this log offset is acknowledged; `end` is the log's end."""
        return self._offsets[0] if self._offsets else end

    def has_news(self, state: State, sent: int) -> bool:
        """Whether the watermark `sent` has passed outputs, or tombstones wait for it.

        Passing over batches without outputs is no news: an idle queue writes nothing.
        """
        if sent > self.last >= state.sent:
            return True
        return bool(state.ended) and next(iter(state.ended.values())) < sent
