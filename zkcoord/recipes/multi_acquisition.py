"""Waiting for several locks at once: the state machine.

A request stands in all queues at one moment of their common history, see
:mod:`zkcoord.recipes.multi_entry`, so requests for several locks wait for each other in one order
and never in a circle. In every queue the nearest contender in front is watched, as for a single
lock; one of the same session tells when it is granted, so that its end needs no look. The grant
is the moment when nobody is in front in any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from zkcoord.core import ordering
from zkcoord.core.ordering import Place
from zkcoord.errors import CoordinationError, NodeMissing
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.line import Line
from zkcoord.recipes.multi_entry import MultiEntry
from zkcoord.recipes.waiting import Waiting
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.requests import NODE_DELETED, WATCH_DATA, Exists, GetChildren, Stat, WatchEvent

LeaseT = TypeVar("LeaseT", bound=Lease)


class MultiAcquisition(Waiting[LeaseT]):
    """One request for several locks.

    Args:
        timeout: seconds; None waits until granted, cancelled or the session is lost; 0 tries.
        make: builds the lease from epoch, paths and token.
    """

    def __init__(
        self,
        link: Link,
        lines: tuple[Line, ...],
        name: str,
        timeout: float | None,
        make: Callable[[Epoch, list[str], int], LeaseT],
    ) -> None:
        super().__init__(link, name, name, timeout)
        self._lines = lines
        self._make = make
        self._entry: MultiEntry | None = None
        self._fronts = [_Front(self, index) for index in range(len(lines))]
        self._peeked: dict[int, CoordinationError | list[str] | None] = {}

    @property
    def link(self) -> Link:
        """For the fronts."""
        return self._link

    @property
    def epoch(self) -> Epoch | None:
        """For the fronts."""
        return self._epoch

    def _enter(self, epoch: Epoch) -> None:
        if self._trying:
            self._peek()
        else:
            self._queue_up(epoch)

    def _queue_up(self, epoch: Epoch) -> None:
        self._entry = MultiEntry(self._link, self._lines, self._name, epoch, self)
        self._entry.enter()

    # --- a try ------------------------------------------------------------------------------------

    def _peek(self) -> None:
        self._peeked = {}
        for index, line in enumerate(self._lines):
            reply = partial(self._saw, index)
            self._link.call(GetChildren(line.folder), reply, epoch=self._epoch, verb="children")

    def _saw(self, index: int, names: list[str] | None, error: CoordinationError | None) -> None:
        missing = isinstance(error, NodeMissing)
        self._peeked[index] = error if error is not None and not missing else names
        if len(self._peeked) < len(self._lines) or not self.wanted():
            return
        self._heads = []
        for number, seen in self._peeked.items():
            if isinstance(seen, CoordinationError):
                self._trouble(seen, self._peek)
                return
            line = self._lines[number]
            ahead = [c for c in ordering.in_order(seen or ()) if line.blocks(c)]
            self._heads += [line.path(contender.node) for contender in ahead[:1]]
        if self._heads:
            self._refuse()
        elif self._epoch is not None:
            self._queue_up(self._epoch)

    # --- in the lines: what the entry reports ----------------------------------------------------

    def entered(self, places: Sequence[Place]) -> None:
        """We are in all lines."""
        self._heads = []
        for line, found in zip(self._lines, places, strict=True):
            ahead = filter(line.blocks, found.ahead)
            self._heads += [line.path(contender.node) for contender in islice(ahead, 1)]
        if self._heads and self._trying:
            self._refuse()
            return
        for front, found in zip(self._fronts, places, strict=True):
            front.placed(found, self._lines[front.index])
        self._check()

    def placed(self, index: int, found: Place) -> None:
        """One line was looked at again."""
        self._fronts[index].placed(found, self._lines[index])
        self._check()

    def cleared(self, front: _Front) -> None:
        """Whom we watched in one line is gone."""
        if front.last and self._went_alone(front.watched):
            front.clear = True
            self._check()
        elif self._entry is not None:
            self._entry.look(front.index)

    def trouble(self, error: CoordinationError, again: Callable[[], None]) -> None:
        """A front cannot watch."""
        self._trouble(error, again)

    def _check(self) -> None:
        if self._entry is not None and self.wanted() and all(f.clear for f in self._fronts):
            self._entry.identify()

    def identified(self, token: int) -> None:
        """The token is known: the lease can be made."""
        epoch, entry = self._epoch, self._entry
        assert epoch is not None
        assert entry is not None
        if epoch.over() or self._link.closed:
            return  # the end of the session tells everybody; closing it deletes whom we watch
        if not self.wanted():
            self._leave()
            return
        entry.granted()
        for front in self._fronts:
            front.stop_following()
        for path in entry.mine:
            follower = epoch.successors.get(path)
            if follower is not None:
                follower()
        self._done(self._make(epoch, entry.mine, token))

    def _tidy(self) -> None:
        for front in self._fronts:
            front.forget()
        if self._entry is not None:
            self._entry.leave()


class _Front:
    """Who is in front of us in one line.

    Attributes:
        clear: nobody is. watched: whom we watch. last: nobody is in front of that one.
    """

    def __init__(self, owner: MultiAcquisition[Any], index: int) -> None:
        self._owner = owner
        self.watched = ""
        self.index = index
        self.clear = False
        self.last = False

    def placed(self, found: Place, line: Line) -> None:
        """Watch the nearest in front, if there is one."""
        self.stop_following()
        blocked = ordering.blocker(found, line.blocks)
        self.clear = blocked is None
        if blocked is not None:
            contender, self.last = blocked
            self.watched = line.path(contender.node)
            if self._owner.epoch is not None:
                self._owner.epoch.successors[self.watched] = self._is_head
            self._ask()

    def _is_head(self) -> None:
        """Whom we watch, of the same session, was granted: nobody else is in front."""
        self.last = True

    def stop_following(self) -> None:
        """It need not tell us any more."""
        epoch = self._owner.epoch
        if epoch is not None and self.watched:
            epoch.successors.pop(self.watched, None)

    def forget(self) -> None:
        """It does not matter any more."""
        self.stop_following()
        if self.watched:
            self._owner.link.watches.forget(WATCH_DATA, self.watched, self._fired)

    def _ask(self) -> None:
        exists = Exists(self.watched, watch=True)
        owner = self._owner
        owner.link.watches.watch(exists, self._fired, self._asked, epoch=owner.epoch)

    def _asked(self, stat: Stat | None, error: CoordinationError | None) -> None:
        if not self._owner.wanted():
            self.forget()
        elif error is not None:
            self._owner.trouble(error, self._ask)
        elif stat is None:
            self.forget()
            self._owner.cleared(self)

    def _fired(self, event: WatchEvent | None) -> None:
        if not self._owner.wanted():
            return
        if event is not None and event.kind == NODE_DELETED:
            self._owner.cleared(self)
        else:
            self._ask()
