"""Waiting for a slot of a pool.

A request first queues for the *turn*, which is an exclusive lock on the pool's folder. Who has the
turn takes a free slot by one transaction that creates the slot's node and deletes the one in the
queue: so slots are given out in the order of request, one at a time, and the next in line has the
turn as soon as a slot was taken. While no slot is free only the one who has the turn watches them.

Why each slot has one holder: its node has the slot's name, so the server refuses a second one, and
it is ephemeral, so it goes with its holder's session, who stops believing before. The node's czxid
is the fencing token: later holders have higher ones. The transaction also checks the version of the
folder's value, so a slot is never given out after it was drained.

Why none is lost: a slot's node is deleted by the release, or with the session. A transaction of
unknown outcome is sent again, which orders what is read then after the first; the slot's value
names the request, so whose it is is known.
"""

from __future__ import annotations

from typing import Any

from zkcoord.core import ordering
from zkcoord.core.slots import Slots, write_slots
from zkcoord.errors import (
    CoordinationError,
    EnsembleUnavailable,
    LeaseLost,
    NodeExists,
    NodeMissing,
    SessionClosed,
    SessionLost,
    VersionConflict,
)
from zkcoord.recipes.acquisition import Acquisition
from zkcoord.recipes.contenders import describe
from zkcoord.recipes.lasting import SLOTS
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.line import Line
from zkcoord.recipes.resizing import first_error
from zkcoord.recipes.retrying import PAUSE_S
from zkcoord.recipes.slot import SlotLease, same_claim, understand
from zkcoord.recipes.waiting import Waiting
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.names import join
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import (
    EPHEMERAL,
    WATCH_CHILDREN,
    WATCH_DATA,
    Check,
    Create,
    Delete,
    GetChildren,
    GetData,
    Multi,
    SetData,
    WatchEvent,
)
from zkcoord.zk.translate import LinkDropped


class _Turn(Lease):
    """Being the first in the queue. Its node goes with the claim, which finds out if it is gone."""

    def _watch_over(self) -> None:
        """Not needed."""

    def used(self) -> None:
        """The claim took it along. On the loop."""
        self._reason = "released"
        self._epoch.leave(self)
        self._epoch.free(self._absolute)


