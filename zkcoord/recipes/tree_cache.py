"""A cache of a tree of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Self

from zkcoord.errors import ConfigError, CoordinationError, SessionClosed
from zkcoord.recipes.node_cache import READY_S, Readiness
from zkcoord.recipes.tree_diff import Cached, NodeDiff, Telling
from zkcoord.recipes.tree_reading import Scope, TreeReading
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.callbacks import check_callback
from zkcoord.zk.condition import shown
from zkcoord.zk.names import check_path
from zkcoord.zk.promise import Promise
from zkcoord.zk.session import Session, check_session

_NODES_MAX = 10_000
_BYTES_MAX = 64 << 20


class TreeCache:
    """A node and all below it at hand, without a round trip; follows them until it is closed.

    ::

        with TreeCache(session, "/config", on_change=print) as cache:
            cache.wait_ready()
            cache.get("/config/web").data

    It goes on across reconnects and lost sessions, on one watch for the whole tree (servers have
    those since ZooKeeper 3.6). While there is no link it holds what was last seen, and `current`
    is False. After a reconnect each node's Stat is asked for, and only what changed is read again,
    beginning after a random part of up to two seconds, longer for larger trees, so that a fleet
    does not come back at once.

    Every node's last state is seen; of states that follow one another quickly some may not be. The
    nodes are not of one instant: a change here may be seen before an earlier one there.

    Args:
        session: whose link is used.
        path: the topmost node below the session's chroot; it need not be there.
        on_change: called with NodeAdded, NodeChanged and NodeRemoved, first for what is there at
            the beginning, on the session's dispatcher thread; it may block. A callback that is slow
            is told of the last state of each node only.
        depth: levels below the topmost node that are read; None for all.
        skip: patterns of paths relative to the topmost node, as in :mod:`fnmatch`, where ``*`` also
            stands for slashes: what matches is left out with all below it.
        nodes_max, bytes_max: bounds; bytes are those of paths and values. One that is passed ends
            the cache with CacheFull.

    Attributes:
        error: why it ended by itself, such as CacheFull or AccessDenied; None while it goes on.

    Raises:
        NameRefused: not a path.
        ConfigError: a depth or bound out of range.
        SessionClosed: the session is not started, or closed.
    """

    def __init__(
        self,
        session: Session,
        path: str,
        *,
        on_change: Callable[[NodeDiff], object] | None = None,
        depth: int | None = None,
        skip: Iterable[str] = (),
        nodes_max: int = _NODES_MAX,
        bytes_max: int = _BYTES_MAX,
    ) -> None:
        self.path = check_path(path)
        if isinstance(skip, str):
            raise ConfigError(f"cache of {path}: skip: give a list of patterns")
        if (depth is not None and depth < 0) or nodes_max < 1 or bytes_max < 1:
            raise ConfigError(
                f"cache of {path}: depth must be 0 or more, nodes_max and bytes_max 1 or more"
            )
        self._link = check_session(session).link
        self._link.check_open()
        check_callback(on_change, "on_change")
        self._telling = Telling(self._link.dispatcher, on_change)
        self._ready = Readiness(self._link, f"cache of {path}")
        self.error: CoordinationError | None = None
        scope = Scope(self._link.absolute(path), depth, tuple(skip), nodes_max, bytes_max)
        self._reading = TreeReading(
            self._link, scope, self._noted, self._ready.reached, self._ended
        )
        self._link.loop.post(self._reading.start)

    def __repr__(self) -> str:
        if self.error is not None:
            state = f"ended: {type(self.error).__name__}"
        else:
            state = "current" if self.current else "being read"
        return shown(self, self.path, self._link, f"nodes {len(self)}", state)

    @property
    def current(self) -> bool:
        """Whether all of it was read or checked since the link last dropped."""
        return self._reading.current

    @property
    def size(self) -> int:
        """Bytes of the paths and values that are held."""
        return self._reading.bytes

    def __len__(self) -> int:
        return len(self._reading.nodes)

    def get(self, path: str) -> Cached | None:
        """A node as it was last seen; None when it is not there, or not read.

        Args:
            path: below the session's chroot, as the cache's own.

        Raises:
            CoordinationError: the cache has ended with this error.
        """
        self._check()
        return self._reading.nodes.get(self._link.absolute(check_path(path)))

    def children(self, path: str) -> list[str]:
        """Names of a node's children that are held, sorted; empty when there are none."""
        self._check()
        names = self._reading.names.get(self._link.absolute(check_path(path)), ())
        return sorted(names)

    def snapshot(self) -> dict[str, Cached]:
        """All nodes by path, in order."""
        self._check()
        nodes = dict(self._reading.nodes)
        return {self._link.relative(path): nodes[path] for path in sorted(nodes)}

    def wait_ready(self, timeout: float = READY_S) -> None:
        """Wait until everything was read for the first time.

        Raises:
            WaitTimeout: not in time.
            CacheFull, AccessDenied, SessionClosed: it cannot be read.
            RuntimeError: called inside an event loop; use ``await cache.ready_future()``.
        """
        refuse_in_event_loop("cache.wait_ready()", "await cache.ready_future()")
        self.ready_future(timeout).wait()

    def ready_future(self, timeout: float = READY_S) -> Promise[None]:
        """The same, to be awaited."""
        return self._ready.wait_future(timeout)

    def close(self) -> None:
        """Stop following; what was last seen stays readable. From any thread."""
        self._telling.close()
        self._link.loop.post(self._stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _stop(self) -> None:
        self._reading.close()
        self._ready.failed(SessionClosed(f"cache of {self.path}: closed"))

    def _noted(self, path: str, before: Cached | None, after: Cached | None) -> None:
        self._telling.note(self._link.relative(path), before, after)

    def _ended(self, error: CoordinationError) -> None:
        self.error = error
        self._ready.failed(error)
