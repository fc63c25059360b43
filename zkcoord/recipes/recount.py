"""What to do when a folder has given out all its sequence numbers.

The number of a sequential node is its parent's child counter, a signed 32-bit number. At the end of
its range ZooKeeper 3.9 does not go on with the smallest, as its documentation says: servers never
count down, so the last number is given out again and again, with a negative one between when
creates are under way together. Such numbers tell no order. Nobody takes its place with one: who has
one leaves, those in front finish, and the empty folder is deleted, so that it counts from 0 again.

Source: ``PrepRequestProcessor.pRequest2TxnCreate`` and ``DataTree.createNode`` of Apache ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zkcoord.core import ordering
from zkcoord.errors import CoordinationError, EnsembleUnavailable
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.requests import Delete, Exists, Stat
from zkcoord.zk.translate import LinkDropped

_PAUSE_S = 1.0


class Recount:
    """Waits until none of some folders is used up, and deletes those that are as they get empty.

    On the loop.

    Args:
        wanted: whether anybody still waits for it.
        ready: called once, unless nobody does or the session ends.
    """

    def __init__(
        self,
        link: Link,
        epoch: Epoch,
        folders: Sequence[str],
        wanted: Callable[[], bool],
        ready: Callable[[], object],
    ) -> None:
        self._link = link
        self._epoch = epoch
        self._folders = list(folders)
        self._wanted = wanted
        self._ready = ready
        self._look()

    def _look(self) -> None:
        if self._epoch.over() or self._link.closed or not self._wanted():
            return
        if self._folders:
            request = Exists(self._folders[0])
            self._link.call(request, self._looked, epoch=self._epoch, verb="exists")
        else:
            self._ready()

    def _looked(self, stat: Stat | None, error: CoordinationError | None) -> None:
        if isinstance(error, LinkDropped):
            self._look()
        elif isinstance(error, EnsembleUnavailable):
            self._link.timer(_PAUSE_S, self._look)
        elif stat is not None and ordering.exhausted(stat.cversion):
            # It fails unless the folder is empty.
            self._link.call(Delete(self._folders[0]), _ignore, epoch=self._epoch, verb="delete")
            self._link.timer(_PAUSE_S, self._look)
        else:  # any other error shows again when the node is created
            del self._folders[0]
            self._look()


def _ignore(_result: object, _error: CoordinationError | None) -> None:
    """Whether it was empty shows at the next look."""
