"""Semaphores and pools: who holds how many, or which one, and who waits."""

from __future__ import annotations

from zkcoord.errors import NodeForeign
from zkcoord.inspector.contenders import SHOWN_MAX, contender, in_flights, names
from zkcoord.inspector.views import PermitView, PoolView, SemaphoreView, SlotView
from zkcoord.recipes import Pool, PoolStanding, Semaphore, SemaphoreStanding
from zkcoord.recipes.pool import SlotStanding
from zkcoord.recipes.semaphore import PermitStanding
from zkcoord.zk import Session

SEMAPHORES = "/semaphores"
POOLS = "/pools"


def semaphore(session: Session, name: str) -> SemaphoreView:
    """A semaphore; one that nobody uses has no permits. Raises NodeForeign."""
    return _semaphore(name, Semaphore(session, name).standing(SHOWN_MAX))


def semaphores(session: Session) -> list[SemaphoreView]:
    """All semaphores that ZooKeeper knows."""
    found = in_flights(
        names(session, SEMAPHORES),
        lambda name: Semaphore(session, name).standing_future(SHOWN_MAX),
    )
    return [_semaphore(name, seen) for name, seen in found]


def _semaphore(name: str, seen: SemaphoreStanding | NodeForeign) -> SemaphoreView:
    problem = ""
    if isinstance(seen, NodeForeign):
        problem = str(seen.args[0])
        seen = SemaphoreStanding(0, 0, 0, 0, ())
    return SemaphoreView(
        name=name,
        path=f"{SEMAPHORES}/{name}",
        permits=seen.permits,
        declared=seen.declared,
        held=seen.held,
        waiting=seen.waiting,
        holders=[_permit(one) for one in seen.contenders if one.holds],
        waiters=[_permit(one) for one in seen.contenders if not one.holds],
        problem=problem,
    )


def _permit(one: PermitStanding) -> PermitView:
    place = 0 if one.holds else one.position
    who = contender(place, one.token, one.session, one.waited, one.identity, node=one.node)
    return PermitView(
        place=who.place,
        name=who.name,
        host=who.host,
        pid=who.pid,
        token=who.token,
        session=who.session,
        since=who.since,
        age=who.age,
        weight=one.weight,
    )


def pool(session: Session, name: str) -> PoolView:
    """A pool; one that nobody uses has no slots. Raises NodeForeign."""
    return _pool(name, Pool(session, name).standing())


def pools(session: Session) -> list[PoolView]:
    """All pools that ZooKeeper knows."""
    found = in_flights(names(session, POOLS), lambda name: Pool(session, name).standing_future())
    return [_pool(name, seen) for name, seen in found]


def _pool(name: str, seen: PoolStanding | NodeForeign) -> PoolView:
    problem = ""
    if isinstance(seen, NodeForeign):
        problem = str(seen.args[0])
        seen = PoolStanding((), 0)
    return PoolView(
        name=name,
        path=f"{POOLS}/{name}",
        slots=list(map(_slot, seen.slots)),
        waiting=seen.waiting,
        problem=problem,
    )


def _slot(one: SlotStanding) -> SlotView:
    holder = None
    if one.held:
        holder = contender(0, one.token, one.session, one.since, one.identity, node="unknown")
    return SlotView(slot=one.slot, drained=one.drained, holder=holder)
