"""Watching a group: who came, who left, who has new data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

from zkcoord.errors import CoordinationError
from zkcoord.recipes.profiles import Profile, read_profile
from zkcoord.zk.follow import Follower
from zkcoord.zk.link import Link
from zkcoord.zk.names import join
from zkcoord.zk.requests import Stat


class Joined(NamedTuple):
    """A member came.

    Attributes:
        name: the member's.
        token: its incarnation, the node's czxid: a member that comes back has a higher one.
        data: what it publishes.
    """

    name: str
    token: int
    data: bytes

    @property
    def profile(self) -> Profile | None:
        """What it says of its capabilities and load; None when it joined without a profile."""
        return read_profile(self.data)


class Left(NamedTuple):
    """A member is gone: it left, or its session ended.

    Attributes:
        name, token: as when it joined.
    """

    name: str
    token: int


class Updated(NamedTuple):
    """A member has new data.

    Attributes:
        name, token: as when it joined.
        data: what it publishes now. Of changes that follow one another quickly only the last
            may be told.
    """

    name: str
    token: int
    data: bytes

    @property
    def profile(self) -> Profile | None:
        """As for :class:`Joined`."""
        return read_profile(self.data)


Diff = Joined | Left | Updated


class MembershipWatch:
    """Someone who watches a group. Close it when you are done.

    Attributes:
        error: why it ended by itself, such as AccessDenied; None while it goes on.
    """

    def __init__(self, link: Link, folder: str, callback: Callable[[Diff], object]) -> None:
        self._link = link
        self._folder = folder
        self._callback = callback
        self._closed = False
        self._known: dict[str, Joined] = {}
        self._versions: dict[str, int] = {}
        self._followers: dict[str, Follower] = {}
        self.error: CoordinationError | None = None
        self._children = Follower(link, folder, self._listed, children=True)
        link.loop.post(self._children.start)

    def close(self) -> None:
        """No more calls. From any thread."""
        self._closed = True
        self._link.loop.post(self._stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        for follower in (self._children, *self._followers.values()):
            follower.close()
        self._followers.clear()

    def _listed(self, names: list[str] | None, error: CoordinationError | None) -> None:
        if error is not None:
            self.error = error
            return
        present = set(names or ())
        for name in [name for name in self._followers if name not in present]:
            self._gone(name)
        for name in sorted(present - self._followers.keys()):
            self._follow(name)

    def _follow(self, name: str) -> None:
        def emit(result: Any, error: CoordinationError | None) -> None:
            if self._followers.get(name) is not follower:
                return
            if error is not None:
                self.error = error
            elif result is None:
                self._gone(name)
            else:
                self._seen(name, *result)

        path = join(self._folder, name)
        follower = Follower(self._link, path, emit, children=False, missing_ends=True)
        self._followers[name] = follower
        follower.start()

    def _gone(self, name: str) -> None:
        self._followers.pop(name).close()
        known = self._known.pop(name, None)
        if known is not None:
            self._tell(Left(name, known.token))

    def _seen(self, name: str, data: bytes, stat: Stat) -> None:
        known = self._known.get(name)
        if known is not None and known.token != stat.czxid:
            self._tell(Left(name, known.token))
            known = None
        self._known[name] = Joined(name, stat.czxid, data)
        if known is None:
            self._tell(self._known[name])
        elif stat.version != self._versions[name]:
            self._tell(Updated(name, stat.czxid, data))
        self._versions[name] = stat.version

    def _tell(self, diff: Diff) -> None:
        self._link.dispatcher.post(self._call, diff)

    def _call(self, diff: Diff) -> None:
        if not self._closed:
            self._callback(diff)
