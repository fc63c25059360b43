"""Znodes, transactions, and what a request does to them: the pure part of a ZooKeeper server.

Sources: ``PrepRequestProcessor`` and ``DataTree`` of Apache ZooKeeper 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from zkcoord.zk.requests import (
    EPHEMERAL,
    SEQUENTIAL,
    Check,
    Create,
    CreateContainer,
    Delete,
    Multi,
    SetData,
    Stat,
    Sync,
)

NO_NODE, BAD_VERSION, NODE_EXISTS, NOT_EMPTY = -101, -103, -110, -111
ROLLED_BACK = -2
COUNTER_MAX = 2**31 - 1


class RefusedError(Exception):
    """A request that fails, with ZooKeeper's code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class Znode:
    czxid: int
    mzxid: int
    data: bytes
    owner: int = 0
    version: int = 0
    cversion: int = 0
    container: bool = False

    def stat(self, children: int = 0) -> Stat:
        return Stat(
            self.czxid, self.mzxid, 0, 0, self.version, self.cversion, 0, self.owner,
            len(self.data), children, self.mzxid,
        )  # fmt: skip


class Txn(NamedTuple):
    """One entry of the log. `deltas` is empty for a request that failed."""

    zxid: int
    session: int
    xid: int
    deltas: tuple[tuple[str, str, Any], ...]  # (created | deleted | set, path, what)
    result: Any
    code: int
    closes: bool = False


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def signed(number: int) -> int:
    """What Java keeps of it in 32 bits."""
    return (number + 2**31) % 2**32 - 2**31


class Tree(dict[str, Znode]):
    """The znodes of one server, by path.

    The number of a sequential node is its parent's child counter, 32 bits with a sign. What the
    leader proposes wraps at the end; what a server has applied never counts down, and stays there:
    once nothing is outstanding the last number is given out again and again, to everybody.
    """

    proposed = False

    def children(self, path: str) -> list[str]:
        stem = path.rstrip("/") + "/"
        return [p[len(stem) :] for p in self if p.startswith(stem) and "/" not in p[len(stem) :]]

    def apply(self, txn: Txn) -> None:
        for kind, path, what in txn.deltas:
            if kind == "created":
                self[path] = replace(what)
                above = self.get(parent(path))
                if above is not None and (self.proposed or above.cversion < COUNTER_MAX):
                    above.cversion = signed(above.cversion + 1)
            elif kind == "deleted":
                self.pop(path, None)
            else:
                node = self[path]
                node.data, node.version, node.mzxid = what, node.version + 1, txn.zxid

    def copy(self) -> Tree:
        return Tree((path, replace(node)) for path, node in self.items())


def prepare(head: Tree, session: int, zxid: int, request: Any) -> tuple[tuple[Any, ...], Any]:
    """What a write changes, and its result, after all that was proposed before.

    Raises:
        RefusedError: it changes nothing.
    """
    if isinstance(request, Sync):
        return (), None
    if not isinstance(request, Multi):
        delta, result = _one(head, session, zxid, request)
        return (() if delta is None else (delta,)), result
    trial = head.copy()
    deltas, results = [], []
    for index, operation in enumerate(request.operations):
        try:
            delta, result = _one(trial, session, zxid, operation)
        except RefusedError as refusal:
            rest = len(request.operations) - index - 1
            return (), [0] * index + [refusal.code] + [ROLLED_BACK] * rest
        results.append(result)
        if delta is not None:
            deltas.append(delta)
            trial.apply(Txn(zxid, session, 0, (delta,), None, 0))
    return tuple(deltas), results


def _one(tree: Tree, session: int, zxid: int, request: Any) -> tuple[Any, Any]:
    path = request.path
    if isinstance(request, Create | CreateContainer):
        return _create(tree, session, zxid, request)
    node = tree.get(path)
    if node is None:
        raise RefusedError(NO_NODE)
    version = request.version
    if version not in {-1, node.version}:
        raise RefusedError(BAD_VERSION)
    if isinstance(request, Delete):
        if tree.children(path):
            raise RefusedError(NOT_EMPTY)
        return ("deleted", path, None), None
    if isinstance(request, SetData):
        after = replace(node, data=request.data, version=node.version + 1, mzxid=zxid)
        return ("set", path, request.data), after.stat()
    assert isinstance(request, Check)
    return None, None


def _create(tree: Tree, session: int, zxid: int, request: Any) -> tuple[Any, Any]:
    flags = request.flags if isinstance(request, Create) else 0
    path = request.path
    above = tree.get(parent(path))
    if above is None:
        raise RefusedError(NO_NODE)
    if flags & SEQUENTIAL:
        path += f"{above.cversion:010d}"
    if path in tree:
        raise RefusedError(NODE_EXISTS)
    owner = session if flags & EPHEMERAL else 0
    container = isinstance(request, CreateContainer)
    node = Znode(zxid, zxid, request.data, owner, container=container)
    return ("created", path, node), (path, node.stat())
