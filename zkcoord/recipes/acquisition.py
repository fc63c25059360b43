"""Waiting for something exclusive: the state machine of locks and elections.

The fair lock of the ZooKeeper recipes (Hunt et al., "ZooKeeper: Wait-free coordination for
Internet-scale systems", USENIX ATC 2010, §2.4), with these changes:

- *Getting in* is one flight, and exactly once: see :mod:`zkcoord.recipes.entry`.
- *Hand-off.* A waiter watches its nearest predecessor only. When that was the only one in front at
  the last listing, its end is the grant, without another read: nobody can come in front later.
  Otherwise the queue is listed once more, because those further in front may live on (a waiter
  gave up in the middle).
  A predecessor of the same session tells its successor when it is granted, so in a line of one
  process's waiters no hand-off needs a listing.
- *A try that cannot win writes nothing*: it lists first.
- After a reconnect a waiter asks only whether its predecessor is still there.
- *Readers* of a read-write lock are in front of each other without blocking, and watch the nearest
  writer. They read its value instead of asking whether it exists: a writer that went on as a
  reader says so there, and since it held, nothing else in front blocks.

How a request ends is in :mod:`zkcoord.recipes.waiting`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from zkcoord.core import ordering
from zkcoord.core.ordering import Contender, Place
from zkcoord.errors import CoordinationError, NodeMissing
from zkcoord.recipes.contenders import shares
from zkcoord.recipes.entry import Entry
from zkcoord.recipes.lasting import MARK
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.line import Line
from zkcoord.recipes.lock_delay import Gate
from zkcoord.recipes.position import OnPosition, Survey, Telling
from zkcoord.recipes.waiting import Waiting, not_granted
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.requests import (
    NODE_DELETED,
    WATCH_DATA,
    Exists,
    GetChildren,
    GetData,
    WatchEvent,
)

LeaseT = TypeVar("LeaseT", bound=Lease)


class Acquisition(Waiting[LeaseT]):
    """One request for a lease.

    Args:
        timeout: seconds; None waits until granted, cancelled or the session is lost; 0 tries.
        make: builds the lease from epoch, path and token.
        on_position: told where the request stands, see :mod:`zkcoord.recipes.position`.
        lock_delay: how long the next one is held back after an unclean end, see
            :mod:`zkcoord.recipes.lock_delay`; 0 does without.
    """

    def __init__(
        self,
        link: Link,
        line: Line,
        timeout: float | None,
        make: Callable[[Epoch, str, int], LeaseT],
        *,
        on_position: OnPosition | None = None,
        lock_delay: float = 0.0,
    ) -> None:
        super().__init__(link, line.name, f"{line.name}:", timeout)
        self._line = line
        self._make = make
        self._entry: Entry | None = None
        self._reads = line.kind == ordering.SHARED
        self._sharing = ""
        self._in_front = 0
        self._watched = ""
        self._last_in_front = False
        self._requests = 0
        self._telling = None if on_position is None else Telling(link, on_position)
        self._surveyed = ""
        self._gate: Gate | None = None
        if lock_delay:
            self._gate = Gate(link, line.folder, lock_delay, line.name, trying=self._trying)

    def _decided(self) -> None:
        if self._telling is not None:
            self._telling.end()
        super()._decided()

    def _cost(self) -> tuple[int, int]:
        asked = self._requests + (self._entry.requests if self._entry is not None else 0)
        return self._in_front, asked

    def _enter(self, epoch: Epoch) -> None:
        if self._trying:
            self._peek()
        else:
            self._queue_up(epoch)

    def _queue_up(self, epoch: Epoch) -> None:
        self._entry = Entry(self._link, self._line, epoch, self)
        self._entry.enter()

    # --- a try ------------------------------------------------------------------------------------

    def _peek(self) -> None:
        listing = GetChildren(self._line.folder)
        self._requests += 1
        self._link.call(listing, self._peeked, epoch=self._epoch, verb="children")

    def _peeked(self, names: list[str] | None, error: CoordinationError | None) -> None:
        if self.promise.done():
            return
        if error is not None and not isinstance(error, NodeMissing):
            self._trouble(error, self._peek)
            return
        ahead = [c for c in ordering.in_order(names or ()) if self._blocks(c)]
        foreign = self._line.stranger(ahead, names or ())
        if foreign is not None:
            self.failed(foreign)
        elif ahead:
            self._heads = [self._line.path(ahead[0].node)]
            if self._reads and len(ahead) == 1:
                request = GetData(self._heads[0])
                self._link.call(request, self._writer_read, epoch=self._epoch, verb="get")
            else:
                self._refuse()
        elif self._epoch is not None:
            if self._gate is not None and MARK in (names or ()):
                self._gate.peek(self._epoch, self._marked)
            else:
                self._queue_up(self._epoch)

    def _marked(self, free: bool) -> None:
        """Nobody is there, but the last holder ended uncleanly: whether that is long ago."""
        if not free:
            self._expired()
        elif not self.promise.done() and self._epoch is not None:
            self._queue_up(self._epoch)

    def _writer_read(self, result: Any, error: CoordinationError | None) -> None:
        """What the only writer in front says of itself."""
        if self.promise.done():
            return
        if error is not None and not isinstance(error, NodeMissing):
            self._trouble(error, self._peek)
        elif error is None and not shares(result[0]):
            self._refuse()
        elif self._epoch is not None:
            self._sharing = self._heads[0].rpartition("/")[2]
            self._queue_up(self._epoch)

    def _blocks(self, contender: Contender) -> bool:
        return self._line.blocks(contender) and contender.node != self._sharing

    # --- in the line: what the entry reports -----------------------------------------------------

    def placed(self, found: Place) -> None:
        """A listing shows where we stand."""
        self._in_front = self._in_front or found.position
        blocker = ordering.blocker(found, self._blocks)
        if blocker is None:
            self._grant()
            return
        contender, alone = blocker
        head = next(filter(self._blocks, found.ahead))
        nodes = [head.node] if alone else [head.node, contender.node]
        self._heads = [self._line.path(node) for node in nodes]
        if self._trying:
            self._refuse()
        else:
            self._stop_following()
            self._last_in_front = alone
            self._watched = self._line.path(contender.node)
            if self._epoch is not None:
                self._epoch.successors[self._watched] = self._front_is_head
            self._follow_position(found)
            self._ask()

    def _front_is_head(self) -> None:
        """Our predecessor, of the same session, was granted: nobody else is in front."""
        self._last_in_front = True

    def _follow_position(self, found: Place) -> None:
        if self._telling is not None and self._surveyed != found.mine.node:
            self._stop_telling()
            self._surveyed = found.mine.node
            folder, order = self._line.folder, ordering.in_order
            Survey.join(self._link, folder, order, found, self._telling)

    def _stop_telling(self) -> None:
        if self._surveyed:
            Survey.leave(self._link, self._line.folder, self._surveyed)
            self._surveyed = ""

    def _stop_following(self) -> None:
        if self._epoch is not None and self._watched:
            self._epoch.successors.pop(self._watched, None)

    def _ask(self) -> None:
        """Is the predecessor still there? Say so when it goes."""
        kind = GetData if self._reads else Exists
        request = kind(self._watched, watch=True)
        self._requests += 1
        self._link.watches.watch(request, self._fired, self._asked, epoch=self._epoch)

    def _asked(self, result: Any, error: CoordinationError | None) -> None:
        missing = isinstance(error, NodeMissing)
        if self.promise.done():
            self._unwatch()
        elif error is not None and not missing:
            self._trouble(error, self._ask)
        elif missing or result is None:
            self._unwatch()
            self._front_gone()
        elif self._reads and shares(result[0]):
            self._unwatch()
            self._grant()

    def _unwatch(self) -> None:
        self._link.watches.forget(WATCH_DATA, self._watched, self._fired)

    def _fired(self, event: WatchEvent | None) -> None:
        if self.promise.done():
            return
        if event is not None and event.kind == NODE_DELETED:
            self._front_gone()
        else:
            self._ask()

    def _front_gone(self) -> None:
        if self._last_in_front and self._went_alone(self._watched):
            self._grant()
        elif self._entry is not None:
            self._entry.look()

    def _grant(self) -> None:
        if self._entry is not None:
            self._entry.identify()

    def identified(self, token: int) -> None:
        """Our node's token is known: the lease can be made."""
        epoch, entry = self._epoch, self._entry
        assert epoch is not None
        assert entry is not None
        if epoch.over() or self._link.closed:
            return  # the end of the session tells everybody; closing it deletes whom we watch
        if self.promise.done():
            self._leave()
            return
        if self._gate is not None and not self._gate.passed:
            self._gate.open(epoch, entry.mine, token, self._gated)
            return
        entry.granted()
        self._stop_following()
        self._stop_telling()
        follower = epoch.successors.get(entry.mine)
        if follower is not None and not self._reads:  # other readers may stand in front
            follower()
        self._done(self._make(epoch, entry.mine, token))
        self._entry = None  # it holds us as we hold it

    def _gated(self, error: CoordinationError | None) -> None:
        if error is not None:
            self.failed(error)
        elif self._gate is not None and self._gate.passed:
            self._grant()
        else:
            self._expired()

    # --- the end ----------------------------------------------------------------------------------

    def _late(self, waited: float) -> str:
        if self._trying and self._holder:
            return f"{self._name} is held by {self._holder}"
        text = f"{self._name}: {not_granted(waited, trying=self._trying)}"
        if self._holder:
            text += f", held by {self._holder}"
        elif self._gate is not None and (self._gate.held_back or self._trying):
            text += ", held back: its last holder did not release it"
        elif not self._link.connected:
            text += f"; no link to ZooKeeper: {self._link.why_down}"
        return text

    def _session_over(self) -> None:
        super()._session_over()
        self._stop_telling()

    def _tidy(self) -> None:
        self._stop_telling()
        if self._watched:
            self._stop_following()
            self._unwatch()
        if self._entry is not None and not (self._gate and self._gate.leave(self._entry)):
            self._entry.leave()
