"""A queue as one process knows it: listed once for all its waiters, and counted on from there.

ZooKeeper numbers the children of a folder by counting its creates, one by one (``cversion`` of the
parent, see ``PrepRequestProcessor`` of Apache ZooKeeper). So a node whose number follows the last
one that is known stands right behind it, and nobody is in between: its place is known without
another listing. A gap means that others came meanwhile, and the queue is listed again.

What has gone since the listing is still in here. So there are never more in front than this says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from zkcoord.core.ordering import Contender, Place, distance, precedes

APPENDED_MAX = 1 << 14
"""So many are counted on from one listing, since those who have gone stay in."""

_TRIM_MIN = 256

Key = tuple[str, str]
"""Owner and request of a contender."""


class Front(Sequence[Contender]):
    """The contenders in front of somebody, without a copy for each who waits."""

    __slots__ = ("_ordered", "_start", "_stop")

    def __init__(self, ordered: Sequence[Contender], start: int, stop: int) -> None:
        self._ordered = ordered
        self._start = start
        self._stop = stop

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> Contender: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Contender]: ...
    def __getitem__(self, index: int | slice) -> Contender | Sequence[Contender]:
        if isinstance(index, slice):
            return self._ordered[self._start : self._stop][index]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._ordered[self._start + index]


class KnownQueue:
    """One folder's queue."""

    def __init__(self) -> None:
        self._ordered: list[Contender] = []
        self._start = 0
        self._appended = 0

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self._ordered)

    def listed(self, ordered: list[Contender]) -> None:
        """All contenders, in order, as a listing has them."""
        self._ordered = ordered
        self._start = 0
        self._appended = 0

    def forget(self) -> None:
        """Nothing is known any more."""
        self.listed([])

    def append(self, contender: Contender) -> Place | None:
        """The place of somebody who came in just now; None when others may be in between."""
        ordered = self._ordered
        if not ordered or self._appended >= APPENDED_MAX:
            return None
        if distance(ordered[-1].sequence, contender.sequence) != 1:
            return None
        self._appended += 1
        stop = len(ordered)
        ordered.append(contender)
        return Place(stop - self._start, contender, (), Front(ordered, self._start, stop))

    def reached(self, contender: Contender) -> None:
        """All in front of this one have gone."""
        ordered, start = self._ordered, self._start
        while start < len(ordered) and precedes(ordered[start].sequence, contender.sequence):
            start += 1
        self._start = start
        if start >= _TRIM_MIN and start * 2 > len(ordered):
            self._ordered = ordered[start:]  # a copy: places look at the old one
            self._start = 0

    def places(self, wanted: Iterable[Key]) -> dict[Key, Place]:
        """Where each of these requests stands, in one pass; those that do not are left out."""
        ordered, start = self._ordered, self._start
        own: dict[Key, list[int]] = {key: [] for key in wanted}
        for index in range(start, len(ordered)):
            contender = ordered[index]
            indexes = own.get((contender.owner, contender.request))
            if indexes is not None:
                indexes.append(index)
        found: dict[Key, Place] = {}
        for key, indexes in own.items():
            if indexes:
                first = indexes[0]
                found[key] = Place(
                    first - start,
                    ordered[first],
                    tuple(ordered[index] for index in indexes[1:]),
                    Front(ordered, start, first),
                    len(ordered) - first - len(indexes),
                )
        return found
