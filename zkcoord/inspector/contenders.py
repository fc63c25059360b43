"""Locks and elections: who holds, who waits, since when."""

from __future__ import annotations

import time
from itertools import takewhile

from zkcoord.core.ordering import SHARED
from zkcoord.errors import NodeMissing
from zkcoord.inspector.views import ContenderView, ElectionView, LockView
from zkcoord.recipes.contenders import Standing
from zkcoord.recipes.contenders import contenders as read_contenders
from zkcoord.zk import Session, Stat

LOCKS = "/locks"
ELECTIONS = "/elections"
SHOWN_MAX = 10_000
"""Contenders of one lock that are read, from the head."""
IN_FLIGHT = 500
"""Reads that are under way at a time."""


def standing(session: Session, name: str, root: str) -> list[ContenderView]:
    """All that queue for `name` below `root`, first come first."""
    now = time.time()
    return [
        ContenderView(
            place=one.position,
            name=_name(one),
            host=one.identity.host if one.identity else "",
            pid=one.identity.pid if one.identity else 0,
            token=one.token,
            session=f"{one.session & (2**64 - 1):#x}",
            since=now - one.waited,
            age=one.waited,
            shared=one.kind == SHARED,
            revocable=one.identity is not None and one.identity.revocable,
            revoked=one.identity.revoked.reason if one.identity and one.identity.revoked else "",
        )
        for one in read_contenders(session, name, root=root, limit=SHOWN_MAX)
    ]


def _name(one: Standing) -> str:
    """What it published, what it calls itself, or which process it is."""
    if one.identity is None:
        return one.node
    if one.identity.data:
        return one.identity.data.decode("utf-8", "backslashreplace")
    return one.identity.name or f"{one.identity.host}:{one.identity.pid}"


def read_children(session: Session, path: str) -> list[tuple[str, bytes, Stat]]:
    """Name, value and Stat of every child; many reads are under way at a time.

    Children that go away meanwhile are left out. Raises NodeMissing when `path` is not there.
    """
    found = []
    children = session.nodes.children(path)
    for start in range(0, len(children), IN_FLIGHT):
        asked = [
            (child, session.nodes.get_future(f"{path}/{child}"))
            for child in children[start : start + IN_FLIGHT]
        ]
        for child, answer in asked:
            try:
                data, stat = answer.wait()
            except NodeMissing:
                continue
            found.append((child, data, stat))
    return found


def names(session: Session, root: str) -> list[str]:
    """The folders below `root`, sorted; none when it is not there."""
    try:
        return sorted(session.nodes.children(root))
    except NodeMissing:
        return []


def lock(session: Session, name: str) -> LockView:
    """A lock and its queue; a lock that nobody ever used is free, as ZooKeeper forgets it too."""
    queue = standing(session, name, LOCKS)
    readers = len(list(takewhile(lambda one: one.shared, queue)))
    holding = max(1, readers)
    return LockView(
        name=name,
        path=f"{LOCKS}/{name}",
        holder=queue[0] if queue else None,
        waiters=queue[holding:],
        holders=queue[:holding],
    )


def locks(session: Session) -> list[LockView]:
    """All locks that ZooKeeper knows."""
    return [lock(session, name) for name in names(session, LOCKS)]


def election(session: Session, name: str) -> ElectionView:
    """An election; ``queue/NAME`` is that of a queue's schedulers.

    Raises NodeMissing when nobody ever stood in it.
    """
    kind, _, queue = name.partition("/")
    root, node = (
        (f"/queues/{queue}", "election") if kind == "queue" and queue else (ELECTIONS, name)
    )
    found = standing(session, node, root)
    if not found and session.nodes.exists(f"{root}/{node}") is None:
        raise NodeMissing(
            f"nobody has stood in an election {name!r}", hint="list them: zkcoord election list"
        )
    return ElectionView(
        name=name,
        path=f"{root}/{node}",
        leader=found[0] if found else None,
        standbys=found[1:],
    )
