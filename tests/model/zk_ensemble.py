"""A small pure model of a ZooKeeper ensemble: what a client may see of it, and nothing else.

- One log of transactions in total order. The leader (server 0) checks each request against all
  that it proposed before, committed or not, and gives out sequence numbers then.
- A server applies committed transactions in order, each in its own time; a client reads what its
  server has applied.
- A session's requests are carried out in order: a read waits for the session's writes before it.
- A server knows whose transaction it applies by (session, xid), as ``CommitProcessor`` does, also
  when the request came to another server over an earlier link.
- Watches belong to one link, fire once, and are sent before the replies that follow.
- A session ends through the log: its ephemeral nodes are those that the leader knows of then.

Sources: ``CommitProcessor``, ``WatchManager`` and ``SessionTrackerImpl`` of Apache ZooKeeper 3.9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zk_tree import NO_NODE, RefusedError, Tree, Txn, Znode, parent, prepare

from zkcoord.zk.requests import (
    CHILDREN_CHANGED,
    NODE_CHANGED,
    NODE_CREATED,
    NODE_DELETED,
    WATCH_CHILDREN,
    WATCH_DATA,
    Close,
    Create,
    CreateContainer,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    RemoveWatches,
    SetData,
    Sync,
    WatchEvent,
)

SESSION_EXPIRED = -112
WRITES = (Create, CreateContainer, Delete, SetData, Multi, Sync, Close)
EPOCH_ZXIDS = 1000


@dataclass(slots=True)
class Tracked:
    """What the leader knows of a session."""

    server: int
    touched: float
    closing: bool = False


class Told(NamedTuple):
    """What a server sends: a reply, or an event with xid 0. `zxid` is the last that it applied."""

    xid: int
    result: Any
    code: int
    zxid: int


@dataclass(slots=True, eq=False)
class Wire:
    """One link between a session and a server: two streams, and the server's side of it."""

    session: int
    server: int
    up: deque[tuple[int, Any]] = field(default_factory=deque)
    down: deque[Told] = field(default_factory=deque)
    pending: deque[tuple[int, Any]] = field(default_factory=deque)
    watches: dict[tuple[int, str], None] = field(default_factory=dict)
    closed: bool = False


