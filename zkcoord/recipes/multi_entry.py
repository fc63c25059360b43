"""Nodes in several queues at once: getting in, exactly once, and out again.

As :mod:`zkcoord.recipes.entry`, but with one `multi` that creates a node in every queue, so the
request has one place in the history of all of them, and nothing when it has not all.

- *One flight.* The multi and a listing of every queue are sent together. Where others of the
  session wait already, the listings are shared with them and with those who wait for a single
  lock: see :mod:`zkcoord.recipes.shared_queue`.
- *Unknown outcome.* The same request is written again: the second multi is ordered after the first.
  The lowest own nodes count in every queue, the others are deleted. An error that the server gives
  to the second one tells as much: the listings behind it show what the first one did.
- *Leaving* is one multi of deletes. When it fails, because one node was gone already or the link
  dropped, each node is deleted by itself until it is known to be gone or the session is over.

Everything runs on the loop, except that `enter` may be called from elsewhere before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from zkcoord.core import ordering
from zkcoord.core.ordering import Contender, Place
from zkcoord.errors import CoordinationError, EnsembleUnavailable, LeaseLost, NodeMissing
from zkcoord.recipes.cut_short import answered_when_cut_short
from zkcoord.recipes.line import Line
from zkcoord.recipes.multi_line import MultiAsker, Seat, first_stranger, make_all, refusal
from zkcoord.recipes.recount import Recount
from zkcoord.recipes.retrying import ask_again
from zkcoord.recipes.search import Search
from zkcoord.recipes.shared_queue import SharedQueue
from zkcoord.zk.call import Call
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.errands import discard_all
from zkcoord.zk.link import Link
from zkcoord.zk.requests import (
    EPHEMERAL,
    SEQUENTIAL,
    Create,
    Exists,
    GetChildren,
    Multi,
    Stat,
)
from zkcoord.zk.translate import LinkDropped

_SEQUENCE_BYTES = 11


class MultiEntry:
    """One request's nodes in several lines, in one session.

    Attributes:
        mine: the nodes that count, absolute, in the order of the lines; "" for one not known.
    """

    def __init__(
        self, link: Link, lines: tuple[Line, ...], name: str, epoch: Epoch, asker: MultiAsker
    ) -> None:
        self._link = link
        self._lines = lines
        self._name = name
        self._epoch = epoch
        self._asker = asker
        self._number = epoch.request()
        self._request = ordering.encode_request(self._number)
        self._prefixes = [
            line.path(ordering.prefix(line.kind, epoch.id, self._request)) for line in lines
        ]
        self._rooms = [len(prefix.encode()) + _SEQUENCE_BYTES for prefix in self._prefixes]
        self._calls: list[Call] = []
        self._awaited = 0
        self._refused: CoordinationError | None = None
        self._unlisted: CoordinationError | None = None
        self._uncertain = False
        self._hidden = False  # what is uncertain may not be listed everywhere
        self._listings: dict[int, list[Contender]] = {}
        key = ordering.encode_session(epoch.id), self._request
        self._seats = [Seat(self, index, key) for index in range(len(lines))]
        self._queues: list[SharedQueue] = []  # while it is in them, or about to be
        self._places: dict[int, Place | None] = {}
        self._foreign: CoordinationError | None = None
        self._inside = False
        self._created: list[str] = []
        self._tokens: dict[str, int] = {}
        self._left = False
        self.mine = [""] * len(lines)

    @answered_when_cut_short
    def enter(self) -> None:
        """Send the multi and the listings in one flight."""
        self._left = False
        try:
            self._epoch.reserve(self._prefixes[0], sum(self._rooms))
        except CoordinationError as error:
            self._left = True
            self._asker.failed(error)
            return
        self._queues = []
        for line, seat in zip(self._lines, self._seats, strict=True):
            self._queues.append(SharedQueue.join(self._link, self._epoch, line.folder, seat))
        with self._link.folders.turn:
            closed = [line for line in self._lines if self._link.folders.closed(line.folder)]
            if closed:
                self._wait_for(closed)
            else:
                self._get_in()

    def look(self, index: int) -> None:
        """Look where it stands now in one line."""
        if self._queues:
            self._queues[index].forget()
            self._queues[index].look(self._seats[index])

    def identify(self) -> None:
        """Learn the token: every node of the multi has the same."""
        token = self._tokens.get(self.mine[0])
        if token is not None:
            self._asker.identified(token)
        else:  # its multi's reply was lost
            request = Exists(self.mine[0])
            self._link.call(request, self._token_found, epoch=self._epoch, verb="exists")

    def granted(self) -> None:
        """A lease takes the nodes over."""
        self._left = True
        for index, queue in enumerate(self._queues):
            place = self._places.get(index)
            if place is not None:
                queue.reached(place.mine)
        self._leave_queues()

    def _leave_queues(self, *, forget: bool = False) -> None:
        queues, self._queues, self._inside, self._places = self._queues, [], False, {}
        for queue, seat in zip(queues, self._seats, strict=False):
            if forget:
                queue.forget()
            queue.leave(seat)

    def leave(self) -> None:
        """Leave nothing behind. May be called again and again."""
        if self._left or self._over():
            return
        if self._awaited:
            for call in self._calls:
                call.abandoned = True
            return  # their replies come back here
        if self._uncertain:
            self._fly(range(len(self._lines)))
            return
        self._left = True
        self._leave_queues()
        for index, (path, room) in enumerate(zip(self.mine, self._rooms, strict=True)):
            if self._hidden and index not in self._listings:
                folder = self._lines[index].folder
                Search(self._link, self._epoch, folder, self._request, 0 if path else room)
            elif not path:
                self._epoch.unreserve(room)
        if known := [path for path in self.mine if path]:
            discard_all(self._link, known, self._epoch, _ignore)

    def _over(self) -> bool:
        return self._link.closed or self._epoch.over()

    # --- a flight ---------------------------------------------------------------------------------

    def _get_in(self) -> None:
        """Create, and list where nobody else's listing tells as much. With the turn."""
        queues = zip(self._queues, self._seats, strict=True)
        alone = [queue.must_list(seat, exclusive=True) for queue, seat in queues]
        self._fly([index for index, must in enumerate(alone) if must])

    def _fly(self, listed: Sequence[int]) -> None:
        creates = tuple(
            Create(prefix, line.data, EPHEMERAL | SEQUENTIAL)
            for prefix, line in zip(self._prefixes, self._lines, strict=True)
        )
        prepare = partial(self._link.prepare, epoch=self._epoch)
        self._send([prepare(Multi(creates), self._entered, verb="enter"), *self._list(listed)])

    def _list_again(self) -> None:
        if not (self._over() or self._awaited or self._left):
            self._send(self._list(range(len(self._lines))))

    def _list(self, indexes: Sequence[int]) -> list[Call]:
        self._listings = {}
        self._unlisted = None
        prepare = partial(self._link.prepare, epoch=self._epoch, verb="children")
        return [
            prepare(GetChildren(self._lines[index].folder), partial(self._listed, index))
            for index in indexes
        ]

    def _send(self, calls: list[Call]) -> None:
        self._calls = calls  # before they are sent: replies may come at once
        self._awaited = len(calls)
        for call in calls:
            self._link.submit(call)

    def _entered(self, results: list[Any] | None, error: CoordinationError | None) -> None:
        error = error or refusal(self._link, "enter", self._lines, results or [])
        self._refused = error
        if isinstance(error, EnsembleUnavailable):
            self._uncertain = self._uncertain or not isinstance(error, LinkDropped) or error.sent
        elif error is None:
            self._created = [path for path, _ in results or ()]
            self._tokens.update((path, stat.czxid) for path, stat in results or ())
            if not self._uncertain:
                self._keep(self._created)
        self._landed()

    def _listed(self, index: int, names: list[str] | None, error: CoordinationError | None) -> None:
        if error is None or isinstance(error, NodeMissing):
            self._listings[index] = ordering.in_order(names or ())
            self._foreign = self._foreign or self._lines[index].stranger((), names or ())
        else:
            self._unlisted = error
        if error is None:
            self._queues[index].seen(self._seats[index], self._listings[index])
        else:
            self._queues[index].not_seen(self._seats[index])
        self._landed()

    def _landed(self) -> None:
        self._awaited -= 1
        if self._awaited:
            return
        self._calls = []
        if self._over():
            return  # the end of the session tells everybody
        refused = self._refused
        if isinstance(refused, EnsembleUnavailable):
            if self._uncertain or self._asker.wanted():
                self._trouble(refused, self._again)
            else:
                self.leave()
        elif isinstance(self._unlisted, EnsembleUnavailable):
            self._trouble(self._unlisted, self._list_again)
        else:
            self._hidden = self._uncertain and self._unlisted is not None
            self._uncertain = False
            self._settled(refused or self._unlisted)

    def _settled(self, error: CoordinationError | None) -> None:
        """What became of all that was sent is known; where we stand, not everywhere yet."""
        session, request = self._epoch.id, self._request
        self._places = {
            index: ordering.place(queue, session, request)
            for index, queue in self._listings.items()
        }
        if error is not None:
            for queue in self._queues:
                queue.forget()
            self._place(error)
            return
        missing = [index for index in range(len(self._lines)) if index not in self._places]
        for index in tuple(missing):
            mine = ordering.parse(self._created[index].rpartition("/")[2])
            place = None if mine is None else self._queues[index].append(mine)
            if place is not None:
                self._places[index] = place
                missing.remove(index)
        if not missing:
            self._place(None)
        elif self._asker.wanted():
            for index in missing:
                self._queues[index].look(self._seats[index])
        else:
            self.leave()

    def _place(self, error: CoordinationError | None) -> None:
        """Where we stand is known, unless there was an error."""
        found = [self._places.get(index) for index in range(len(self._lines))]
        standing = list(zip(self._lines, found, strict=True))
        self._keep([line.path(one.mine.node) if one else "" for line, one in standing])
        self._keep(self._created)
        for line, place in standing:
            for stray in place.strays if place else ():
                self._link.discard(line.path(stray.node), self._epoch, _ignore)
        whole = ordering.whole(found)
        if whole and any(p and ordering.exhausted(p.mine.sequence) for p in found):
            self._wait_for_recount()
        elif whole and self._asker.wanted():
            self._get_ahead([place for place in found if place is not None])
        elif whole:
            self.leave()
        elif isinstance(error, NodeMissing) and self._asker.wanted() and not any(self.mine):
            self._wait_for(self._lines)
        elif error is not None:
            self._fail(error)
        else:
            self._removed()

    def _get_ahead(self, places: list[Place]) -> None:
        error = self._foreign or first_stranger(self._lines, places)
        if error is not None:
            self._fail(error)
            return
        self._inside = True
        self._asker.entered(places)
        for queue, seat, place in zip(self._queues, self._seats, places, strict=False):
            if place.position:
                queue.waits(seat)

    def _wait_for_recount(self) -> None:
        self._left = True
        self._leave_queues(forget=True)
        discard_all(self._link, self.mine, self._epoch, _ignore)
        self.mine, self._created = [""] * len(self._lines), []
        folders = [line.folder for line in self._lines]
        Recount(self._link, self._epoch, folders, self._asker.wanted, self.enter)

    def _keep(self, paths: list[str]) -> None:
        """These nodes are ours, where none is known yet."""
        for index, path in enumerate(paths):
            if path and not self.mine[index]:
                self.mine[index] = path
                self._epoch.hold(path, self._rooms[index])

    # --- folders ----------------------------------------------------------------------------------

    def _wait_for(self, lines: Sequence[Line]) -> None:
        make_all(self._link, lines, self._number, self._made)

    def _made(self, error: CoordinationError | None) -> None:
        if error is None:
            self._again()
        else:
            self._trouble(error, self._again)

    def _again(self) -> None:
        if self._over() or self._awaited or self._left:
            return
        if self._uncertain:
            self._fly(range(len(self._lines)))
        elif self._asker.wanted():
            with self._link.folders.turn:
                self._get_in()
        else:
            self.leave()

    # --- later ------------------------------------------------------------------------------------

    def found(self, index: int, place: Place | None) -> None:
        """Where we stand in one line, as a shared listing has it."""
        if self._left or self._over() or not self._asker.wanted():
            return
        self._places[index] = place
        if not self._inside:
            if len(self._places) == len(self._lines):
                self._place(None)
        elif place is None or self._lines[index].path(place.mine.node) != self.mine[index]:
            self._removed()
        else:
            self._asker.placed(index, place)

    def not_listed(self, index: int, error: CoordinationError) -> None:
        """A shared listing failed."""
        if self._left or self._over() or not self._asker.wanted():
            return
        if isinstance(error, NodeMissing):
            self.found(index, None)
        else:
            self._trouble(error, partial(self.look, index))

    def _token_found(self, stat: Stat | None, error: CoordinationError | None) -> None:
        if self._left or self._over():
            return
        if error is not None:
            self._trouble(error, self.identify)
        elif stat is None:
            self._removed()
        else:
            self._tokens[self.mine[0]] = stat.czxid
            self._asker.identified(stat.czxid)

    def _removed(self) -> None:
        """Somebody deleted one of the nodes."""
        for queue in self._queues:
            queue.forget()
        text = f"{self._name}: one of its nodes was removed while it waited"
        self._fail(LeaseLost(text, name=self._name, token=0, reason="removed"))

    def _trouble(self, error: CoordinationError, again: Callable[[], None]) -> None:
        ask_again(self._link, error, again, self._fail)

    def _fail(self, error: CoordinationError) -> None:
        self._asker.failed(error)
        self.leave()


def _ignore(_gone: bool) -> None:
    """Whether they went at once or with the session, they are gone."""
