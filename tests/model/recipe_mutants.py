"""Read-write lock, semaphore and multi-lock with one rule left out, for the model to find."""

from __future__ import annotations

from typing import Any
from unittest import mock

from lock_mutants import Mutant, replaced

from zkcoord.core import permits
from zkcoord.core.permits import Waiter
from zkcoord.recipes import multilock, rwlock
from zkcoord.recipes.acquisition import Acquisition
from zkcoord.recipes.multi_acquisition import MultiAcquisition
from zkcoord.recipes.multi_entry import MultiEntry
from zkcoord.recipes.permit_acquisition import PermitAcquisition
from zkcoord.zk.requests import NODE_CHANGED, WatchEvent


def _say_nothing(self: rwlock._Downgrade) -> None:
    self._done(True)


def _deaf_to_values(self: Acquisition[Any], event: WatchEvent | None) -> None:
    if event is None or event.kind != NODE_CHANGED:
        _fired(self, event)


_fired = Acquisition._fired


def _nearest_only(self: Waiter) -> list[str]:
    """One node is watched, as by who counts `permits` places ahead."""
    return list(self.ahead)[-1:]


def _tell_nobody(self: PermitAcquisition, epoch: object, mine: str) -> None:
    """The next across sessions is not told that it is the first to wait."""


def _one_each(contender: Any) -> int:
    return 1 if contender.kind == permits.PERMIT else 0


def _any_queue(self: MultiAcquisition[Any]) -> None:
    if self._entry is not None and self.wanted() and any(f.clear for f in self._fronts):
        self._entry.identify()


def _any_end(self: MultiAcquisition[Any], front: Any) -> None:
    front.clear = True
    self._check()


def _first_node_only(link: Any, paths: list[str], epoch: Any, done: Any) -> None:
    for path in paths[1:]:
        epoch.free(path)
    link.discard(paths[0], epoch, done)


def _look_instead(self: MultiEntry) -> None:
    if self._uncertain and not (self._over() or self._awaited or self._left):
        self._uncertain = False
        self._list_again()
    else:
        _again(self)


_again = MultiEntry._again


def _both(name: str, value: Any) -> Any:
    return lambda: mock.patch.multiple(multilock, **{name: value})


READ_WRITE = (
    Mutant("readers pass writers", replaced(rwlock, "_is_writer", lambda _: False),
           ("exclusion",)),
    Mutant("a downgrade says nothing", replaced(rwlock._Downgrade, "read", _say_nothing),
           ("liveness",)),
    Mutant("readers hear of ends only", replaced(Acquisition, "_fired", _deaf_to_values),
           ("liveness",)),
)  # fmt: skip
SEMAPHORE = (
    Mutant("watches one holder", replaced(Waiter, "watched", _nearest_only), ("liveness",)),
    Mutant("tells nobody", replaced(PermitAcquisition, "_signal", _tell_nobody), ("liveness",)),
    Mutant("counts requests, not weights", replaced(permits, "weight_of", _one_each),
           ("exclusion",)),
)  # fmt: skip
MULTI = (
    Mutant("any queue will do", replaced(MultiAcquisition, "_check", _any_queue), ("exclusion",)),
    Mutant("any end will do", replaced(MultiAcquisition, "cleared", _any_end),
           ("exclusion", "order")),
    Mutant("deletes one of its nodes", _both("discard_all", _first_node_only),
           ("leftovers", "liveness")),
    Mutant("looks instead of writing again", replaced(MultiEntry, "_again", _look_instead),
           ("leftovers", "liveness")),
)  # fmt: skip