class Ensemble:
    """Server 0 leads. Every method is one thing that happens."""

    def __init__(self, servers: int, folders: Iterable[str] = (), *, counter: int = 0) -> None:
        seed = Tree({"/": Znode(0, 0, b"")})
        for path in folders:
            seed[path] = Znode(0, 0, b"", container=path.count("/") > 1)
            if path.count("/") > 1:
                seed[path].cversion = counter
        self.head = seed.copy()  # all that was proposed
        self.head.proposed = True
        self.trees = [seed.copy() for _ in range(servers)]
        self.applied = [0] * servers
        self.log: list[Txn] = []
        self.committed = 0
        self.sessions: dict[int, Tracked] = {}
        self.wires: list[Wire] = []
        self._zxid = 1
        self._next_session = 1

    # --- links and sessions ---

    def may_join(self, server: int, seen: int) -> bool:
        """Whether this server takes a client that has seen transactions up to `seen`."""
        return self.last(server) >= seen

    def last(self, server: int) -> int:
        at = self.applied[server]
        return self.log[at - 1].zxid if at else 0

    def open(self, server: int, now: float) -> int:
        self._next_session += 1
        self.sessions[self._next_session] = Tracked(server, now)
        return self._next_session

    def join(self, session: int, server: int, now: float) -> Wire | None:
        """A link for a session; None when it has expired."""
        tracked = self.sessions.get(session)
        if tracked is None or tracked.closing:
            return None
        tracked.server, tracked.touched = server, now
        for wire in [w for w in self.wires if w.session == session]:
            self.part(wire)
        wire = Wire(session, server)
        self.wires.append(wire)
        return wire

    def part(self, wire: Wire) -> None:
        """A link is gone; what was still on it is lost."""
        wire.closed = True
        if wire in self.wires:
            self.wires.remove(wire)

    def end(self, session: int, xid: int = 0) -> None:
        """The leader ends a session: it expired, or asked to be closed."""
        tracked = self.sessions[session]
        if not tracked.closing:
            tracked.closing = True
            doomed = [path for path, node in self.head.items() if node.owner == session]
            deltas = tuple(("deleted", path, None) for path in doomed)
            self._append(session, xid, deltas, None, 0, closes=True)

    def reap(self, path: str) -> None:
        """The leader removes a container whose children have gone."""
        self._append(0, 0, (("deleted", path, None),), None, 0)

    def reapable(self) -> list[str]:
        return [
            path
            for path, node in self.head.items()
            if node.container and node.cversion and not self.head.children(path)
        ]

    # --- requests ---

    def receive(self, wire: Wire, now: float) -> None:
        """The server takes the next request from the link."""
        xid, request = wire.up.popleft()
        tracked = self.sessions[wire.session]
        if not tracked.closing:
            tracked.touched = now
        if isinstance(request, WRITES):
            self._propose(wire.session, xid, request)
        wire.pending.append((xid, request))
        self._carry_on(wire)

    def _propose(self, session: int, xid: int, request: Any) -> None:
        if self.sessions[session].closing:
            self._append(session, xid, (), None, SESSION_EXPIRED)
            return
        if isinstance(request, Close):
            self.end(session, xid)
            return
        zxid = self._zxid + 1
        try:
            deltas, result = prepare(self.head, session, zxid, request)
        except RefusedError as refusal:
            self._append(session, xid, (), None, refusal.code)
        else:
            self._append(session, xid, deltas, result, 0)

    def _append(
        self, session: int, xid: int, deltas: tuple[Any, ...], result: Any, code: int,
        *, closes: bool = False,
    ) -> None:  # fmt: skip
        self._zxid += 1
        txn = Txn(self._zxid, session, xid, deltas, result, code, closes)
        self.log.append(txn)
        self.head.apply(txn)

    # --- what the servers do ---

    def commit(self) -> None:
        """The next proposal has its quorum; the leader applies it."""
        self.committed += 1
        self.apply(0)
        if self.committed == len(self.log):
            for path, node in self.trees[0].items():
                self.head[path].cversion = node.cversion

    def apply(self, server: int) -> None:
        """A server applies the next committed transaction and tells whom it concerns."""
        txn = self.log[self.applied[server]]
        self.applied[server] += 1
        tree = self.trees[server]
        tree.apply(txn)
        here = [wire for wire in self.wires if wire.server == server]
        for kind, path, _ in txn.deltas:
            for wire in here:
                self._fire(wire, kind, path)
        for wire in here:
            if wire.session != txn.session:
                continue
            if wire.pending and wire.pending[0][0] == txn.xid and txn.xid:
                xid, _ = wire.pending.popleft()
                wire.down.append(Told(xid, txn.result, txn.code, txn.zxid))
                self._carry_on(wire)
            if txn.closes:  # what was sent before still arrives
                self.part(wire)

    def elect(self, kept: int) -> None:
        """Another leader: of the proposals on their way only the first `kept` survive."""
        del self.log[self.committed + kept :]
        self.head = self.trees[0].copy()
        self.head.proposed = True
        for txn in self.log[self.committed :]:
            self.head.apply(txn)
        self._zxid = (self._zxid // EPOCH_ZXIDS + 1) * EPOCH_ZXIDS
        closed = {txn.session for txn in self.log if txn.closes}
        for session, tracked in self.sessions.items():
            tracked.closing = session in closed
        for wire in list(self.wires):
            self.part(wire)

    def _fire(self, wire: Wire, kind: str, path: str) -> None:
        def fire(what: int, event: int, node: str) -> bool:
            if (what, node) in wire.watches:
                del wire.watches[what, node]
                wire.down.append(Told(0, WatchEvent(event, node), 0, 0))
                return True
            return False

        if kind == "created":
            fire(WATCH_DATA, NODE_CREATED, path)
            fire(WATCH_CHILDREN, CHILDREN_CHANGED, parent(path))
        elif kind == "deleted":
            data = fire(WATCH_DATA, NODE_DELETED, path)
            if data:  # one event for both
                wire.watches.pop((WATCH_CHILDREN, path), None)
            else:
                fire(WATCH_CHILDREN, NODE_DELETED, path)
            fire(WATCH_CHILDREN, CHILDREN_CHANGED, parent(path))
        else:
            fire(WATCH_DATA, NODE_CHANGED, path)

    def _carry_on(self, wire: Wire) -> None:
        """Carry out the reads at the front of a link's queue."""
        while wire.pending and not isinstance(wire.pending[0][1], WRITES):
            xid, request = wire.pending.popleft()
            result, code = self._read(wire, request)
            wire.down.append(Told(xid, result, code, self.last(wire.server)))

    def _read(self, wire: Wire, request: Any) -> tuple[Any, int]:
        tree = self.trees[wire.server]
        path = request.path
        node = tree.get(path)
        if isinstance(request, RemoveWatches):
            wire.watches.pop((request.kind, path), None)
            return None, 0
        if isinstance(request, Exists):
            if request.watch:
                wire.watches[WATCH_DATA, path] = None
            return (None, NO_NODE) if node is None else (node.stat(), 0)
        if node is None:
            return None, NO_NODE
        if isinstance(request, GetData):
            if request.watch:
                wire.watches[WATCH_DATA, path] = None
            return (node.data, node.stat()), 0
        assert isinstance(request, GetChildren)
        if request.watch:
            wire.watches[WATCH_CHILDREN, path] = None
        return tree.children(path), 0

    # --- for the explorer ---

    def state(self) -> object:
        """All that the future can depend on, comparable."""
        return (
            tuple((t.zxid, t.session, t.xid, tuple(d[:2] for d in t.deltas)) for t in self.log),
            self.committed,
            tuple(self.applied),
            tuple((s, t.server, t.closing, t.touched) for s, t in self.sessions.items()),
            tuple(
                (
                    w.session, w.server, tuple(x for x, _ in w.up), tuple(x for x, _ in w.pending),
                    tuple((t.xid, t.code, str(t.result)) for t in w.down), tuple(sorted(w.watches)),
                )
                for w in self.wires
            ),
        )  # fmt: skip
