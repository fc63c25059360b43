"""Locks and elections: who holds, who waits, since when."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TypeVar

from zkcoord.core.ordering import SHARED
from zkcoord.errors import NodeForeign, NodeMissing
from zkcoord.inspector.views import ContenderView, ElectionView, LockView
from zkcoord.recipes.contenders import Identity, Standing, contenders_future
from zkcoord.recipes.contenders import contenders as read_contenders
from zkcoord.zk import Promise, Session, Stat

LOCKS = "/locks"
ELECTIONS = "/elections"
SHOWN_MAX = 10_000
"""Contenders of one lock that are read, from the head."""
IN_FLIGHT = 500
"""Reads that are under way at a time."""


IN_A_ROW = 100
"""Folders that are asked at a time."""

T = TypeVar("T")


def standing(session: Session, name: str, root: str) -> list[ContenderView]:
    """All that queue for `name` below `root`, first come first."""
    return _views(read_contenders(session, name, root=root, limit=SHOWN_MAX))


def _views(found: list[Standing]) -> list[ContenderView]:
    return [
        contender(
            one.position, one.token, one.session, one.waited, one.identity,
            node=one.node, shared=one.kind == SHARED,
        )
        for one in found
    ]  # fmt: skip


def contender(
    place: int,
    token: int,
    session: int,
    age: float,
    identity: Identity | None,
    *,
    node: str,
    shared: bool = False,
) -> ContenderView:
    """A contender from what its node says; `node` names one that says nothing."""
    revoked = None if identity is None else identity.revoked
    return ContenderView(
        place=place,
        name=node if identity is None else _name(identity),
        host="" if identity is None else identity.host,
        pid=0 if identity is None else identity.pid,
        token=token,
        session=f"{session & (2**64 - 1):#x}",
        since=time.time() - age,
        age=age,
        shared=shared,
        revocable=identity is not None and identity.revocable,
        revoked="" if revoked is None else revoked.reason,
    )


def _name(identity: Identity) -> str:
    """What it calls itself, what it published, or which process it is."""
    if identity.name:
        return identity.name
    if identity.data:
        return identity.data.decode("utf-8", "backslashreplace")
    return f"{identity.host}:{identity.pid}"


def in_flights(
    names: Sequence[str], ask: Callable[[str], Promise[T]]
) -> list[tuple[str, T | NodeForeign]]:
    """Ask about many folders, some at a time; what holds something else is told, not raised."""
    found: list[tuple[str, T | NodeForeign]] = []
    for start in range(0, len(names), IN_A_ROW):
        asked = [(name, ask(name)) for name in names[start : start + IN_A_ROW]]
        for name, answer in asked:
            try:
                found.append((name, answer.wait()))
            except NodeForeign as error:
                found.append((name, error))
    return found


def read_children(session: Session, path: str) -> list[tuple[str, bytes, Stat]]:
    """Name, value and Stat of every child; many reads are under way at a time.

    Children that go away meanwhile are left out. Raises NodeMissing when `path` is not there.
    """
    found = []
    children = session.nodes.children(path)
    for start in range(0, len(children), IN_FLIGHT):
        asked = [
            (child, session.nodes.get_future(f"{path.rstrip('/')}/{child}"))
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
    return _lock(name, standing(session, name, LOCKS))


def locks(session: Session) -> list[LockView]:
    """All locks that ZooKeeper knows."""
    found = in_flights(
        names(session, LOCKS),
        lambda name: contenders_future(session, name, root=LOCKS, limit=SHOWN_MAX),
    )
    return [_lock(name, _views(queue)) for name, queue in found if isinstance(queue, list)]


def _lock(name: str, queue: list[ContenderView]) -> LockView:
    readers = len(list(takewhile(lambda one: one.shared, queue)))
    holding = max(1, readers)
    return LockView(
        name=name,
        path=f"{LOCKS}/{name}",
        holder=queue[0] if queue else None,
        waiters=queue[holding:],
        holders=queue[:holding],
    )


def election_folder(name: str) -> tuple[str, str]:
    """Root and name of an election; ``queue/NAME`` is that of a queue's schedulers."""
    kind, _, queue = name.partition("/")
    return (f"/queues/{queue}", "election") if kind == "queue" and queue else (ELECTIONS, name)


def election(session: Session, name: str) -> ElectionView:
    """An election; ``queue/NAME`` is that of a queue's schedulers.

    Raises NodeMissing when nobody ever stood in it.
    """
    root, node = election_folder(name)
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