class SlotAcquisition(Waiting[SlotLease]):
    """One request for a slot.

    Args:
        folder: absolute path of the pool. name: for messages. label: who asks.
        slots: as the program knows them, if it does. prefer: taken when it is free.
    """

    def __init__(
        self,
        link: Link,
        folder: str,
        name: str,
        timeout: float | None,
        *,
        label: str,
        slots: tuple[str, ...] | None,
        prefer: str,
    ) -> None:
        super().__init__(link, name, f"{name}: a slot", timeout)
        self._folder = folder
        self._slots_folder = join(folder, SLOTS)
        self._label = label
        self._slots = slots
        self._prefer = prefer
        self._asking: Promise[_Turn] | None = None
        self._turn: _Turn | None = None
        self._looking = False
        self._watching = False
        self._stale = False
        self._listing: CoordinationError | None = None
        self._taken: list[str] = []
        self._claiming = False
        self._uncertain = False
        self._room = 0

    def _enter(self, epoch: Epoch) -> None:
        del epoch  # the turn finds the same one
        self._looking = True  # before the turn may come, on the loop: one look at a time
        if not self._trying:
            self._queue_up()
        self._ask(watch=False)  # in the same flight: it may be our turn already

    def _queue_up(self) -> None:
        line = Line(self._folder, self._name, describe(self._label), recipe="pool")

        def turn(epoch: Epoch, path: str, token: int) -> _Turn:
            return _Turn(self._link, epoch, path=path, name=self._name, token=token)

        self._asking = Acquisition(self._link, line, None, turn).begin()
        self._asking.on_done(lambda: self._link.loop.post(self._turned))

    def _turned(self) -> None:
        if self._take_turn() and not self._looking and not self._claiming:
            self._look()

    def _take_turn(self) -> bool:
        """Whether it is our turn."""
        asking = self._asking
        if self._turn is not None or asking is None or not asking.done() or asking.cancelled():
            return self._turn is not None and self.wanted()
        error = asking.exception()
        if isinstance(error, CoordinationError):
            self.failed(error)
            return False
        self._turn = asking.result()
        if not self.wanted():
            self._give_up()
        return self.wanted()

    # --- looking for a free slot ------------------------------------------------------------------

    def _look(self, *, watch: bool = False) -> None:
        """Which slots are taken, and behind it which there are."""
        if self._looking or not self.wanted():
            return
        if not watch:
            self._unwatch()
        self._looking, self._watching = True, watch
        self._ask(watch=watch)

    def _ask(self, *, watch: bool) -> None:
        listing = GetChildren(self._slots_folder, watch=watch)
        reading = GetData(self._folder, watch=watch)
        if watch:
            watches, epoch = self._link.watches, self._epoch
            watches.watch(listing, self._fired, self._listed, epoch=epoch)
            watches.watch(reading, self._fired, self._read, epoch=epoch)
        else:
            self._link.call(listing, self._listed, epoch=self._epoch, verb="children")
            self._link.call(reading, self._read, epoch=self._epoch, verb="get")

    def _listed(self, names: list[str] | None, error: CoordinationError | None) -> None:
        self._taken = names or []
        self._listing = None if isinstance(error, NodeMissing) else error

    def _read(self, result: Any, error: CoordinationError | None) -> None:
        self._looking = False
        stale, self._stale = self._stale, False
        if not self.wanted():
            self._unwatch()
            return
        if stale:
            self._look()
            return
        self._heads = [join(self._slots_folder, one) for one in self._taken[:1]]
        peeking = self._asking is None
        turn = self._take_turn()
        problem = self._listing or error
        if not self.wanted():
            return
        if peeking and isinstance(problem, NodeMissing):
            self._decide(b"", 0)
        elif problem is not None and (turn or peeking):
            self._trouble(problem, self._look)
        elif problem is None and (turn or peeking):
            self._decide(result[0], result[1].version)
        elif problem is None and self._trying:
            self._refuse()  # another came before us

    def _decide(self, value: bytes, version: int) -> None:
        slots = understand(self._name, value, self._slots)
        if isinstance(slots, CoordinationError):
            self.failed(slots)
            return
        slot = slots.choose(self._taken, self._prefer)
        if self._asking is None:
            self._peeked(slot)
        elif not value:
            self._declare(slots, version)
        elif slot:
            self._claim(slot, version)
        elif self._trying:
            self._refuse()
        elif not self._watching:
            self._look(watch=True)

    def _peeked(self, slot: str) -> None:
        """A try has written nothing yet: is it worth it?"""

        def listed(names: list[str] | None, error: CoordinationError | None) -> None:
            if not self.wanted():
                return
            if error is not None and not isinstance(error, NodeMissing):
                self._trouble(error, self._look)
            elif ordering.in_order(names or ()):
                self._refuse()
            else:
                self._queue_up()
                self._look()

        if slot:
            self._link.call(GetChildren(self._folder), listed, epoch=self._epoch, verb="children")
        else:
            self._refuse()

    def _fired(self, _event: WatchEvent | None) -> None:
        if self._looking:
            self._stale = True  # what is read now may be older than the change
        elif self._watching:
            self._look()

    def _unwatch(self) -> None:
        self._watching = False
        watches = self._link.watches
        watches.forget(WATCH_CHILDREN, self._slots_folder, self._fired)
        watches.forget(WATCH_DATA, self._folder, self._fired)

    def _declare(self, slots: Slots, version: int) -> None:
        """Nobody wrote the slots yet: ours count, if we are first."""

        def written(_result: Any, error: CoordinationError | None) -> None:
            if error is not None and not isinstance(error, VersionConflict):
                self._trouble(error, self._look)
            elif self.wanted():
                self._look()

        request = SetData(self._folder, write_slots(slots), version)
        self._link.call(request, written, epoch=self._epoch, verb="set")

    # --- taking it --------------------------------------------------------------------------------

    def _make_room(self, epoch: Epoch, path: str) -> None:
        room = len(path.encode())
        if self._room:
            epoch.unreserve(self._room)
            self._room = 0
        try:
            epoch.reserve(path, room)
        except CoordinationError as error:
            self.failed(error)
        else:
            self._room = room

    def _claim(self, slot: str, version: int) -> None:
        turn, epoch = self._turn, self._epoch
        assert turn is not None
        assert epoch is not None
        path = join(self._slots_folder, slot)
        self._make_room(epoch, path)
        if not self.wanted():
            return
        self._claiming = True
        mine = self._turn_path()
        epoch.leaving.add(mine)
        value = describe(self._label, mine.rpartition("/")[2].encode())
        create = Create(path, value, EPHEMERAL)
        self._send(create, Multi((Check(self._folder, version), create, Delete(mine))))

    def _send(self, create: Create, request: Multi) -> None:
        def replied(results: Any, error: CoordinationError | None) -> None:
            if error is None:
                error = first_error(request.operations, results)
            if isinstance(error, LinkDropped):
                self._uncertain = self._uncertain or error.sent
                if self.wanted() or self._uncertain:
                    self._send(create, request)
                else:
                    self._not_claimed(error)
            elif error is None:
                self._claimed(create.path, results[1][1].czxid)
            elif self._uncertain:
                self._verify(create)
            else:
                self._not_claimed(error)

        self._link.call(request, replied, epoch=self._epoch, verb="claim")

    def _verify(self, create: Create) -> None:
        """It failed when it was sent again: was it carried out before?"""

        def read(result: Any, error: CoordinationError | None) -> None:
            if isinstance(error, (SessionLost, SessionClosed)):
                return  # the end of the session tells everybody
            if isinstance(error, EnsembleUnavailable):
                self._link.timer(PAUSE_S, self._verify, create)
            elif error is None and same_claim(result[0], create.data):
                self._claimed(create.path, result[1].czxid)
            else:
                self._not_claimed(VersionConflict(f"{self._name}: another was faster"))

        self._link.call(GetData(create.path), read, epoch=self._epoch, verb="get")

    def _not_claimed(self, error: CoordinationError) -> None:
        self._claiming = self._uncertain = False
        if not self.wanted():
            self._give_up()
        elif isinstance(error, (VersionConflict, NodeExists)):
            self._look()
        elif isinstance(error, NodeMissing):
            self._link.call(
                GetData(self._turn_path()), self._checked, epoch=self._epoch, verb="get"
            )
        else:
            self._trouble(error, self._look)

    def _turn_path(self) -> str:
        assert self._turn is not None
        return self._link.absolute(self._turn.path)

    def _checked(self, _result: Any, error: CoordinationError | None) -> None:
        """Something was missing: our node in the queue, or the folder of slots?"""
        if isinstance(error, NodeMissing):
            text = f"{self._name}: the node was removed while it waited"
            self.failed(LeaseLost(text, name=self._name, token=0, reason="removed"))
        elif error is not None:
            self._trouble(error, self._look)
        else:
            self._link.ensure(self._slots_folder, self._ensured, container=True)

    def _ensured(self, error: CoordinationError | None) -> None:
        if error is not None:
            self._trouble(error, self._look)
        else:
            self._look()

    def _claimed(self, path: str, token: int) -> None:
        epoch, turn = self._epoch, self._turn
        assert epoch is not None
        assert turn is not None
        self._claiming = self._uncertain = False
        epoch.hold(path, self._room)
        self._room = 0
        self._turn = None
        turn.used()
        self._unwatch()
        if epoch.over() or self._link.closed:
            return  # the end of the session tells everybody
        slot = path.rpartition("/")[2]
        name = f"{self._name}: slot {slot}"
        self._done(SlotLease(self._link, epoch, path=path, name=name, token=token, slot=slot))

    # --- giving up --------------------------------------------------------------------------------

    def _tidy(self) -> None:
        self._unwatch()
        if self._asking is not None and not self._asking.done():
            self._asking.cancel()
        if not self._claiming:
            self._give_up()  # else what becomes of the claim leads back here

    def _give_up(self) -> None:
        """No claim is on its way: leave the queue."""
        if self._epoch is not None and self._room:
            self._epoch.unreserve(self._room)
            self._room = 0
        if self._turn is not None:
            self._turn.leave(quiet=True)
            self._turn = None
