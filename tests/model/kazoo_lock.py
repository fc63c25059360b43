"""kazoo's lock as a small state machine: the algorithm of ``kazoo.recipe.lock`` 2.11, not its code.

See that the folder exists; create a node with an id of its own in the name; list; wait for the next
lower one; list again.
When the link is lost, begin anew: look for a node with that id, and create one only if the listing
shows none. A holder believes that it holds until its session tells it otherwise.
"""

from __future__ import annotations

from lock_scenario import Request, Wish

from zkcoord.errors import CoordinationError, NodeMissing
from zkcoord.zk import Session
from zkcoord.zk.requests import (
    EPHEMERAL,
    SEQUENTIAL,
    Create,
    Delete,
    Exists,
    GetChildren,
    Stat,
    WatchEvent,
)
from zkcoord.zk.translate import LinkDropped

_FOLDER = "/locks/gpu"


class KazooLock:
    """One acquisition."""

    def __init__(self, session: Session) -> None:
        self._link = session.link
        self._id = f"guid-of-{session.name}-"
        self._assured = False
        self._create_tried = False
        self._node = ""
        self.what = ("gpu",)
        self.granted = False
        self.token = 0  # it does not have any
        self.finished = False
        self.failed = False
        self._acquire()

    def settled(self) -> bool:
        return self.granted or self.failed

    def believed(self) -> bool:
        epoch = self._link.epoch
        return self.granted and not self.finished and epoch is not None and not epoch.over()

    def cancel(self) -> None:
        raise NotImplementedError

    def release(self) -> None:
        self.finished = True
        self._link.call(Delete(f"{_FOLDER}/{self._node}"), self._deleted)

    def _deleted(self, _result: object, error: CoordinationError | None) -> None:
        if isinstance(error, LinkDropped):
            self.release()

    def _acquire(self) -> None:
        if not self._assured:
            self._link.call(Exists(_FOLDER), self._exists)
        elif self._create_tried:
            self._link.call(GetChildren(_FOLDER), self._found)
        else:
            self._create_tried = True
            self._create()

    def _exists(self, _stat: Stat | None, error: CoordinationError | None) -> None:
        if not self._again(error):
            self._assured = True
            self._acquire()

    def _create(self) -> None:
        request = Create(f"{_FOLDER}/{self._id}", b"", EPHEMERAL | SEQUENTIAL)
        self._link.call(request, self._created)

    def _created(self, result: tuple[str, Stat], error: CoordinationError | None) -> None:
        if not self._again(error):
            self._node = result[0].rpartition("/")[2]
            self._list()

    def _found(self, names: list[str], error: CoordinationError | None) -> None:
        if self._again(error):
            return
        own = [name for name in names if name.startswith(self._id)]
        if own:
            self._node = own[0]
            self._list()
        else:
            self._create()

    def _list(self) -> None:
        self._link.call(GetChildren(_FOLDER), self._listed)

    def _listed(self, names: list[str], error: CoordinationError | None) -> None:
        if self._again(error):
            return
        if self._node not in names:
            self._acquire()
            return
        lower = sorted((n for n in names if n[-10:] < self._node[-10:]), key=lambda n: n[-10:])
        if not lower:
            self.granted = True
            return
        exists = Exists(f"{_FOLDER}/{lower[-1]}", watch=True)
        self._link.watches.watch(exists, self._woken, self._watching)

    def _watching(self, stat: Stat | None, error: CoordinationError | None) -> None:
        if not self._again(error) and stat is None:
            self._list()

    def _woken(self, _event: WatchEvent | None) -> None:
        if not self.settled():
            self._list()

    def _again(self, error: CoordinationError | None) -> bool:
        """Begin anew when the link was lost."""
        if isinstance(error, LinkDropped):
            self._acquire()
        elif error is not None and not isinstance(error, NodeMissing):
            self.failed = True
        return error is not None


def kazoo_lock() -> Wish:
    """A wish for kazoo's lock."""

    def ask(session: Session, _label: str) -> Request:
        return KazooLock(session)

    return Wish(ask)
