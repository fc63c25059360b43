"""A cache of one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from zkcoord.errors import CoordinationError, SessionClosed, WaitTimeout
from zkcoord.recipes.tree_diff import Cached, NodeDiff, Telling
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.callbacks import check_callback
from zkcoord.zk.condition import shown
from zkcoord.zk.follow import Follower
from zkcoord.zk.link import Link
from zkcoord.zk.names import check_path
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Stat
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.verbs import check_timeout

READY_S = 10.0


class Readiness:
    """Waiting until a cache has read everything for the first time."""

    def __init__(self, link: Link, what: str) -> None:
        self._link = link
        self._what = what
        self._first: Promise[None] = Promise(link.dispatcher)

    def reached(self) -> None:
        """It has."""
        self._first.fulfil(None)

    def is_reached(self) -> bool:
        """Whether it was read."""
        return self._first.done() and not self._first.cancelled() and not self._first.exception()

    def failed(self, error: CoordinationError) -> None:
        """It will not."""
        self._first.fail(error)

    def wait_future(self, timeout: float) -> Promise[None]:
        """Done when it has."""
        promise: Promise[None] = Promise(self._link.dispatcher)
        timer = self._link.timer(check_timeout(timeout), self._late, promise, timeout)

        def settle() -> None:
            timer.cancel()
            error = self._first.exception()
            if error is None:
                promise.fulfil(None)
            else:
                promise.fail(error)

        self._first.on_done(settle)
        return promise

    def _late(self, promise: Promise[None], timeout: float) -> None:
        why = "" if self._link.connected else f"; no link to ZooKeeper: {self._link.why_down}"
        promise.fail(WaitTimeout(f"{self._what}: not read within {timeout:g} s{why}"))


class NodeCache:
    """The value of one node at hand, without a round trip; it follows the node until it is closed.

    ::

        with NodeCache(session, "/config/web") as cache:
            cache.wait_ready()
            cache.get()

    It goes on across reconnects and lost sessions. While there is no link it holds what was last
    seen. After a reconnect the node is read once.

    Args:
        session: whose link is used.
        path: the node below the session's chroot; it need not be there.
        on_change: called with NodeAdded, NodeChanged and NodeRemoved, first for what is there at
            the beginning, on the session's dispatcher thread; it may block.

    Attributes:
        error: why it ended by itself, such as AccessDenied; None while it goes on.

    Raises:
        NameRefused: not a path.
        SessionClosed: the session is not started, or closed.
    """

    def __init__(
        self,
        session: Session,
        path: str,
        *,
        on_change: Callable[[NodeDiff], object] | None = None,
    ) -> None:
        self.path = check_path(path)
        self._link = check_session(session).link
        self._link.check_open()
        check_callback(on_change, "on_change")
        self._telling = Telling(self._link.dispatcher, on_change)
        self._ready = Readiness(self._link, f"cache of {path}")
        self._node: Cached | None = None
        self.error: CoordinationError | None = None
        self._follower = Follower(self._link, self._link.absolute(path), self._read, children=False)
        self._link.loop.post(self._follower.start)

    def __repr__(self) -> str:
        if self.error is not None:
            state = f"ended: {type(self.error).__name__}"
        elif self._follower.closed:
            state = "closed"
        elif not self._ready.is_reached():
            state = "not read yet"
        else:
            node = self._node
            state = "missing" if node is None else f"version {node.stat.version}"
        return shown(self, self.path, self._link, state)

    def get(self) -> Cached | None:
        """The node as it was last seen; None when it is not there, or not read yet.

        Raises:
            CoordinationError: the cache has ended with this error.
        """
        if self.error is not None:
            raise self.error
        return self._node

    def wait_ready(self, timeout: float = READY_S) -> None:
        """Wait until the node was read for the first time.

        Raises:
            WaitTimeout: not in time.
            AccessDenied, SessionClosed: it cannot be read.
            RuntimeError: called inside an event loop; use ``await cache.ready_future()``.
        """
        refuse_in_event_loop("cache.wait_ready()", "await cache.ready_future()")
        self.ready_future(timeout).wait()

    def ready_future(self, timeout: float = READY_S) -> Promise[None]:
        """The same, to be awaited."""
        return self._ready.wait_future(timeout)

    def close(self) -> None:
        """Stop following; `get` gives what was last seen. From any thread."""
        self._telling.close()
        self._link.loop.post(self._stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        self._follower.close()
        self._ready.failed(SessionClosed(f"cache of {self.path}: closed"))

    def _read(self, result: tuple[bytes, Stat] | None, error: CoordinationError | None) -> None:
        if error is not None:
            self.error = error
            self._ready.failed(error)
            return
        before = self._node
        self._node = None if result is None else Cached(*result)
        self._telling.note(self.path, before, self._node)
        self._ready.reached()
