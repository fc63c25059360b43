"""Standing for election: an acquisition that may be asked to step behind.

A leader that hands over to a named candidate removes its own node and those of the candidates in
between, all at once (:mod:`zkcoord.recipes.transfer`). Two things follow for a candidate:

- The end of its predecessor is no grant by itself: its own node may have gone in the same moment.
  So after having waited it asks whether its node is there. Another write cannot come in between:
  both went in one transaction, and the server that told of the one has carried out the other.
- When its node is gone it stands for election again, behind all who wait. That is what makes the
  terms rise: its new node is younger than that of the one who was preferred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkcoord.errors import CoordinationError, LeaseLost
from zkcoord.recipes.acquisition import Acquisition, LeaseT
from zkcoord.zk.requests import Exists, Stat

if TYPE_CHECKING:
    from zkcoord.recipes.entry import Entry

BEHIND_MAX = 64  # who is sent behind more often has been refused by an operator


class Candidacy(Acquisition[LeaseT]):
    """One request to lead."""

    _behind = 0

    def _grant(self) -> None:
        entry = self._entry
        if self._watched and entry is not None and entry.mine:
            exists = Exists(entry.mine)
            self._requests += 1

            def asked(stat: Stat | None, error: CoordinationError | None) -> None:
                self._own_node(entry, stat, error)

            self._link.call(exists, asked, epoch=self._epoch, verb="exists")
        else:
            super()._grant()

    def _own_node(self, entry: Entry, stat: Stat | None, error: CoordinationError | None) -> None:
        if self.promise.done() or entry is not self._entry:
            return
        if error is not None:
            self._trouble(error, self._grant)
        elif stat is None:
            entry.look()  # finds that it is gone, and tells `failed`
        else:
            super()._grant()

    def failed(self, error: CoordinationError) -> None:
        """It cannot be had; or the node was removed: then behind all others."""
        removed = isinstance(error, LeaseLost) and error.reason == "removed"
        epoch = self._epoch
        if not removed or self.promise.done() or epoch is None or self._behind >= BEHIND_MAX:
            super().failed(error)
            return
        self._behind += 1
        if self._watched:
            self._stop_following()
            self._unwatch()
            self._watched = ""
        self._last_in_front = False
        self._queue_up(epoch)
