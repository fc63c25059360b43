"""Nodes that may be there and may not be seen: looked for until they are gone.

A create of unknown outcome is resolved by a listing. Where the listing is refused, nothing tells
the node's number: somebody changed the folder's access list in between. The request fails, and the
listing is repeated from time to time until it is permitted, or the session is over and with it the
node.
"""

from __future__ import annotations

from zkcoord.core import ordering
from zkcoord.errors import CoordinationError, NodeMissing, SessionClosed, SessionLost
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link, log
from zkcoord.zk.names import join
from zkcoord.zk.requests import GetChildren

_PAUSE_S = 1.0


class Search:
    """Looks for a request's nodes in a folder, and deletes them. On the loop.

    Args:
        folder: absolute path. request: as in the nodes' names.
        room: bytes that are reserved for a node that may not exist.
    """

    def __init__(self, link: Link, epoch: Epoch, folder: str, request: str, room: int) -> None:
        self._link = link
        self._epoch = epoch
        self._folder = folder
        self._request = request
        self._room = room
        log.warning(
            "%s: may not be listed any more, so a node of this session may block others there",
            link.relative(folder),
        )
        link.timer(_PAUSE_S, self._look)

    def _look(self) -> None:
        if not (self._epoch.over() or self._link.closed):
            request = GetChildren(self._folder)
            self._link.call(request, self._listed, epoch=self._epoch, verb="children")

    def _listed(self, names: list[str] | None, error: CoordinationError | None) -> None:
        if isinstance(error, (SessionLost, SessionClosed)):
            return  # the nodes are gone with it
        if error is not None and not isinstance(error, NodeMissing):
            self._link.timer(_PAUSE_S, self._look)
            return
        found = ordering.place(ordering.in_order(names or ()), self._epoch.id, self._request)
        if found is None:
            self._epoch.unreserve(self._room)
            return
        for number, own in enumerate((found.mine, *found.strays)):
            path = join(self._folder, own.node)
            self._epoch.hold(path, 0 if number else self._room)
            self._link.discard(path, self._epoch, _ignore)


def _ignore(_gone: bool) -> None:
    """Whether it went at once or with the session, it is gone."""
