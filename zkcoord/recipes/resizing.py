"""Changing a semaphore's limit while it is held.

Raising it is one write. Lowering it takes three steps, so that a limit that was lowered without
force is never exceeded, not even by somebody who still acts on an older view:

1. write the lower limit as a trial, with the old one as *peak*: from then on nobody is granted
   beyond the lower one, except by a view from before;
2. list the queue: all who were granted by such a view stand within the peak, and nobody else does
   who could be;
3. when those fit, the limit is settled; when not, the old one is written back.

With force the first step is all: who holds keeps what it has, and nobody is granted until what is
held fits. A resize whose process dies in the middle leaves the trial, which counts as the lower
limit; any later resize goes on from what was before it.

A limit that was resized outlasts the semaphore's users: a small plain node beside them keeps the
folder, which the server would remove otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from zkcoord.core import ordering, permits
from zkcoord.core.permits import Limit
from zkcoord.errors import (
    CoordinationError,
    EnsembleUnavailable,
    LimitExceeded,
    NodeExists,
    NodeForeign,
    NodeMissing,
    SessionLost,
    VersionConflict,
)
from zkcoord.recipes.folder_view import View, view
from zkcoord.recipes.lasting import KEPT
from zkcoord.recipes.steps import PAUSE_S, Course, Flight, Folder, Pause
from zkcoord.zk.names import join
from zkcoord.zk.requests import Create, GetChildren, Multi, Request, SetData
from zkcoord.zk.translate import LinkDropped, from_code

_ROLLED_BACK = (0, -2)  # the codes of a multi's operations that were fine, or never came


class Resized(NamedTuple):
    """What became of a resize.

    Attributes:
        permits: the limit now. before: the limit before.
        held: the sum of weights that may be held now; above `permits` only after a forced resize.
    """

    permits: int
    before: int
    held: int


def resizing(folder: str, name: str, wanted: int, *, force: bool) -> Course[Resized]:
    """The course of a resize."""
    while True:
        seen = yield from view(folder)
        if seen is None:
            yield Folder(folder, container=True)
            continue
        try:
            stored = permits.read_limit(seen.value) or Limit(wanted)
        except ValueError as error:
            text = f"{name}: the folder's value is not a limit: {error}"
            raise NodeForeign(text, hint="use another name or root") from error
        before = stored.restored()
        queue = ordering.in_order(seen.names)
        if seen.value and stored == Limit(wanted, 0, stored.declared):
            return Resized(wanted, wanted, permits.held(queue, wanted))
        try:
            if force or wanted >= before.permits:
                limit = before.resized(wanted)
                value = permits.write_limit(limit)
                yield from write_kept(folder, value, seen.stat.version, seen.names)
                return Resized(wanted, before.permits, permits.held(queue, limit.reach))
            return (yield from _lowering(folder, name, wanted, before, seen))
        except (VersionConflict, NodeExists, NodeMissing, LinkDropped, SessionLost):
            continue  # another was faster, or what became of it is not known: look
        except LimitExceeded:
            raise
        except EnsembleUnavailable:
            yield Pause(PAUSE_S)


def _lowering(folder: str, name: str, wanted: int, before: Limit, seen: View) -> Course[Resized]:
    trial = before.resized(wanted, trial=True)
    version = seen.stat.version
    writing = SetData(folder, permits.write_limit(trial), version)
    stat, names = yield Flight(writing, GetChildren(folder))
    for one in (stat, names):
        if isinstance(one, CoordinationError):
            raise one
    held = permits.held(ordering.in_order(names), trial.reach)
    if held <= wanted:
        yield from write_kept(folder, permits.write_limit(trial.settled()), stat.version, names)
        return Resized(wanted, before.permits, held)
    yield SetData(folder, permits.write_limit(before), stat.version)
    raise LimitExceeded(
        f"{name}: {held} permits are held, so the limit cannot be {wanted}",
        name=name,
        asked=wanted,
        limit=held,
        hint="wait until they are released, or resize with force=True to let them drain",
    )


def write_kept(folder: str, value: bytes, version: int, names: list[str]) -> Course[None]:
    """Write a value that is to stay when nobody uses the folder; `names` are its children."""
    writing = SetData(folder, value, version)
    if KEPT in names:
        yield writing
    else:
        yield from commit(writing, Create(join(folder, KEPT), b""))


def commit(*operations: Any) -> Course[list[Any]]:
    """All or nothing; the first reason why not is raised."""
    request: Request = Multi(operations)
    results: list[Any] = yield request
    error = first_error(operations, results)
    if error is not None:
        raise error
    return results


def first_error(operations: Sequence[Any], results: Sequence[Any]) -> CoordinationError | None:
    """Why a multi was not carried out; None when it was."""
    for operation, result in zip(operations, results, strict=False):
        if isinstance(result, int) and result not in _ROLLED_BACK:
            return from_code(result, f"{type(operation).__name__.lower()} {operation.path}")
    if len(results) != len(operations) or any(isinstance(one, int) for one in results):
        return CoordinationError(f"{operations[0].path}: a reply that cannot be read")
    return None
