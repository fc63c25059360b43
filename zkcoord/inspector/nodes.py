"""Znodes as they are: a node, its value, and what lies below it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

import msgspec

from zkcoord.errors import AccessDenied, NodeMissing
from zkcoord.inspector.views import NodeView
from zkcoord.zk import Session, Stat

IN_FLIGHT = 200
"""Nodes that are asked at a time."""


def view(path: str, stat: Stat, data: bytes | None = None) -> NodeView:
    """A node from its Stat."""
    return NodeView(
        path=path,
        size=stat.size,
        version=stat.version,
        children=stat.children,
        session=f"{stat.owner & (2**64 - 1):#x}" if stat.owner > 0 else "",
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        created=stat.ctime / 1000,
        changed=stat.mtime / 1000,
        data=data,
    )


def _unseen(path: str) -> NodeView:
    nothing = Stat._make([0] * len(Stat._fields))
    return msgspec.structs.replace(view(path, nothing), denied=True)


def node(session: Session, path: str) -> NodeView:
    """A node with its value. Raises NodeMissing."""
    data, stat = session.nodes.get(path)
    return view(path, stat, data)


def tree(
    session: Session, path: str, *, depth: int, limit: int, timeout: float
) -> tuple[list[NodeView], bool]:
    """A node and what lies below it, each node before its children, without values.

    Many nodes are asked at a time; those that go away meanwhile are left out. Those
    below which nothing may be seen are there, and say so.

    Args:
        session: whose link is used.
        path: the top.
        depth: levels below it.
        limit: nodes in all.
        timeout: seconds for all of it.

    Returns:
        The nodes, and whether some were left out because of `limit`.

    Raises:
        NodeMissing: `path` is not there.
        AccessDenied: nothing below `path` itself may be seen.
    """
    until = time.monotonic() + timeout
    top = session.nodes.exists(path, timeout=timeout)
    if top is None:
        raise NodeMissing(f"{path}: there is no such node", hint="look from the top: node tree /")
    found = {path: view(path, top)}
    below: dict[str, list[str]] = {}
    wanted = deque([(path, 0)] if depth > 0 and top.children else [])
    full = False
    while wanted and not full:
        batch = [wanted.popleft() for _ in range(min(IN_FLIGHT, len(wanted)))]
        listings = [
            (above, level, session.nodes.children_future(above, timeout=_left(until)))
            for above, level in batch
        ]
        asked: list[tuple[str, int]] = []
        for above, level, listing in listings:
            try:
                names = sorted(listing.wait())
            except NodeMissing:
                continue
            except AccessDenied:
                if above == path:
                    raise
                found[above] = msgspec.structs.replace(found[above], denied=True)
                continue
            room = limit - len(found) - len(asked)
            full = full or len(names) > room
            below[above] = [f"{above.rstrip('/')}/{name}" for name in names[: max(0, room)]]
            asked += [(child, level + 1) for child in below[above]]
        for level, seen in _seen(session, asked, until):
            found[seen.path] = seen
            if seen.children and level < depth:
                wanted.append((seen.path, level))
    return _in_order(path, found, below), full


def _seen(
    session: Session, asked: list[tuple[str, int]], until: float
) -> Iterator[tuple[int, NodeView]]:
    """Those of these nodes that are there, with their levels."""
    for start in range(0, len(asked), IN_FLIGHT):
        stats = [
            (child, level, session.nodes.exists_future(child, timeout=_left(until)))
            for child, level in asked[start : start + IN_FLIGHT]
        ]
        for child, level, answer in stats:
            try:
                stat = answer.wait()
            except AccessDenied:
                yield level, _unseen(child)
                continue
            if stat is not None:
                yield level, view(child, stat)


def _left(until: float) -> float:
    return max(0.01, until - time.monotonic())


def _in_order(path: str, found: dict[str, NodeView], below: dict[str, list[str]]) -> list[NodeView]:
    ordered = []
    waiting = [path]
    while waiting:
        one = waiting.pop()
        if one in found:
            ordered.append(found[one])
            waiting += reversed(below.get(one, []))
    return ordered
