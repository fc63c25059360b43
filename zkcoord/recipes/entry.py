"""A node in a queue: getting in, exactly once, and out again.

- *One flight.* create2 and getChildren are sent together: a session's requests are carried out in
  order, so one round trip tells place and token. Where others of the session wait already, the
  listing is shared with them: see :mod:`zkcoord.recipes.shared_queue`. Where the session was the
  last to hold, time after time, only create2 is sent: its reply mostly proves that nobody is in
  front, see :mod:`zkcoord.core.vacancy`; when it does not, the listing follows.
- *Unknown outcome.* When the link drops after a create was sent, the same request is created again
  and then listed: a write is ordered after the first one, a read is not. The lowest own node
  counts, the others are deleted. A refusal of the second one tells as much: the listing behind it
  shows what the first one did. Names carry session and request, so a foreign node is never taken
  for ours.
- *Leaving* goes on in the background until the node is known to be gone or the session is over.

Everything runs on the loop, except that `enter` may be called from elsewhere before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zkcoord.core import ordering
from zkcoord.core.ordering import Contender, Place
from zkcoord.core.vacancy import Moment, Vacancy, nobody_in_front
from zkcoord.errors import CoordinationError, LeaseLost, NodeExists, NodeMissing
from zkcoord.recipes.cut_short import answered_when_cut_short
from zkcoord.recipes.line import Asker, Line
from zkcoord.recipes.recount import Recount
from zkcoord.recipes.retrying import ask_again
from zkcoord.recipes.search import Search
from zkcoord.recipes.shared_queue import SharedQueue
from zkcoord.zk.call import Call, Reply
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.requests import EPHEMERAL, SEQUENTIAL, Create, Exists, GetChildren, Stat
from zkcoord.zk.translate import LinkDropped, definite

_SEQUENCE_BYTES = 11


class Entry:
    """One request's node in a line, in one session.

    Attributes: `asker` wants in; `mine` is the node that counts, absolute, empty while it is not
    known; so many `requests` were sent for this one alone.
    """

    def __init__(self, link: Link, line: Line, epoch: Epoch, asker: Asker) -> None:
        self._link = link
        self._line = line
        self._epoch = epoch
        self.asker = asker
        self._number = epoch.request()
        self._request = line.load + ordering.encode_request(self._number)
        self.key = (ordering.encode_session(epoch.id), self._request)  # as in the node's name
        name = ordering.prefix(line.kind, epoch.id, self._request, line.layout)
        self._prefix = line.path(name)
        self._room = 0
        self._calls: list[Call] = []
        self._refused: CoordinationError | None = None
        self._uncertain = False
        self._hidden = False  # what is uncertain may not be listed
        self._fresh = False  # the folder was made a moment ago
        self._vacancy: Vacancy | None = None
        self._first: Contender | None = None  # we are it, and nobody is in front of us
        self._tokens: dict[str, int] = {}
        self._left = False
        self._queue: SharedQueue | None = None
        self._contender: Contender | None = None
        self.mine = ""
        self.requests = 0

    @answered_when_cut_short
    def enter(self) -> None:
        """Send create and listing in one flight."""
        if not self._room:
            room = len(self._prefix.encode()) + _SEQUENCE_BYTES
            try:
                self._line.check(self._link.config.value_bytes_max)
                self._epoch.reserve(self._prefix, room)
            except CoordinationError as error:
                self._fail(error)
                return
            self._room = room
        folder = self._line.folder
        self._queue = SharedQueue.join(self._link, self._epoch, folder, self)
        with self._link.folders.turn:
            if self._link.folders.closed(folder):
                self._wait_for_folder()
            else:
                self._get_in()

    def _get_in(self) -> None:
        """Create, and list too unless that will hardly be needed. With the turn."""
        exclusive = self._line.kind == ordering.EXCLUSIVE
        alone = self._queue is None or self._queue.must_list(self, exclusive=exclusive)
        self._vacancy = left = self._epoch.vacancies.take(self._line.folder)
        lone = self._line.silent and self._line.recipe != "pool"  # its slots are read along
        if alone and exclusive and lone:
            alone = not (self._fresh or (left is not None and left.expected))
        self._fresh = False
        if alone:
            self._fly()
        else:
            creating = self._creation(self._joined)
            self._calls = [creating]
            self.requests += 1
            self._link.submit(creating)

    def _creation(self, reply: Reply) -> Call:
        create = Create(self._prefix, self._line.data, EPHEMERAL | SEQUENTIAL)
        return self._link.prepare(create, reply, epoch=self._epoch, verb="create")

    def _fly(self) -> None:
        creating = self._creation(self._create_replied)
        request = GetChildren(self._line.folder)
        listing = self._link.prepare(request, self._listed, epoch=self._epoch, verb="children")
        self._calls = [creating, listing]  # before they are sent: replies may come at once
        self.requests += 2
        self._link.submit(creating)
        self._link.submit(listing)
        self._line.listed()

    def _fly_again(self) -> None:
        """What was created may be there: create it once more, and list."""
        with self._link.folders.turn:
            self._vacancy, self._first = self._epoch.vacancies.take(self._line.folder), None
            self._fly()

    def look(self) -> None:
        """Look where it stands now."""
        if self._queue is not None:
            self._queue.forget()
            self._queue.look(self)

    def identify(self) -> None:
        """Learn the token of the node that counts."""
        token = self._tokens.get(self.mine)
        if token is not None:
            self.asker.identified(token)
        else:  # its create's reply was lost
            self.requests += 1
            exists = Exists(self.mine)
            self._link.call(exists, self._looked, epoch=self._epoch, verb="exists")

    @property
    def token(self) -> int:
        """The token of the node that counts; 0 while it is not known."""
        return self._tokens.get(self.mine, 0)

    def granted(self) -> None:
        """A lease takes the node over."""
        mine = self._contender
        if self._queue and mine and self._line.kind == ordering.EXCLUSIVE:
            self._queue.reached(mine)
            expected = self._first == mine
            folder = self._line.folder
            self._epoch.vacancies.held(folder, self.mine, mine.sequence, expected=expected)
        self._leave_queue()

    def reached(self, node: str) -> None:
        """All in front of this node have gone, which is ours or in front of ours."""
        contender = ordering.parse(node)
        if self._queue is not None and contender is not None:
            self._queue.reached(contender)

    def _leave_queue(self, *, forget: bool = False) -> None:
        self._left = True
        if self._queue is not None:
            if forget:
                self._queue.forget()
            self._queue.leave(self)
            self._queue = None

    def leave(self) -> None:
        """Leave nothing behind. May be called again and again."""
        if self._left or self._over():
            return
        if self._calls:
            for call in self._calls:
                call.abandoned = True
            return  # their replies come back here
        if self._uncertain:
            self._fly_again()
            return
        self._leave_queue()
        if self.mine:
            self._epoch.hold(self.mine, self._room)
            self._link.discard(self.mine, self._epoch, _ignore)
        if self._hidden:
            room = 0 if self.mine else self._room
            Search(self._link, self._epoch, self._line.folder, self._request, room)
        elif not self.mine:
            self._epoch.unreserve(self._room)

    def _over(self) -> bool:
        return self._link.closed or self._epoch.over()

    # --- replies ----------------------------------------------------------------------------------

    def _create_replied(self, result: Any, error: CoordinationError | None) -> None:
        self._refused = error
        if isinstance(error, NodeExists):
            self._refused = None  # the first one is there: see Recount
        elif isinstance(error, LinkDropped) and error.sent:
            self._uncertain = True
        elif error is None:
            path, stat = result
            self._tokens[path] = stat.czxid
            self.mine = self.mine or path
            self._compare(path, self._epoch.vacancies.created(stat.czxid))

    def _compare(self, path: str, created: Moment) -> None:
        """Whether the node's number alone tells that nobody is in front."""
        number, left, self._vacancy = path[len(self._prefix) :], self._vacancy, None
        exclusive = self._line.kind == ordering.EXCLUSIVE
        if exclusive and nobody_in_front(left, int(number), created):
            node = path.rpartition("/")[2]
            self._first = Contender(ordering.EXCLUSIVE, *self.key, int(number), node)

    def _listed(self, names: list[str] | None, error: CoordinationError | None) -> None:
        """The listing is here, and so is the reply of a create in the same flight."""
        self._calls = []
        if self._over():
            return  # the end of the session tells everybody
        ordered = ordering.in_order(names or ())
        if self._uncertain and (self._refused is None or definite(self._refused)):
            self._answered(ordered, error)
        if self._refused is not None:
            self._not_created(self._refused)
        elif error is not None:
            if self._queue is not None:
                self._queue.not_seen(self)
            self._trouble(error, self._again if self._uncertain else self.look)
        else:
            if self._queue is not None:
                self._queue.seen(self, ordered)
            self._place(ordering.place(ordered, self._epoch.id, self._request), names or ())

    def _answered(self, ordered: list[Contender], error: CoordinationError | None) -> None:
        """A create that was sent again is answered, which is ordered behind the first one."""
        if error is None or isinstance(error, NodeMissing):
            self._uncertain = False
            if ordering.place(ordered, self._epoch.id, self._request) is not None:
                self._refused = None  # the first one got in
        elif definite(error):
            self._uncertain, self._hidden = False, True
        else:
            self._refused = None  # the answer to the next one tells as much

    def _joined(self, result: Any, error: CoordinationError | None) -> None:
        """Created, and not listed: the place is still to be learned."""
        self._create_replied(result, error)
        self._calls = []
        if self._over():
            return
        if self._refused is not None:
            self._not_created(self._refused)
        elif error is not None:
            self._fly_again()
        elif not self.asker.wanted():
            self.leave()
        else:
            self._find_place()

    def _find_place(self) -> None:
        queue = self._queue
        if queue is None:
            return
        place = None
        if self._first is not None:
            queue.seen(self, [self._first])
            place = Place(0, self._first, (), ())
        else:
            contender = ordering.parse(self.mine.rpartition("/")[2])
            place = None if contender is None else queue.append(contender, self._line.behind)
        if place is None:
            self._epoch.hold(self.mine, self._room)
            queue.not_seen(self)
            queue.look(self)
        else:
            self._place(place)

    def _not_created(self, error: CoordinationError) -> None:
        if self._queue is not None:
            self._queue.not_seen(self)
            self._queue.forget()
        if not self._uncertain and not self.asker.wanted():
            self.leave()
        elif isinstance(error, NodeMissing):
            self._wait_for_folder()
        else:
            self._trouble(error, self._again)

    def _wait_for_folder(self) -> None:
        folder, container = self._line.folder, self._line.layout.container
        self._link.folders.wait(folder, self._number, self._ensured, container=container)

    def _ensured(self, error: CoordinationError | None) -> None:
        if error is None:
            self._fresh = True
            self._again()
        else:
            self._trouble(error, self._again)

    def _again(self) -> None:
        if self._over() or self._calls or self._left:
            return
        if self._uncertain:
            self._fly_again()
        elif self.asker.wanted():
            with self._link.folders.turn:
                self._get_in()
        else:
            self.leave()

    # --- what the shared queue reports ------------------------------------------------------------

    def listing_sent(self) -> None:
        """A listing that will tell the place was sent."""
        if not self._left:
            self._line.listed()

    def found(self, place: Place | None) -> None:
        """Where the node stands."""
        if not self._left and not self._over():
            self._place(place)

    def not_listed(self, error: CoordinationError) -> None:
        """The listing failed."""
        if not self._left and not self._over():
            self._trouble(error, self.look)

    # --- in the line ------------------------------------------------------------------------------

    def _place(self, found: Place | None, names: Sequence[str] = ()) -> None:
        if found is None:
            self._removed()
            return
        if ordering.exhausted(found.mine.sequence):
            self._wait_for_recount(found)
            return
        self._contender = found.mine
        self.mine = self._line.path(found.mine.node)
        self._epoch.hold(self.mine, self._room)
        for stray in found.strays:
            self._link.discard(self._line.path(stray.node), self._epoch, _ignore)
        if not self.asker.wanted():
            self.leave()
        elif (error := self._line.stranger(found.ahead, names)) is not None:
            self._fail(error)
        else:
            self.asker.placed(found)
            if self._queue is not None and found.position:
                self._queue.waits(self)

    def _wait_for_recount(self, found: Place) -> None:
        self._epoch.hold(self._line.path(found.mine.node), self._room)
        for own in (found.mine, *found.strays):
            self._link.discard(self._line.path(own.node), self._epoch, _ignore)
        self._leave_queue(forget=True)
        self._left, self.mine, self._room = False, "", 0
        Recount(self._link, self._epoch, [self._line.folder], self.asker.wanted, self.enter)

    def _looked(self, stat: Stat | None, error: CoordinationError | None) -> None:
        if error is not None:
            self._trouble(error, self.identify)
        elif stat is None or stat.owner != self._epoch.id:
            self._removed()
        else:
            self._tokens[self.mine] = stat.czxid
            self.asker.identified(stat.czxid)

    def _removed(self) -> None:
        """Somebody deleted the node."""
        if self.mine:
            self._epoch.hold(self.mine, self._room)
            self._epoch.free(self.mine)
        else:
            self._epoch.unreserve(self._room)
        self._leave_queue(forget=True)
        name = self._line.name
        text = f"{name}: the node was removed while it waited"
        self.asker.failed(LeaseLost(text, name=name, token=0, reason="removed"))

    def _trouble(self, error: CoordinationError, again: Callable[[], None]) -> None:
        ask_again(self._link, error, again, self._fail)

    def _fail(self, error: CoordinationError) -> None:
        self.asker.failed(error)
        self.leave()


def _ignore(_gone: bool) -> None:
    """Whether it went at once or with the session, it is gone."""
