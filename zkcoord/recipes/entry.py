"""A node in a queue: getting in, exactly once, and out again.

- *One flight.* create2 and getChildren are sent together: a session's requests are carried out in
  order, so one round trip tells place and token.
- *Unknown outcome.* When the link drops after a create was sent, the same request is created again
  and then listed: a write is ordered after the first one, a read is not. The lowest own node
  counts, the others are deleted. Names carry session and request, so a foreign node is never
  taken for ours.
- *Leaving* goes on in the background until the node is known to be gone or the session is over.

Everything runs on the loop, except that `enter` may be called from elsewhere before anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from zkcoord.core import ordering
from zkcoord.core.layouts import Layout
from zkcoord.core.ordering import Contender, Place
from zkcoord.errors import (
    CoordinationError,
    EnsembleUnavailable,
    LeaseLost,
    NodeMissing,
    SessionClosed,
    SessionLost,
)
from zkcoord.zk.call import Call
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.names import join
from zkcoord.zk.requests import EPHEMERAL, SEQUENTIAL, Create, Exists, GetChildren, Stat
from zkcoord.zk.translate import LinkDropped

_PAUSE_S = 0.2
_SEQUENCE_BYTES = 11


class Line(NamedTuple):
    """What is queued up for.

    Attributes:
        folder: absolute path of the queue. name: for messages.
        data: value of the node. kind: letter of the node.
        blocks: whether a contender in front must go first.
        layout: how the node is named.
        load: stands before the request's number in the node's name.
        listed: called when a listing was sent: what is read then flies with it, behind it.
    """

    folder: str
    name: str
    data: bytes
    kind: str = ordering.EXCLUSIVE
    blocks: Callable[[Contender], bool] = lambda _: True
    layout: Layout = Layout.ZKCOORD
    load: str = ""
    listed: Callable[[], object] = lambda: None

    def path(self, node: str) -> str:
        """A node's absolute path."""
        return join(self.folder, node)


class Asker(Protocol):
    """Who wants to be in the line."""

    def wanted(self) -> bool:
        """Whether it still wants to; when not, the entry leaves by itself."""

    def placed(self, found: Place) -> None:
        """A listing shows where it stands."""

    def identified(self, token: int) -> None:
        """The answer to `identify`."""

    def failed(self, error: CoordinationError) -> None:
        """It cannot get in, or its node was removed."""


