"""Asking a leader to resign, or to hand over to a named candidate.

As with a lock (:mod:`zkcoord.recipes.revocation`) the request is written into the leader's node,
and only a leader that listens is asked. Once it was written, or may have been, nobody else is.
"""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.core.ordering import Contender, in_order
from zkcoord.errors import (
    CandidateMissing,
    EnsembleUnavailable,
    NodeMissing,
    NotRevocable,
    SessionLost,
    VersionConflict,
)
from zkcoord.recipes.contenders import Revocation, Standing, amended, read_identity
from zkcoord.recipes.contenders import standing as standing_of
from zkcoord.recipes.folder_view import values
from zkcoord.recipes.steps import PAUSE_S, Course, Pause, read
from zkcoord.zk.names import join
from zkcoord.zk.requests import GetChildren, SetData
from zkcoord.zk.translate import LinkDropped

CANDIDATES_MAX = 1000
_NAMED = 10


def asking(folder: str, what: str, asked: Revocation) -> Course[Standing]:
    """Ask the leader; the result is whom."""
    told: Standing | None = None
    while True:
        line = in_order((yield from _children(folder)))
        if told is not None and (not line or line[0].node != told.node):
            return told  # it has gone meanwhile
        if not line:
            raise NodeMissing(f"{what}: nobody leads")
        paths = [join(folder, one.node) for one in line[: CANDIDATES_MAX + 1]]
        found = yield from values(paths if asked.to else paths[:1])
        if found[0] is None:
            continue  # another leads by now
        value, stat = found[0]
        leader = standing_of(0, line[0].node, value, stat)
        if leader.identity is not None and leader.identity.revoked == asked:
            return leader  # the answer was lost
        _check(what, leader, asked, list(zip(line, found, strict=False))[1:])
        told = leader
        try:
            yield SetData(paths[0], amended(value, revoked=asked), stat.version)
        except VersionConflict:
            continue  # it has published something meanwhile
        except (NodeMissing, LinkDropped, SessionLost):
            continue
        except EnsembleUnavailable:
            yield Pause(PAUSE_S)
        else:
            return leader


def _children(folder: str) -> Course[list[str]]:
    try:
        names: list[str] = yield from read(GetChildren(folder))
    except NodeMissing:
        return []
    return names


def _check(
    what: str,
    leader: Standing,
    asked: Revocation,
    behind: Sequence[tuple[Contender, tuple[bytes, object] | None]],
) -> None:
    """Whether it makes sense to ask this leader for this."""
    who = leader.identity
    if who is None or not who.revocable:
        raise NotRevocable(
            f"{what}: led by {who or leader.node}, who does not listen",
            hint="leaders listen inside run(), or when they campaign with on_revoke",
        )
    if not asked.to:
        return
    if asked.to in (who.name, leader.session):
        raise CandidateMissing(f"{what}: {asked.to!r} leads already")
    names = []
    for one, found in behind:
        identity = None if found is None else read_identity(found[0])
        names.append(one.node if identity is None else identity.name)
        if found is not None and asked.to in (names[-1], _session(one)):
            return
    seen = ", ".join(repr(name) for name in names[:_NAMED]) or "nobody"
    raise CandidateMissing(
        f"{what}: {asked.to!r} does not stand for election; waiting: {seen}",
        hint="name a candidate by its label or its session id; nobody was asked",
    )


def _session(one: Contender) -> int | None:
    try:
        return one.session
    except ValueError:
        return None
