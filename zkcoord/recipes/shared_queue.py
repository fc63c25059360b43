"""One listing for all who wait in one folder on one session.

The first who comes lists for itself, in the flight of its create. While it is there, those who
come later only create: mostly that alone tells their place, see :mod:`zkcoord.core.known_queue`,
else the next listing serves all who need one. One is on its way at a time, so a crowd costs a few
listings and not one each. (Those who share a place may list for themselves as long as nobody has
to wait, a few at a time: it saves them a round trip.) On the loop, unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from zkcoord.core import ordering
from zkcoord.core.known_queue import Key, KnownQueue
from zkcoord.core.ordering import Contender, Place
from zkcoord.errors import CoordinationError
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.requests import GetChildren

LISTERS_MAX = 64
"""So many of those who may get in at once list the folder in their own flights at a time."""


class Member(Protocol):
    """Who needs a place."""

    @property
    def key(self) -> Key:
        """Its owner and request."""

    def listing_sent(self) -> None:
        """A listing that will tell its place was sent."""

    def found(self, place: Place | None) -> None:
        """Where it stands; None when it is not in the queue."""

    def not_listed(self, error: CoordinationError) -> None:
        """The listing failed."""


class SharedQueue:
    """A folder's queue, as long as somebody of the session is in it.

    What is known of it counts only while a node of somebody who waits stands in the folder. An
    empty folder may be removed by the server and made anew, and then it counts from 0 again.

    Attributes:
        crowded: whether somebody had to wait.
    """

    __slots__ = (
        "_anchors",
        "_asking",
        "_epoch",
        "_folder",
        "_known",
        "_link",
        "_listers",
        "_members",
        "_needy",
        "crowded",
    )

    def __init__(self, link: Link, epoch: Epoch, folder: str) -> None:
        self._link = link
        self._epoch = epoch
        self._folder = folder
        self._known = KnownQueue()
        self._members: dict[Key, Member] = {}
        self._anchors: set[Member] = set()
        self._listers: set[Member] = set()
        self._needy: list[Member] = []
        self._asking = False
        self.crowded = False

    @staticmethod
    def join(link: Link, epoch: Epoch, folder: str, member: Member) -> SharedQueue:
        """The folder's queue with one more in it. From any thread.

        A queue that its last member leaves at this moment is as good as another.
        """
        queue: SharedQueue | None = epoch.queues.get(folder)
        if queue is None:
            queue = epoch.queues.setdefault(folder, SharedQueue(link, epoch, folder))
        queue.add(member)
        return queue

    def add(self, member: Member) -> None:
        """One more. From any thread."""
        self._members[member.key] = member

    def leave(self, member: Member) -> None:
        """One less."""
        self.not_seen(member)
        self._members.pop(member.key, None)
        self._anchors.discard(member)
        if not self._anchors:
            self._known.forget()
        if not self._members and self._epoch.queues.get(self._folder) is self:
            del self._epoch.queues[self._folder]

    def waits(self, member: Member) -> None:
        """A member stands in the folder, behind others."""
        self._anchors.add(member)
        self.crowded = True

    def must_list(self, member: Member, *, exclusive: bool) -> bool:
        """Whether this member lists in its own flight. From any thread.

        Yes when nothing is known and nobody else is about to list; and when those who share a
        place may get in at once, as long as nobody has to wait, and not too many list already.
        """
        listing = len(self._listers)
        if exclusive or self.crowded:
            if listing or self._known:
                return False
        elif listing >= LISTERS_MAX:
            return False
        self._listers.add(member)
        return True

    def seen(self, member: Member, ordered: list[Contender]) -> None:
        """A member listed the folder. Replies come in order, so this is the latest news."""
        self.not_seen(member)
        self._known.listed(ordered)

    def not_seen(self, member: Member) -> None:
        """A member that was to list the folder does not."""
        self._listers.discard(member)

    def forget(self) -> None:
        """What is known may be wrong: the next who comes looks."""
        self._known.forget()

    def reached(self, contender: Contender) -> None:
        """All in front of this one have gone."""
        self._known.reached(contender)

    def append(
        self, contender: Contender, behind: Callable[[object], bool] | None = None
    ) -> Place | None:
        """The place of one of us who has just come in, if it is known without a listing.

        With `behind` only when that is true for the member who wants in right in front.
        """
        place = self._known.append(contender) if self._anchors else None
        if place is not None and behind is not None:
            last = place.ahead[-1] if place.ahead else contender
            other = self._members.get((last.owner, last.request))
            if other is None or last is contender or not behind(other):
                return None
        return place

    def look(self, member: Member) -> None:
        """Tell its place by the next listing."""
        self._needy.append(member)
        if not self._asking:
            self._ask()

    def _ask(self) -> None:
        self._asking = True
        members, self._needy = self._needy, []

        def listed(names: Any, error: CoordinationError | None) -> None:
            self._listed(members, names, error)

        listing = GetChildren(self._folder)
        self._link.call(listing, listed, epoch=self._epoch, verb="children")
        for member in members:
            member.listing_sent()

    def _listed(
        self, members: list[Member], names: list[str] | None, error: CoordinationError | None
    ) -> None:
        self._asking = False
        if error is not None:
            for member in members:
                member.not_listed(error)
        else:
            self._known.listed(ordering.in_order(names or ()))
            places = self._known.places(member.key for member in members)
            for member in members:
                member.found(places.get(member.key))
        if self._needy and not self._asking:
            self._ask()