class Entry:
    """One request's node in a line, in one session."""

    def __init__(self, link: Link, line: Line, epoch: Epoch, asker: Asker) -> None:
        self._link = link
        self._line = line
        self._epoch = epoch
        self._asker = asker
        self._number = epoch.request()
        self._request = line.load + ordering.encode_request(self._number)
        name = ordering.prefix(line.kind, epoch.id, self._request, line.layout)
        self._prefix = line.path(name)
        self._room = 0
        self._calls: list[Call] = []
        self._refused: CoordinationError | None = None
        self._uncertain = False
        self._tokens: dict[str, int] = {}
        self._left = False
        self.mine = ""

    def enter(self) -> None:
        """Send create and listing in one flight."""
        if not self._room:
            room = len(self._prefix.encode()) + _SEQUENCE_BYTES
            try:
                self._epoch.reserve(self._prefix, room)
            except CoordinationError as error:
                self._fail(error)
                return
            self._room = room
        if self._link.folders.closed(self._line.folder):
            self._link.loop.post(self._at_the_gate)
        else:
            self._fly()

    def _fly(self) -> None:
        create = Create(self._prefix, self._line.data, EPHEMERAL | SEQUENTIAL)
        reply = self._create_replied
        creating = self._link.prepare(create, reply, epoch=self._epoch, verb="create")
        listing = self._listing()
        self._calls = [creating, listing]  # before they are sent: replies may come at once
        self._link.submit(creating)
        self._link.submit(listing)
        self._line.listed()

    def look(self) -> None:
        """Look where it stands now."""
        listing = self._listing()
        self._calls = [listing]
        self._link.submit(listing)
        self._line.listed()

    def _listing(self) -> Call:
        request = GetChildren(self._line.folder)
        return self._link.prepare(request, self._listed, epoch=self._epoch, verb="children")

    def identify(self) -> None:
        """Learn the token of the node that counts."""
        token = self._tokens.get(self.mine)
        if token is not None:
            self._asker.identified(token)
        else:  # its create's reply was lost
            exists = Exists(self.mine)
            self._link.call(exists, self._looked, epoch=self._epoch, verb="exists")

    @property
    def token(self) -> int:
        """The token of the node that counts; 0 while it is not known."""
        return self._tokens.get(self.mine, 0)

    def granted(self) -> None:
        """A lease takes the node over."""
        self._left = True

    def leave(self) -> None:
        """Leave nothing behind. May be called again and again."""
        if self._left or self._over():
            return
        if self._calls:
            for call in self._calls:
                call.abandoned = True
            return  # their replies come back here
        if self._uncertain:
            self._fly()
            return
        self._left = True
        if self.mine:
            self._epoch.hold(self.mine, self._room)
            self._link.discard(self.mine, self._epoch, _ignore)
        else:
            self._epoch.unreserve(self._room)

    def _over(self) -> bool:
        return self._link.closed or self._epoch.over()

    # --- replies ----------------------------------------------------------------------------------

    def _create_replied(self, result: Any, error: CoordinationError | None) -> None:
        self._refused = error
        if isinstance(error, LinkDropped) and error.sent:
            self._uncertain = True
        elif error is None:
            path, stat = result
            self._tokens[path] = stat.czxid
            self.mine = self.mine or path

    def _listed(self, names: list[str] | None, error: CoordinationError | None) -> None:
        """The listing is here, and so is the reply of a create in the same flight."""
        self._calls = []
        if self._over():
            return  # the end of the session tells everybody
        if self._refused is not None:
            if self._uncertain or self._asker.wanted():
                self._not_created(self._refused)
            else:
                self.leave()
        elif error is not None:
            self._trouble(error, self.look)
        else:
            self._uncertain = False
            self._place(names or [])

    def _not_created(self, error: CoordinationError) -> None:
        if isinstance(error, NodeMissing):
            self._wait_for_folder()
        else:
            self._trouble(error, self._again)

    def _at_the_gate(self) -> None:
        if self._link.folders.closed(self._line.folder):
            self._wait_for_folder()
        else:
            self._again()

    def _wait_for_folder(self) -> None:
        folder, container = self._line.folder, self._line.layout.container
        self._link.folders.wait(folder, self._number, self._ensured, container=container)

    def _ensured(self, error: CoordinationError | None) -> None:
        if error is None:
            self._again()
        else:
            self._trouble(error, self._again)

    def _again(self) -> None:
        if self._over() or self._calls or self._left:
            return
        if self._asker.wanted() or self._uncertain:
            self._fly()
        else:
            self.leave()

    def _place(self, names: list[str]) -> None:
        found = ordering.place(ordering.in_order(names), self._epoch.id, self._request)
        if found is None:
            self._removed()
            return
        self.mine = self._line.path(found.mine.node)
        self._epoch.hold(self.mine, self._room)
        for stray in found.strays:
            self._link.discard(self._line.path(stray.node), self._epoch, _ignore)
        if self._asker.wanted():
            self._asker.placed(found)
        else:
            self.leave()

    def _looked(self, stat: Stat | None, error: CoordinationError | None) -> None:
        if error is not None:
            self._trouble(error, self.identify)
        elif stat is None or stat.owner != self._epoch.id:
            self._removed()
        else:
            self._tokens[self.mine] = stat.czxid
            self._asker.identified(stat.czxid)

    def _removed(self) -> None:
        """Somebody deleted the node."""
        if self.mine:
            self._epoch.hold(self.mine, self._room)
            self._epoch.free(self.mine)
        else:
            self._epoch.unreserve(self._room)
        self._left = True
        name = self._line.name
        text = f"{name}: the node was removed while it waited"
        self._asker.failed(LeaseLost(text, name=name, token=0, reason="removed"))

    def _trouble(self, error: CoordinationError, again: Callable[[], None]) -> None:
        if isinstance(error, (SessionLost, SessionClosed)):
            return  # the end of the session tells everybody
        if isinstance(error, LinkDropped):
            again()
        elif isinstance(error, EnsembleUnavailable):
            self._link.timer(_PAUSE_S, again)
        else:
            self._fail(error)

    def _fail(self, error: CoordinationError) -> None:
        self._asker.failed(error)
        self.leave()


def _ignore(_gone: bool) -> None:
    """Whether it went at once or with the session, it is gone."""
