"""Locks and elections: who holds, who waits, since when.

The nodes of a lock or an election are ephemeral and sequential; ZooKeeper gives each a creation
transaction id (czxid) that rises with every write of the ensemble, so the order of czxids is the
order of arrival, and the first node's czxid is the holder's fencing token.
"""

from __future__ import annotations

import time

from zkcoord.errors import NodeMissing
from zkcoord.inspector.views import ContenderView, ElectionView, LockView
from zkcoord.zk import Session, Stat

LOCKS = "/locks"
ELECTIONS = "/elections"
IN_FLIGHT = 500
"""Reads that are under way at a time."""


def contenders(session: Session, path: str) -> list[ContenderView]:
    """All that queue in the folder `path`, first come first.

    Nodes that go away while we look are left out. Raises NodeMissing when the folder is not there.
    """
    found = [
        (stat.czxid, data, stat.owner, stat.ctime / 1000)
        for _, data, stat in read_children(session, path)
        if stat.owner  # ephemeral: what is not is no contender
    ]
    found.sort(key=lambda entry: entry[0])
    now = time.time()
    return [
        ContenderView(
            place=place,
            name=data.decode("utf-8", "replace"),
            token=czxid,
            session=f"{owner & (2**64 - 1):#x}",
            since=created,
            age=max(0.0, now - created),
        )
        for place, (czxid, data, owner, created) in enumerate(found)
    ]


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
    path = f"{LOCKS}/{name}"
    try:
        queue = contenders(session, path)
    except NodeMissing:
        queue = []
    return LockView(name=name, path=path, holder=queue[0] if queue else None, waiters=queue[1:])


def locks(session: Session) -> list[LockView]:
    """All locks that ZooKeeper knows."""
    return [lock(session, name) for name in names(session, LOCKS)]


def election(session: Session, name: str, path: str | None = None) -> ElectionView:
    """An election. Raises NodeMissing when nobody ever stood in it."""
    path = path or f"{ELECTIONS}/{name}"
    queue = contenders(session, path)
    return ElectionView(
        name=name, path=path, leader=queue[0] if queue else None, standbys=queue[1:]
    )
