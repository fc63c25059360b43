"""One node that holds a number: read, compared and set, added to. What counters are made of.

Every write names the version that it replaces and leaves a mark beside the number. When the answer
is lost the same write is sent again: a write is ordered after the lost one, a read is not. If the
lost one was carried out the repeated one is refused, and the mark of that version tells whose it
was, across links and sessions.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from zkcoord.config import RetryPolicy
from zkcoord.core.backoff import delay
from zkcoord.core.counting import MARKS_MAX, MISSING, Tally, read_tally
from zkcoord.errors import (
    CoordinationError,
    EnsembleUnavailable,
    NodeExists,
    NodeMissing,
    OutcomeUnknown,
    SessionLost,
    VersionConflict,
)
from zkcoord.recipes.steps import PAUSE_S, Course, Flight, Folder, Pause
from zkcoord.zk.link import Link
from zkcoord.zk.names import parent
from zkcoord.zk.requests import Create, Delete, GetData, Multi, Request, SetData, Sync
from zkcoord.zk.translate import LinkDropped

TRIES_MAX = 100
FRESH_S = 1.0  # so long the next write need not read first; later the node may be another one
_PATIENCE = RetryPolicy(delay_s=0.002, delay_s_max=0.1)

_MARK_BYTES = 6


class Written(NamedTuple):
    """The end of one try: what we wrote, or, when it is not done, what stands there instead."""

    done: bool
    tally: Tally


class Register:
    """A number in a node. Its methods are courses: see :mod:`zkcoord.recipes.steps`."""

    def __init__(self, link: Link, path: str, rng: Random) -> None:
        self._link = link
        self._path = path
        self._name = link.relative(path)
        self._rng = rng

    def look(self, *, sync: bool = False) -> Course[Tally]:
        """What stands there; :data:`~zkcoord.core.counting.MISSING` when there is no node."""
        while True:
            requests: tuple[Request, ...] = (GetData(self._path),)
            if sync:
                requests = (Sync(self._path), *requests)
            found = (yield Flight(*requests))[-1]
            if isinstance(found, (LinkDropped, SessionLost)):
                continue
            if isinstance(found, EnsembleUnavailable):
                yield Pause(PAUSE_S)
                continue
            return self._read(found)

    def change(
        self,
        decide: Callable[[Tally], int],
        known: Tally | None = None,
        tries: int = TRIES_MAX,
    ) -> Course[Tally]:
        """Read, decide, write; again when somebody else was faster, after a jittered pause.

        Args:
            decide: the new number for what stands there; what it raises ends the course.
            known: what stands there, as far as is known: saves the first read.
            tries: so many at most.

        Raises:
            VersionConflict: it lost so many races in a row.
            OutcomeUnknown: see :meth:`put`.
        """
        tally = known if known is not None else (yield from self.look())
        for failures in range(1, tries + 1):
            written = yield from self.put(tally, decide(tally))
            if written.done:
                return written.tally
            tally = written.tally
            if failures < tries:
                yield Pause(delay(_PATIENCE, failures, self._rng))
        raise VersionConflict(
            f"counter {self._name}: others were faster {tries} times in a row",
            hint="many write to it at once: use a FastCounter",
        )

    def put(self, tally: Tally, number: int) -> Course[Written]:
        """Replace what was read, if nobody has since; exactly once, whatever happens to the link.

        Raises:
            OutcomeUnknown: the answer was lost, and by the time it could be asked for, more than
                64 other writes had come, or a foreign one.
        """
        mark = secrets.token_urlsafe(_MARK_BYTES)
        value = tally.replaced(number, mark)
        write = self._write(tally, value)
        unsure = False
        while True:
            wrote, found = yield Flight(write, GetData(self._path))
            if not isinstance(wrote, CoordinationError):
                return Written(True, self._ours(value, tally))
            if isinstance(wrote, (LinkDropped, SessionLost)):
                unsure = unsure or not isinstance(wrote, LinkDropped) or wrote.sent
            elif isinstance(wrote, EnsembleUnavailable):
                unsure = True
                yield Pause(PAUSE_S)
            elif isinstance(wrote, NodeMissing) and tally.missing:
                yield from folder(parent(self._path))
            elif isinstance(wrote, (VersionConflict, NodeExists, NodeMissing)):
                seen = yield from self._refused(found, tally.next_version, mark, unsure)
                # What stands there now may be others' work already: ours is what we wrote.
                return Written(True, self._ours(value, tally)) if seen.done else seen
            else:
                raise wrote

    def _ours(self, value: bytes, replaced: Tally) -> Tally:
        return read_tally(self._name, value, replaced.next_version)

    def _write(self, tally: Tally, value: bytes) -> Request:
        if tally.missing:
            return Create(self._path, value)
        if tally.worn:
            return Multi((Delete(self._path, tally.version), Create(self._path, value)))
        return SetData(self._path, value, tally.version)

    def _refused(self, found: Any, version: int, mark: str, unsure: bool) -> Course[Written]:
        """The write was refused: by its own first sending, or by somebody else's write?"""
        lost = isinstance(found, EnsembleUnavailable | SessionLost)
        now = (yield from self.look()) if lost else self._read(found)
        if not unsure or now.missing:
            return Written(False, now)
        mine = now.wrote(version, mark)
        if mine is None:
            raise OutcomeUnknown(
                f"counter {self._name}: the answer to a write was lost, and more than "
                f"{MARKS_MAX} writes, or a foreign one, came after it",
                hint="read the counter and decide",
            )
        return Written(mine, now)

    def _read(self, found: Any) -> Tally:
        if isinstance(found, NodeMissing):
            return MISSING
        if isinstance(found, CoordinationError):
            raise found
        value, stat = found
        return read_tally(self._name, value, stat.version)


def folder(path: str) -> Course[None]:
    """Make sure that a plain node is there, whatever happens to the link."""
    while True:
        try:
            yield Folder(path)
        except (LinkDropped, SessionLost):
            continue
        except EnsembleUnavailable:
            yield Pause(PAUSE_S)
        else:
            return
