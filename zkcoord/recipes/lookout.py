"""What a waiting request watches: nodes in front of it, and a limit. On the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from zkcoord.errors import (
    CoordinationError,
    NodeMissing,
)
from zkcoord.recipes.retrying import ask_again
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.names import join
from zkcoord.zk.requests import NODE_DELETED, WATCH_DATA, Exists, GetData, WatchEvent

_FOLDER = ""


class Watcher(Protocol):
    """Who looks out."""

    def gone(self, node: str) -> None:
        """A watched node is not there any more."""

    def told(self, node: str, value: bytes) -> None:
        """The value of a followed node, now and after each change."""

    def limited(self, value: bytes) -> None:
        """The value of the folder, now and after each change."""

    def failed(self, error: CoordinationError) -> None:
        """It cannot be watched."""


class Lookout:
    """One-shot watches of one session, set again as long as they are wanted.

    ZooKeeper sends a watch's event before anything that happened later, so while `live` holds the
    folder's value as last told is the one that stood when anything else was told.

    Attributes:
        live: whether the folder is watched and nothing happened to it since it was told.
    """

    def __init__(self, link: Link, epoch: Epoch, folder: str, watcher: Watcher) -> None:
        self._link = link
        self._epoch = epoch
        self._folder = folder
        self._watcher = watcher
        self._eyes: dict[str, _Eye] = {}
        self.live = False

    def follow(self, node: str) -> None:
        """Watch this node and its value, and nothing else."""
        for other in [other for other in self._eyes if other != node]:
            self._shut(other)
        self._open(node, follows=True)

    def watch(self, nodes: Iterable[str]) -> None:
        """Watch the folder, and these nodes besides those that are watched."""
        self._open(_FOLDER, follows=True)
        for node in nodes:
            self._open(node, follows=False)

    def hand_over(self, watcher: Watcher, own: Lookout) -> None:
        """Look out for another of the same session and folder, and for what it watched itself.

        Nothing is asked again, and what is watched is not gone through: it may be much.
        """
        self._watcher = watcher
        for node, eye in own._eyes.items():
            if node in self._eyes:
                own._forget(eye)
                continue
            eye.lookout = self
            self._eyes[node] = eye
            if node == _FOLDER:
                self.live = own.live
        own._eyes = {}
        own.live = False

    def close(self) -> None:
        """Take all watches back."""
        for node in list(self._eyes):
            self._shut(node)

    def _open(self, node: str, *, follows: bool) -> None:
        if node not in self._eyes:
            eye = self._eyes[node] = _Eye(self, node, follows=follows)
            self.ask(eye)

    def _shut(self, node: str) -> None:
        self._forget(self._eyes.pop(node))
        if node == _FOLDER:
            self.live = False

    def _forget(self, eye: _Eye) -> None:
        eye.lookout = None
        self._link.watches.forget(WATCH_DATA, self._path(eye), eye.fired)

    def _path(self, eye: _Eye) -> str:
        return join(self._folder, eye.node) if eye.node else self._folder

    def ask(self, eye: _Eye) -> None:
        """Send the read that sets its watch."""
        path, watches = self._path(eye), self._link.watches

        def asked(result: Any, error: CoordinationError | None) -> None:
            if eye.lookout is None:
                watches.forget(WATCH_DATA, path, eye.fired)
            else:
                eye.lookout.answered(eye, result, error)

        request = GetData(path, watch=True) if eye.follows else Exists(path, watch=True)
        watches.watch(request, eye.fired, asked, epoch=self._epoch)

    def answered(self, eye: _Eye, result: Any, error: CoordinationError | None) -> None:
        """The reply to `ask`."""
        if isinstance(error, NodeMissing) and eye.node:
            del self._eyes[eye.node]
            self._watcher.gone(eye.node)
        elif error is not None:
            ask_again(self._link, error, eye.again, self._watcher.failed)
        elif eye.node == _FOLDER:
            self.live = True
            self._watcher.limited(result[0])
        elif eye.follows:
            self._watcher.told(eye.node, result[0])
        elif result is None:
            self._shut(eye.node)
            self._watcher.gone(eye.node)

    def fired(self, eye: _Eye, event: WatchEvent | None) -> None:
        """A watch fired."""
        if eye.node == _FOLDER:
            self.live = False
        elif event is not None and event.kind == NODE_DELETED:
            del self._eyes[eye.node]
            self._watcher.gone(eye.node)
            return
        self.ask(eye)


class _Eye:
    """One watched node; the folder when it has no name."""

    __slots__ = ("fired", "follows", "lookout", "node")

    def __init__(self, lookout: Lookout, node: str, *, follows: bool) -> None:
        self.lookout: Lookout | None = lookout
        self.node = node
        self.follows = follows
        self.fired: Callable[[WatchEvent | None], None] = self._fired  # one object: it is a key

    def again(self) -> None:
        """Ask once more, if it is still wanted."""
        if self.lookout is not None:
            self.lookout.ask(self)

    def _fired(self, event: WatchEvent | None) -> None:
        if self.lookout is not None:
            self.lookout.fired(self, event)
