"""Where a waiter stands, for those who ask to be told.

A waiter watches its predecessor only, so it does not know its place. Whoever asks with
``on_position`` pays for it: the first who asks on a path lists the folder with a watch on its
children; after that the folder is listed again when something changed, once a second at most, and
the head's value is read when the head is another. All who ask on one path in one session share
that listing and that watch, so ten thousand of them cost what one does. Who does not ask pays
nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from zkcoord.core.ordering import Contender, Place
from zkcoord.core.pace import Pace, departed
from zkcoord.errors import CoordinationError, EnsembleUnavailable, SessionLost
from zkcoord.recipes.contenders import read_holder
from zkcoord.recipes.per_link import PerLink
from zkcoord.zk.clock import now
from zkcoord.zk.link import Link
from zkcoord.zk.loop import Timer
from zkcoord.zk.names import join
from zkcoord.zk.requests import WATCH_CHILDREN, GetChildren, WatchEvent
from zkcoord.zk.translate import LinkDropped

REFRESH_S = 1.0
_PAUSE_S = 0.2
_PACES_MAX = 256


class Position(NamedTuple):
    """Where a waiting request stands.

    Attributes:
        position: how many stand in front, the holder included: 1 is next.
        holder: who holds, or the empty string when it is not known.
        estimated_wait: seconds until it is its turn, from the hand-offs that this process saw on
            this path while somebody asked for positions; None before the first.
    """

    position: int
    holder: str
    estimated_wait: float | None


Order = Callable[[Iterable[str]], list[Contender]]
OnPosition = Callable[[Position], object]


class Telling:
    """Calls a user's function with the latest position, on the dispatcher.

    A function that is slower than the queue misses positions in between; at most one call waits.
    """

    def __init__(self, link: Link, callback: OnPosition) -> None:
        self._link = link
        self._callback = callback
        self._latest: Position | None = None
        self._told = (0, "")
        self._pending = False
        self._ended = False

    def tell(self, position: Position) -> None:
        """On the loop."""
        if self._told == position[:2]:
            return
        self._told = position[:2]
        self._latest = position
        if not self._pending:
            self._pending = True
            self._link.dispatcher.post(self._call)

    def end(self) -> None:
        """No more calls."""
        self._ended = True

    def _call(self) -> None:
        self._pending = False
        if not self._ended and self._latest is not None:
            self._callback(self._latest)


class Surveys:
    """The surveys of one link by folder, and the paces of folders that were surveyed before."""

    def __init__(self) -> None:
        self.open: dict[str, Survey] = {}
        self._paces: OrderedDict[str, Pace] = OrderedDict()

    def pace(self, folder: str) -> Pace:
        """What is known of a folder's pace; the 256 folders used last are remembered."""
        pace = self._paces.setdefault(folder, Pace(now()))
        pace.begin(now())
        self._paces.move_to_end(folder)
        if len(self._paces) > _PACES_MAX:
            self._paces.popitem(last=False)
        return pace


_surveys = PerLink(Surveys)


class Survey:
    """One folder, listed for all of a session who want to know where they stand. On the loop."""

    def __init__(self, link: Link, folder: str, order: Order, surveys: Surveys) -> None:
        self._link = link
        self._folder = folder
        self._order = order
        self._surveys = surveys
        self._pace = surveys.pace(folder)
        self.askers: dict[str, Telling] = {}
        self._nodes: list[str] = []
        self._index: dict[str, int] = {}
        self._head = ""
        self._holder = ""
        self._listed_at = 0.0
        self._timer: Timer | None = None

    @staticmethod
    def join(link: Link, folder: str, order: Order, found: Place, telling: Telling) -> None:
        """Tell where a node stands, now if the folder is surveyed, and whenever it changes."""
        surveys = _surveys.of(link)
        survey = surveys.open.get(folder)
        if survey is None:
            survey = surveys.open[folder] = Survey(link, folder, order, surveys)
            survey._list()
        elif survey._nodes and survey._head == found.ahead[0].node:
            survey._tell(telling, found.position, found.ahead[0].node)
        survey.askers[found.mine.node] = telling

    @staticmethod
    def leave(link: Link, folder: str, node: str) -> None:
        """Tell no more; the last one out takes the watch along."""
        surveys = _surveys.of(link)
        survey = surveys.open.get(folder)
        if survey is None:
            return
        survey.askers.pop(node, None)
        if not survey.askers:
            del surveys.open[folder]
            survey.close()

    def close(self) -> None:
        """Nobody asks any more."""
        self._link.watches.forget(WATCH_CHILDREN, self._folder, self._fired)
        if self._timer is not None:
            self._timer.cancel()

    def _list(self) -> None:
        self._timer = None
        self._listed_at = now()
        listing = GetChildren(self._folder, watch=True)
        self._link.watches.watch(listing, self._fired, self._listed)

    def _fired(self, _event: WatchEvent | None) -> None:
        self._again(max(0.0, self._listed_at + REFRESH_S - now()))

    def _again(self, pause: float) -> None:
        if self.askers and self._timer is None:
            self._timer = self._link.timer(pause, self._list)

    def _listed(self, names: list[str] | None, error: CoordinationError | None) -> None:
        if not self.askers:
            self.close()  # the watch of this very listing
        elif error is None:
            self._see([contender.node for contender in self._order(names or ())])
        elif isinstance(error, (LinkDropped, SessionLost, EnsembleUnavailable)):
            self._again(_PAUSE_S)  # those whose session is over leave by themselves

    def _see(self, nodes: list[str]) -> None:
        index = {node: place for place, node in enumerate(nodes)}
        self._pace.looked(now(), departed(self._nodes, index))
        self._nodes, self._index = nodes, index
        head = nodes[0] if nodes else ""
        if head == self._head:
            self._tell_all()
            return
        self._head, self._holder = head, ""

        def read(holder: str) -> None:
            if self._head == head:
                self._holder = holder
                self._tell_all()

        read_holder(self._link, [join(self._folder, head)] if head else [], read)

    def _tell_all(self) -> None:
        for node, telling in self.askers.items():
            self._tell(telling, self._index.get(node, 0), self._head)

    def _tell(self, telling: Telling, position: int, head: str) -> None:
        if position > 0:
            holder = self._holder if head == self._head else ""
            telling.tell(Position(position, holder, self._pace.estimate(position, now())))
