"""Reading a tree and keeping up with it: the state machine of a tree cache. On the loop.

One persistent recursive watch (ZooKeeper 3.6) covers the tree. It is set before anything is read,
so whatever changes while the tree is read is told, and what was told is read again: the last state
of each node is always seen.

After a drop of the link the watch is set anew, and every node that is held is checked by its Stat
alone: its value is read again only when `mzxid` is another, its children are listed again only when
`pzxid` is. A fleet that lost its server does not come back at once: each cache begins to check
after a random part of `jitter_s`; news is followed meanwhile. So many requests at most are on their
way at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from random import Random
from typing import Any, NamedTuple

from zkcoord.errors import (
    CacheFull,
    CoordinationError,
    EnsembleUnavailable,
    NodeMissing,
    SessionClosed,
    SessionLost,
)
from zkcoord.recipes.tree_diff import Cached
from zkcoord.zk.link import Link
from zkcoord.zk.names import join, parent
from zkcoord.zk.requests import (
    NODE_CHANGED,
    Exists,
    GetChildren,
    GetData,
    Request,
    Stat,
    WatchEvent,
)
from zkcoord.zk.translate import LinkDropped

WINDOW = 64
JITTER_S_MAX = 2.0
_JITTER_PER_NODE_S = 0.001
_PAUSE_S = 0.2


class Scope(NamedTuple):
    """Which part of a tree is read.

    Attributes:
        root: absolute path.
        depth: levels below the root; None for all.
        skip: patterns of paths relative to the root, as in :mod:`fnmatch`; what matches is left
            out with everything below it.
        nodes_max, bytes_max: bounds; bytes are those of paths and values.
    """

    root: str
    depth: int | None
    skip: tuple[str, ...]
    nodes_max: int
    bytes_max: int

    def relative(self, path: str) -> str:
        """A path below the root, without the root and its slash; empty for the root."""
        return path[len(self.root) :].lstrip("/")

    def level(self, path: str) -> int:
        """0 for the root, 1 for its children."""
        rest = self.relative(path)
        return rest.count("/") + 1 if rest else 0

    def holds(self, path: str) -> bool:
        """Whether the path is read."""
        if self.depth is not None and self.level(path) > self.depth:
            return False
        if path == self.root:
            return True
        parts = self.relative(path).split("/")
        above = ("/".join(parts[: index + 1]) for index in range(len(parts)))
        return not any(fnmatchcase(one, pattern) for one in above for pattern in self.skip)


class TreeReading:
    """See the module.

    Args:
        noted: called with path, state before and state after, for each change.
        settled: called each time everything known is as the server has it.
        ended: called once with the reason when it can go on no longer.

    Attributes:
        nodes: what is held, by absolute path. names: children by their parent's path.
        current: whether everything was checked since the last drop of the link.
    """

    def __init__(
        self,
        link: Link,
        scope: Scope,
        noted: Callable[[str, Cached | None, Cached | None], object],
        settled: Callable[[], object],
        ended: Callable[[CoordinationError], object],
    ) -> None:
        self._link = link
        self._scope = scope
        self._noted = noted
        self._settled = settled
        self._ended = ended
        self._rng = Random()  # noqa: S311 - jitter
        self.nodes: dict[str, Cached] = {}
        self.names: dict[str, set[str]] = {}
        self.current = False
        self.bytes = 0
        self._listed: dict[str, int] = {}  # pzxid as of which the children are known
        self._checked: dict[str, int] = {}  # in which link's time the node was checked
        self._time = 0
        self._wanted: dict[str, bool] = {}  # True: read the value too
        self._flying: set[str] = set()
        self._closed = False
        self._checking = False

    def start(self) -> None:
        """Set the watch, then read."""
        if not self._closed:
            self._link.watches.watch_below(self._scope.root, self._fired, self._armed)

    def close(self) -> None:
        """No more news; the watch is removed."""
        self._closed = True
        self._wanted.clear()
        self._link.watches.forget_below(self._scope.root, self._fired)

    # --- the watch ------------------------------------------------------------------------------

    def _armed(self, _result: Any, error: CoordinationError | None) -> None:
        if self._closed:
            self.close()
        elif error is None:
            self._time += 1
            self._checking = True
            wait = min(JITTER_S_MAX, len(self.nodes) * _JITTER_PER_NODE_S)
            if wait == 0:
                self._check_all(self._time)
            else:
                self._link.timer(self._rng.uniform(0, wait), self._check_all, self._time)
        elif isinstance(error, (LinkDropped, SessionLost)) and not self._link.closed:
            self.start()
        elif isinstance(error, EnsembleUnavailable):
            self._link.timer(_PAUSE_S, self.start)
        else:
            self._fail(error)

    def _check_all(self, time: int) -> None:
        if self._closed or time != self._time:
            return
        self._checking = False
        for path in self.nodes:
            if self._checked.get(path) != time:
                self._want(path, full=False)
        if self._scope.root not in self.nodes:
            self._want(self._scope.root, full=True)
        self._pump()

    def _fired(self, event: WatchEvent | None) -> None:
        if event is None:
            self.current = False
            self._time += 1  # what is read before the watch stands again is read once more
            self.start()
            return
        if self._scope.holds(event.path):
            self._want(event.path, full=True)
        above = parent(event.path)
        if event.kind != NODE_CHANGED and event.path != self._scope.root and above in self.nodes:
            self._want(above, full=False)  # its Stat counts its children
        self._pump()

    def _want(self, path: str, *, full: bool) -> None:
        self._wanted[path] = full or self._wanted.get(path, False)
        if len(self._wanted) > 2 * self._scope.nodes_max + WINDOW:
            self._full(f"{len(self._wanted)} nodes to read")

    # --- reading --------------------------------------------------------------------------------

    def _pump(self) -> None:
        while len(self._flying) < WINDOW and not self._closed:
            path = next((one for one in self._wanted if one not in self._flying), None)
            if path is None:
                break
            self._flying.add(path)
            self._read(path, full=self._wanted.pop(path) or path not in self.nodes)
        idle = not (self._wanted or self._flying or self._closed or self._checking)
        if idle and not self.current:
            self.current = True
            self._settled()

    def _read(self, path: str, *, full: bool) -> None:
        request: Request = GetData(path) if full else Exists(path)

        def replied(result: Any, error: CoordinationError | None) -> None:
            self._flying.discard(path)
            if self._closed:
                return
            if isinstance(error, NodeMissing) or (error is None and result is None):
                self._drop(path)
            elif error is not None:
                self._trouble(path, full, error)
                return
            elif full:
                self._store(path, Cached(*result))
            else:
                self._compare(path, result)
            self._pump()

        self._link.call(request, replied, verb="cache")

    def _trouble(self, path: str, full: bool, error: CoordinationError) -> None:
        if isinstance(error, EnsembleUnavailable | SessionLost) and not self._link.closed:
            self._want(path, full=full)
            if isinstance(error, LinkDropped | SessionLost):
                self._pump()
            else:
                self._link.timer(_PAUSE_S, self._pump)
        else:
            self._fail(error)

    def _compare(self, path: str, stat: Stat) -> None:
        held = self.nodes.get(path)
        if held is None or (held.stat.czxid, held.stat.mzxid) != (stat.czxid, stat.mzxid):
            self._want(path, full=True)
            return
        self.nodes[path] = Cached(held.data, stat)
        self._checked_now(path, stat)

    def _store(self, path: str, node: Cached) -> None:
        before = self.nodes.get(path)
        if before is not None and before.stat.czxid != node.stat.czxid:
            self._forget_below(path)
        self.bytes += len(node.data) - (len(before.data) if before else -len(path.encode()))
        self.nodes[path] = node
        if path != self._scope.root:
            self.names.setdefault(parent(path), set()).add(path.rpartition("/")[2])
        bound = self._scope
        if len(self.nodes) > bound.nodes_max or self.bytes > bound.bytes_max:
            self._full(f"{len(self.nodes)} nodes, {self.bytes} bytes")
            return
        self._noted(path, before, node)
        self._checked_now(path, node.stat)

    def _checked_now(self, path: str, stat: Stat) -> None:
        """The node is as the server has it; are its children?"""
        scope = self._scope
        if scope.depth is not None and scope.level(path) >= scope.depth:
            self._listed[path] = stat.pzxid
        listed = self._listed.get(path)
        told = self._checked.get(path) == self._time  # all that happened since came as events
        if listed == stat.pzxid or (listed is not None and told) or stat.children == 0:
            self._listed[path] = stat.pzxid
            self._checked[path] = self._time
            if stat.children == 0:
                self._reconcile(path, [])
        else:
            self._list(path, stat, self._time)

    def _list(self, path: str, stat: Stat, time: int) -> None:
        self._flying.add(path)

        def replied(names: list[str] | None, error: CoordinationError | None) -> None:
            self._flying.discard(path)
            if self._closed:
                return
            if error is not None and not isinstance(error, NodeMissing):
                self._trouble(path, False, error)
                return
            if error is None:
                self._listed[path] = stat.pzxid
                self._checked[path] = time
                self._reconcile(path, names or [])
            else:
                self._want(path, full=True)
            self._pump()

        self._link.call(GetChildren(path), replied, verb="cache")

    def _reconcile(self, path: str, names: list[str]) -> None:
        held = self.names.get(path, set())
        for name in held.difference(names):
            self._want(join(path, name), full=True)
        for name in names:
            child = join(path, name)
            if name not in held and self._scope.holds(child):
                self._want(child, full=True)

    # --- forgetting -----------------------------------------------------------------------------

    def _drop(self, path: str) -> None:
        self._forget_below(path)
        before = self.nodes.pop(path, None)
        self._listed.pop(path, None)
        self._checked.pop(path, None)
        if before is None:
            return
        self.bytes -= len(before.data) + len(path.encode())
        above = parent(path)
        held = self.names.get(above)
        if held is not None and path != self._scope.root:
            held.discard(path.rpartition("/")[2])
            if not held:
                self.names.pop(above, None)
        self._noted(path, before, None)

    def _forget_below(self, path: str) -> None:
        """The node is gone, and so is all that was below it."""
        stack = [join(path, name) for name in self.names.get(path, ())]
        gone: list[str] = []
        while stack:
            one = stack.pop()
            gone.append(one)
            stack += [join(one, name) for name in self.names.get(one, ())]
        for one in reversed(gone):
            self.names.pop(one, None)
            self._drop(one)
        self._listed.pop(path, None)

    def _full(self, found: str) -> None:
        scope = self._scope
        self._fail(
            CacheFull(
                f"cache of {self._link.relative(scope.root)}: {found}; the bounds are "
                f"{scope.nodes_max} nodes and {scope.bytes_max} bytes",
                hint="raise them, or read less of the tree: depth, skip",
            )
        )

    def _fail(self, error: CoordinationError) -> None:
        if not self._closed:
            self.close()
            closed = self._link.closed and isinstance(error, SessionLost)
            self._ended(SessionClosed("the session is closed") if closed else error)
