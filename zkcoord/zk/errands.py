"""Small jobs of many steps, done on the loop for whoever needs them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zkcoord.errors import (
    AccessDenied,
    CoordinationError,
    EnsembleUnavailable,
    IdentityRefused,
    NodeExists,
    NodeMissing,
    SessionClosed,
    SessionLost,
)
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.names import parent
from zkcoord.zk.requests import Create, CreateContainer, Delete, Exists, Multi, Request, Stat
from zkcoord.zk.translate import LinkDropped

if TYPE_CHECKING:
    from zkcoord.zk.link import Link

log = logging.getLogger("zkcoord")

Done = Callable[[CoordinationError | None], object]

_PAUSE_S = 0.2


def discard(link: Link, path: str, epoch: Epoch, done: Callable[[bool], object]) -> None:
    """See :meth:`~zkcoord.zk.link.Link.discard`."""
    epoch.leaving.add(path)
    _Removal(link, path, epoch, done).ask()


class _Removal:
    """Of an ephemeral node. One for each release: no closures, which would hold each other."""

    __slots__ = ("_done", "_epoch", "_link", "_path")

    def __init__(self, link: Link, path: str, epoch: Epoch, done: Callable[[bool], object]) -> None:
        self._link = link
        self._path = path
        self._epoch = epoch
        self._done = done

    def ask(self) -> None:
        self._link.call(Delete(self._path), self._replied, epoch=self._epoch, verb="delete")

    def _replied(self, zxid: Any, error: CoordinationError | None) -> None:
        if error is None:
            self._epoch.vacancies.removed(self._path, zxid)
        if error is None or isinstance(error, NodeMissing):
            self._epoch.free(self._path)
            self._done(True)
        elif isinstance(error, EnsembleUnavailable) and not self._epoch.over():
            if isinstance(error, LinkDropped):
                self.ask()
            else:  # the server is there and in trouble
                self._link.timer(_PAUSE_S, self.ask)
        else:
            if not isinstance(error, (SessionLost, SessionClosed)):
                log.warning("%s", error)
            self._done(False)


def discard_all(link: Link, paths: list[str], epoch: Epoch, done: Callable[[bool], object]) -> None:
    """Delete ephemeral nodes of `epoch`, in one transaction when all are there.

    Otherwise each by itself, until it is gone or the session is over. `done(True)` on the loop
    once all are known to be gone, `done(False)` when the session ended first or the server refuses.
    """
    left, gone = len(paths), True

    def one(was_gone: bool) -> None:
        nonlocal left, gone
        left -= 1
        gone = gone and was_gone
        if not left:
            done(gone)

    def on_reply(results: list[Any] | None, error: CoordinationError | None) -> None:
        if error is None and not any(results or ()):
            for path in paths:
                epoch.free(path)
            done(True)
            return
        for path in paths:
            link.discard(path, epoch, one)

    if left == 1:
        link.discard(paths[0], epoch, done)
    else:
        request = Multi(tuple(Delete(path) for path in paths))
        link.call(request, on_reply, epoch=epoch, verb="leave")


def ensure(link: Link, path: str, done: Done, *, container: bool = False) -> None:
    """See :meth:`~zkcoord.zk.link.Link.ensure`."""
    request: Request = CreateContainer(path) if container else Create(path, b"")

    def ask() -> None:
        link.call(request, made, verb="create")

    def made(_result: object, error: CoordinationError | None) -> None:
        if isinstance(error, NodeMissing) and path != "/":
            ensure(link, parent(path), above)
        elif isinstance(error, AccessDenied) and not isinstance(error, IdentityRefused):
            _unless_there(link, path, error, done)
        else:
            done(None if isinstance(error, NodeExists) else error)

    def above(error: CoordinationError | None) -> None:
        if error is None:
            ask()
        else:
            done(error)

    ask()


def open_chroot(link: Link, path: str, done: Done) -> None:
    """Look for the session's own root, and make it where it is missing. A read when it is there."""

    def looked(stat: Stat | None, error: CoordinationError | None) -> None:
        if error is None and stat is None:
            ensure(link, path, done)
        else:
            done(None if _is_there(error) else error)

    link.call(Exists(path), looked, verb="exists")


def _unless_there(link: Link, path: str, denied: CoordinationError, done: Done) -> None:
    """We may not create a node; that is no error when it is there already.

    A server looks at the rights on the folder before it looks whether the node exists.
    """

    def looked(stat: Stat | None, error: CoordinationError | None) -> None:
        done(None if _is_there(error) and (stat or error) else error or denied)

    link.call(Exists(path), looked, verb="exists")


def _is_there(error: CoordinationError | None) -> bool:
    """Whether a look at a node found it: one that we may not read is there, too."""
    return error is None or (
        isinstance(error, AccessDenied) and not isinstance(error, IdentityRefused)
    )
