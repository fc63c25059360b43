"""Watching who leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

from zkcoord.core.ordering import in_order
from zkcoord.errors import CoordinationError
from zkcoord.recipes.contenders import Identity, read_identity
from zkcoord.zk.follow import Follower
from zkcoord.zk.link import Link
from zkcoord.zk.names import join
from zkcoord.zk.requests import Stat


class Leader(NamedTuple):
    """Who leads.

    Attributes:
        name: what the leader calls itself.
        term: rises with every leader.
        data: what it published when it campaigned, or proclaimed since.
        host, pid: where it runs.
        since: when it began to campaign, wall clock of its host.
    """

    name: str
    term: int
    data: bytes
    host: str
    pid: int
    since: float


def leader_of(who: Identity | None, term: int) -> Leader:
    """What the leader's node says of it."""
    if who is None:
        return Leader("", term, b"", "", 0, 0.0)
    return Leader(who.name, term, who.data, who.host, who.pid, who.since)


class Observer:
    """Someone who watches an election. Close it when you are done.

    Attributes:
        error: why it ended by itself, such as AccessDenied; None while it goes on.
    """

    def __init__(
        self, link: Link, folder: str, callback: Callable[[Leader | None], object]
    ) -> None:
        self._link = link
        self._folder = folder
        self._callback = callback
        self._closed = False
        self._told: Leader | bool | None = False
        self.error: CoordinationError | None = None
        self._follower: Follower | None = None
        link.loop.post(self._search)

    def close(self) -> None:
        """No more calls. From any thread."""
        self._closed = True
        self._link.loop.post(self._stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def _follow(self, follower: Follower) -> None:
        self._stop()
        if not self._closed:
            self._follower = follower
            follower.start()

    def _search(self) -> None:
        """Nobody is known to lead: follow the folder until somebody stands in front."""
        self._follow(Follower(self._link, self._folder, self._listed, children=True))

    def _listed(self, names: list[str] | None, error: CoordinationError | None) -> None:
        if error is not None:
            self.error = error
            return
        queue = in_order(names or ())
        if not queue:
            self._tell(None)
            return
        head = join(self._folder, queue[0].node)
        self._follow(Follower(self._link, head, self._seen, children=False, missing_ends=True))

    def _seen(self, result: tuple[bytes, Stat] | None, error: CoordinationError | None) -> None:
        if error is not None:
            self.error = error
        elif result is None:
            self._search()
        else:
            value, stat = result
            self._tell(leader_of(read_identity(value), stat.czxid))

    def _tell(self, leader: Leader | None) -> None:
        if leader != self._told:
            self._told = leader
            self._link.dispatcher.post(self._call, leader)

    def _call(self, leader: Leader | None) -> None:
        if not self._closed:
            self._callback(leader)
