"""Handing leadership to a named candidate.

The leader stops believing in itself, and then removes its own node and those of the candidates in
front of the chosen one in one transaction, on condition that the chosen one is still there. So at
one instant the chosen one stands in front: nobody leads before it, and nobody else with it. Those
who were in between stand for election again, behind all (:mod:`zkcoord.recipes.candidacy`): the
chosen one's node is younger than theirs were, and terms must rise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from zkcoord.core.ordering import Contender, in_order
from zkcoord.errors import (
    CandidateMissing,
    CoordinationError,
    EnsembleUnavailable,
    LeaseLost,
    NameRefused,
    NodeMissing,
)
from zkcoord.recipes.contenders import read_identity
from zkcoord.recipes.steps import PAUSE_S, Course, Flight, Pause, Steps, read
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.names import join
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Check, Delete, GetChildren, GetData, Multi
from zkcoord.zk.translate import LinkDropped

if TYPE_CHECKING:
    from zkcoord.recipes.leadership import Leadership

BETWEEN_MAX = 1000
_CHUNK = 256
_NAMED = 10


def check_candidate(to: str | int, *, empty: bool = False) -> str | int:
    """A candidate's label or session id, given back; where `empty` will do the empty text, too.

    Raises:
        TypeError: it is neither.
        NameRefused: it is the empty text.
    """
    given: object = to
    if isinstance(given, bool) or not isinstance(given, str | int):
        kind = type(given).__name__
        raise TypeError(f"to {given!r}: must be a label (str) or a session id (int), not {kind}")
    if given == "" and not empty:
        raise NameRefused("to: name a candidate by its label or its session id")
    return to


class Choice(NamedTuple):
    """The chosen candidate's node, and the nodes in front of it, without the leader's."""

    node: str
    between: list[str]


class Transfer:
    """One hand-over.

    Args:
        path: absolute path of the leader's node.
        to: a candidate's label, or its session id.
        retire: ends the leader's belief and gives what to call when its node is gone.
    """

    def __init__(
        self,
        link: Link,
        epoch: Epoch,
        leadership: Leadership,
        path: str,
        to: str | int,
        retire: Callable[[], Callable[[bool], object]],
    ) -> None:
        self._link = link
        self._epoch = epoch
        self._leadership = leadership
        self._name = leadership.name
        self._path = path
        self._folder, _, self._node = path.rpartition("/")
        self._to = to
        self._retire = retire

    def begin(self, timeout: float) -> Promise[None]:
        """Hand over. From any thread."""
        what = f"transfer {self._name}"
        return Steps(self._link, self._run(), what, timeout, epoch=self._epoch).begin()

    def _run(self) -> Course[None]:
        choice = yield from self._choose()
        gone = self._retire()
        handed = unsure = False
        try:
            while not handed:
                removals = (Delete(join(self._folder, node)) for node in choice.between)
                chosen = Check(join(self._folder, choice.node))
                try:
                    yield Multi((chosen, Delete(self._path), *removals))
                except LinkDropped as error:
                    unsure = unsure or error.sent
                except NodeMissing:
                    line = yield from self._line()
                    if all(one.node != self._node for one in line):
                        if not unsure:
                            raise self._removed() from None
                        handed = True  # the answer was lost
                    else:
                        choice = self._still(choice, line)
                except EnsembleUnavailable:
                    unsure = True
                    yield Pause(PAUSE_S)
                else:
                    handed = True
        finally:
            if handed:
                self._epoch.free(self._path)
                gone(True)
            else:  # whatever went wrong: this one leads no more
                self._link.discard(self._path, self._epoch, gone)

    def _removed(self) -> LeaseLost:
        return LeaseLost(
            f"{self._name}: the leader's node was removed, nobody was preferred",
            name=self._name,
            token=self._leadership.token,
            reason="removed",
        )

    def _line(self) -> Course[list[Contender]]:
        return in_order((yield from read(GetChildren(self._folder))))

    def _still(self, choice: Choice, line: list[Contender]) -> Choice:
        """The same choice, as the line stands now."""
        nodes = [one.node for one in line]
        if choice.node not in nodes:
            raise CandidateMissing(
                f"{self._name}: {self._to!r} has gone while leadership was handed over",
                hint="this leader has resigned: the next in line leads",
            )
        upto = nodes.index(choice.node)
        return Choice(choice.node, [node for node in nodes[:upto] if node != self._node])

    def _choose(self) -> Course[Choice]:
        """Find the candidate, while still leading."""
        line = yield from self._line()
        nodes = [one.node for one in line]
        if self._node not in nodes:
            self._leadership.removed()
            raise self._removed()
        start = nodes.index(self._node) + 1
        behind = line[start : start + BETWEEN_MAX + 1]
        seen: list[str] = []
        for first in range(0, len(behind), _CHUNK):
            some = behind[first : first + _CHUNK]
            found = yield from self._values(some)
            for index, (one, value) in enumerate(zip(some, found, strict=True), first):
                if value is None:
                    continue
                identity = read_identity(value)
                seen.append(identity.name if identity is not None else one.node)
                if self._to in (one.session, seen[-1]):
                    return Choice(one.node, [node.node for node in behind[:index]])
        names = ", ".join(repr(name) for name in seen[:_NAMED]) or "nobody"
        more = f" and {len(seen) - _NAMED} more" if len(seen) > _NAMED else ""
        raise CandidateMissing(
            f"{self._name}: {self._to!r} does not stand for election; waiting: {names}{more}",
            hint="name a candidate by its label or its session id; this leader goes on",
        )

    def _values(self, some: list[Contender]) -> Course[list[bytes | None]]:
        while True:
            found = yield Flight(*(GetData(join(self._folder, one.node)) for one in some))
            if any(isinstance(one, LinkDropped) for one in found):
                continue
            for one in found:
                if isinstance(one, CoordinationError) and not isinstance(one, NodeMissing):
                    raise one
            return [None if isinstance(one, NodeMissing) else one[0] for one in found]
