"""What to do when a folder has given out all its sequence numbers.

The number of a sequential node is its parent's child counter, a signed 32-bit number. At the end of
its range ZooKeeper 3.9 does not go on with the smallest, as its documentation says: servers never
count down, so the last number is given out again and again, with a negative one between when
creates are under way together. Such numbers tell no order. Nobody takes its place with one: who has
one leaves, those in front finish, and the empty folder is deleted, so that it counts from 0 again.

Some folders are never empty: what a recipe keeps in them (:mod:`zkcoord.recipes.lasting`) goes with
the folder in one transaction, which makes both again with the values that they had. Such a folder
is a plain node then, which stays when nobody uses it. All slots of a pool must be free for it.

Source: ``PrepRequestProcessor.pRequest2TxnCreate`` and ``DataTree.createNode`` of Apache ZooKeeper.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from zkcoord.core import ordering
from zkcoord.errors import CoordinationError, EnsembleUnavailable
from zkcoord.recipes.lasting import KEPT, MARK, SLOTS
from zkcoord.recipes.steps import Course, Flight, Steps
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.names import join
from zkcoord.zk.requests import (
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    Operation,
    Stat,
)
from zkcoord.zk.translate import LinkDropped

_PAUSE_S = 1.0
_TIMEOUT_S = 10.0


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
            folder = self._folders[0]
            course = _renewing(folder)
            what = f"count anew in {self._link.relative(folder)}"
            Steps(self._link, course, what, _TIMEOUT_S, epoch=self._epoch).begin()
            self._link.timer(_PAUSE_S, self._look)  # whether it came to pass shows then
        else:  # any other error shows again when the node is created
            del self._folders[0]
            self._look()


def _renewing(folder: str) -> Course[None]:
    """Delete a folder without contenders; with what lasts in it it is made again. Or do nothing."""
    lasting = [join(folder, name) for name in (KEPT, MARK)]
    listing, own, *found = yield Flight(
        GetChildren(folder), GetData(folder), *(GetData(path) for path in lasting)
    )
    if isinstance(listing, CoordinationError) or isinstance(own, CoordinationError):
        return
    if not set(listing) <= {KEPT, MARK, SLOTS}:
        return
    value, stat = own
    operations: list[Operation] = []
    again: list[Operation] = []
    for path, node in zip(lasting, found, strict=True):
        if not isinstance(node, CoordinationError):
            operations.append(Delete(path, node[1].version))
            again.append(Create(path, node[0]))
    if SLOTS in listing:
        operations.append(Delete(join(folder, SLOTS)))
    operations.append(Delete(folder, stat.version))
    if value or again:
        operations += [Create(folder, value), *again]
    with contextlib.suppress(CoordinationError):  # something has changed: the next look tells
        yield Multi(tuple(operations))
