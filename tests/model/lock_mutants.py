"""Our lock with one protection switched off, each to be found by the model.

`harm` is what must be seen: two holders (exclusion), waiting for ever (liveness), or nodes and
watches that nobody removes (leftovers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest import mock

from lock_world import Step
from zk_client import Clock, ModelConnection

from zkcoord.core import lease as lease_arithmetic
from zkcoord.core import ordering
from zkcoord.errors import EnsembleUnavailable
from zkcoord.recipes.acquisition import Acquisition
from zkcoord.recipes.entry import Entry
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.folders import Folders
from zkcoord.zk.link import Link
from zkcoord.zk.requests import Delete, GetChildren
from zkcoord.zk.watches import WatchTable

Patch = Callable[[], AbstractContextManager[Any]]


class Mutant(NamedTuple):
    """`begin`: two steps, carried out in full, and more; where a search by steps begins."""

    name: str
    patch: Patch
    harm: tuple[str, ...]
    begin: tuple[Step, ...] = ()


# One client holds and another waits; the holder asks for something else.
_HELD: tuple[Step, ...] = (("ask", 0), ("ask", 1))
_ASKING: tuple[Step, ...] = (*_HELD, ("ask", 0), ("receive", 0))


def replaced(owner: Any, name: str, value: Any) -> Patch:
    return lambda: mock.patch.object(owner, name, value)


def _look_instead_of_writing_again(self: Entry) -> None:
    """What every rival does: list, and create only if the listing shows no node of ours."""
    if self._over() or self._calls or self._left:
        return
    if not self._uncertain:
        _again(self)
        return

    def listed(names: list[str] | None, error: Any) -> None:
        self._calls = []
        found = ordering.place(
            ordering.in_order(names or ()), self._epoch.id, ordering.encode_request(self._number)
        )
        if error is None and found is None:
            self._uncertain = False
            _again(self)
        else:
            self._refused = None
            self._listed(names, error)

    request = GetChildren(self._line.folder)
    self._calls = [self._link.prepare(request, listed, epoch=self._epoch)]
    self._link.submit(self._calls[0])


_again = Entry._again


def _keep_strays(self: Entry, *how: Any) -> None:
    with mock.patch.object(self._link, "discard"):
        _place(self, *how)


_place = Entry._place


def _leave_at_once(self: Entry) -> None:
    """Do not wait to learn whether a create took place."""
    if not self._left and not self._over():
        self._left = True
        if self.mine:
            self._epoch.hold(self.mine, self._room)
            self._link.discard(self.mine, self._epoch, lambda _gone: None)
        else:
            self._epoch.unreserve(self._room)


def _forget_uncertainty(self: Entry) -> None:
    self._uncertain = False
    _leave(self)


_leave = Entry.leave


def _discard_once(self: Link, path: str, epoch: Epoch, done: Callable[[bool], object]) -> None:
    """A delete whose answer was lost is not repeated."""

    def on_reply(_result: object, error: Any) -> None:
        epoch.free(path)
        done(not isinstance(error, EnsembleUnavailable))

    self.call(Delete(path), on_reply, epoch=epoch, verb="delete")


def _always_the_only_one(self: Acquisition[Any]) -> None:
    """The end of the nearest in front is taken for the grant."""
    self._grant()


def _head_only(
    found: ordering.Place, blocks: Callable[[ordering.Contender], bool] = lambda _: True
) -> tuple[ordering.Contender, bool] | None:
    """Everybody watches the head and goes when it goes."""
    ahead = [contender for contender in found.ahead if blocks(contender)]
    return (ahead[0], True) if ahead else None


def _adopt_anybodys(ordered: Any, session: int, request: str) -> ordering.Place | None:
    """Requests are known by their number alone, whatever the session."""
    own = [c for c in ordered if c.request == request]
    if not own:
        return None
    index = ordered.index(own[0])
    return ordering.Place(index, own[0], tuple(own[1:]), ordered[:index])


def _believe_until_told(self: lease_arithmetic.Belief, now: float) -> bool:
    return self._ended


def _by_receipt(self: ModelConnection, sent: float) -> None:
    """Belief is reckoned from when an answer came, not from when it was asked for."""
    _acknowledged(self, Clock.now)


_acknowledged = ModelConnection.acknowledged


def _late_answers_renew(self: lease_arithmetic.Belief, sent: float, now: float) -> bool:
    self.acknowledged = max(self.acknowledged, sent, now)
    self.valid_until = lease_arithmetic.valid_until(self.acknowledged, self.timeout, self.margin)
    return True


def _silent_reset(self: WatchTable) -> None:
    """Watches are thought to survive the link."""


def _no_gate(self: Folders, path: str) -> bool:
    return False


def _unfollowed(self: Acquisition[Any]) -> None:
    """Leaving forgets to take the watch back."""
    self._stop_timer()
    self._link.forget_epoch(self._enter)
    if self._epoch is not None:
        self._epoch.leave(self)
    if self._entry is not None:
        self._entry.leave()


def _whoever_owns_it(self: Entry, stat: Any, error: Any) -> None:
    if stat is not None:
        stat = stat._replace(owner=self._epoch.id)
    _looked(self, stat, error)


_looked = Entry._looked


@contextmanager
def _adopting() -> Iterator[None]:
    with (
        mock.patch.object(ordering, "place", _adopt_anybodys),
        mock.patch.object(Entry, "_looked", _whoever_owns_it),
    ):
        yield


MUTANTS = (
    Mutant("looks instead of writing again",
           replaced(Entry, "_again", _look_instead_of_writing_again), ("liveness", "leftovers")),
    Mutant("keeps strays", replaced(Entry, "_place", _keep_strays), ("leftovers", "liveness")),
    Mutant("leaves before it knows", replaced(Entry, "leave", _leave_at_once), ("leftovers",)),
    Mutant("forgets the unknown create",
           replaced(Entry, "leave", _forget_uncertainty), ("leftovers",)),
    Mutant("deletes once", replaced(Link, "discard", _discard_once), ("leftovers", "liveness")),
    Mutant("takes any end for its turn",
           replaced(Acquisition, "_front_gone", _always_the_only_one), ("exclusion", "order")),
    Mutant("watches the head only",
           replaced(ordering, "blocker", _head_only), ("exclusion", "order")),
    Mutant("trusts numbers that repeat",
           replaced(ordering, "exhausted", lambda _: False), ("exclusion", "order")),
    Mutant("adopts a foreign node", _adopting, ("exclusion", "order", "liveness")),
    Mutant("xids start again",
           replaced(ModelConnection, "xids_restart", True), ("leftovers", "liveness")),
    Mutant("believes until told",
           replaced(lease_arithmetic.Belief, "over", _believe_until_told), ("exclusion",), _HELD),
    Mutant("reckons from the receipt",
           replaced(ModelConnection, "acknowledged", _by_receipt), ("exclusion",),
           (*_ASKING, ("lag", 0))),
    Mutant("late answers renew",
           replaced(lease_arithmetic.Belief, "acknowledge", _late_answers_renew), ("exclusion",),
           _ASKING),
    Mutant("trusts watches across links",
           replaced(WatchTable, "reset", _silent_reset), ("liveness", "leftovers")),
    Mutant("forgets a watch", replaced(Acquisition, "_leave", _unfollowed), ("leftovers",)),
)  # fmt: skip
