"""Coming to a double barrier: the state machine of `enter`.

1. Get into the line, in one flight and exactly once: :mod:`zkcoord.recipes.entry`.
2. Watch one's own node. It changes when a round is made that one is in: nothing else lets anybody
   in, so a spurious wake-up only makes one look at it again.
3. Whoever is the last of a round, as the line stands, makes it: one `multi` that writes to each
   member's node on condition that nothing was written to it before. See
   :mod:`zkcoord.core.rounds`. Each one further behind watches the node that is as many places in
   front as a round has members: when that one is in a round, the next round ends here. Those of
   the next round watch the folder too, in case one of them is gone. When nothing changes for a
   while they make the round of the slow one.
4. Near the deadline one withdraws on the same condition. Refused, one is in a round after all, and
   its node tells which. Nobody gives up while a server is being asked: it would leave a round that
   counts on it. When the servers do not answer for two seconds, nobody can know.

Like all double barriers after the one of the ZooKeeper recipes; that one lets late comers of the
next round in when somebody has left already.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Generic, TypeVar

from zkcoord.core.ordering import Contender, Place, in_order
from zkcoord.core.rounds import Arrived, Round, completed, decode_arrived
from zkcoord.errors import (
    ConfigError,
    CoordinationError,
    EnsembleUnavailable,
    LeaseLost,
    NodeForeign,
    NodeMissing,
    SessionClosed,
    SessionLost,
    VersionConflict,
    WaitTimeout,
)
from zkcoord.recipes.entry import Entry
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.line import Line
from zkcoord.recipes.steps import PAUSE_S, Course, Flight, News, Pause, Steps, read, read_watched
from zkcoord.zk.clock import now
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.loop import Timer
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Delete, GetChildren, GetData, Multi, SetData
from zkcoord.zk.translate import LinkDropped

_WITHDRAW_S = 0.05  # so long before the deadline, or this share of a short one
_WITHDRAW_SHARE = 0.25
_GRACE_S = 2.0  # so long after it an answer is waited for while the link is up
_LOOK_S = 0.1  # whether it still is
_AGAIN_S = (0.1, 0.3)
_CHUNK = 256
_MULTI_BYTES_MAX = 900_000  # a server takes 1 MB

LeaseT = TypeVar("LeaseT", bound=Lease)


class Admission:
    """What a round gave to one participant: its node, token, round, and when it was made."""

    def __init__(self, path: str, token: int, found: Round, made: int) -> None:
        self.path = path
        self.token = token
        self.round = found
        self.made = made


class Arrival(Generic[LeaseT]):
    """One request to enter.

    Args:
        timeout: seconds; None waits until the round is complete or the session is lost.
        make: builds the lease.
    """

    def __init__(
        self,
        link: Link,
        line: Line,
        size: int,
        timeout: float | None,
        make: Callable[[Epoch, Admission], LeaseT],
    ) -> None:
        self._link = link
        self._line = line
        self._size = size
        self._timeout = timeout
        self._make = make
        self._rng = Random()  # noqa: S311 - jitter
        self._epoch: Epoch | None = None
        self._entry: Entry | None = None
        self._gathering: Steps[Admission] | None = None
        self._turn = False
        self._front = ""
        self._present: int | None = None  # how many counted for our round
        self._behind = ""  # the node as many places in front as a round has members
        self._behind_known = ""  # it was in a round when last seen
        self._due = False  # the deadline is near
        self._withdrawing = False  # a server is asked to
        self._withdrawn = False  # it may have been carried out
        self._timers: list[Timer] = []
        self.promise: Promise[LeaseT] = Promise(link.dispatcher, undo=_undo)

    def begin(self) -> Promise[LeaseT]:
        """Queue up. From any thread."""
        self._link.check_open()
        self.promise.on_done(self._decided)
        self._link.loop.post(self._begin)
        return self.promise

    def _begin(self) -> None:
        if self._timeout is not None:
            early = min(_WITHDRAW_S, self._timeout * _WITHDRAW_SHARE)
            self._timers.append(self._link.timer(self._timeout - early, self._withdraw))
            self._timers.append(self._link.timer(self._timeout, self._expired, now() + _GRACE_S))
        self._link.with_epoch(self._enter, self._closed)

    def _decided(self) -> None:
        if self.promise.cancelled():
            self._link.loop.post(self._leave)

    def _enter(self, epoch: Epoch) -> None:
        if self.promise.done():
            return
        self._epoch = epoch
        epoch.join(self, self._session_over)
        self._entry = Entry(self._link, self._line, epoch, self)
        self._entry.enter()

    # --- what the entry reports -----------------------------------------------------------------

    def wanted(self) -> bool:
        """Whether nothing is decided yet."""
        return not self.promise.done()

    def placed(self, found: Place) -> None:
        """We are in the line."""
        self._turn = found.position + 1 >= self._size
        self._present = found.position + 1
        self._front = self._line.path(found.ahead[0].node) if found.ahead else ""
        if self._entry is not None:
            self._entry.identify()

    def identified(self, token: int) -> None:
        """Our node's token is known: watch it."""
        entry, epoch = self._entry, self._epoch
        if entry is None or epoch is None or epoch.over() or self.promise.done():
            self._leave()
            return
        course = self._gather(entry.mine, token)
        self._gathering = Steps(self._link, course, self._line.name, None, epoch=epoch)
        self._gathering.promise.on_done(self._gathered)
        self._gathering.begin()
        if self._due:
            self._withdraw()

    def failed(self, error: CoordinationError) -> None:
        """We cannot get in, or our node was removed."""
        self.promise.fail(error)
        self._leave()

    # --- waiting for a round --------------------------------------------------------------------

    def _gather(self, mine: str, token: int) -> Course[Admission]:
        yield from self._check_size()
        while True:
            try:
                value, stat = yield from read_watched(GetData(mine, watch=True))
            except NodeMissing:
                raise self._removed() from None
            if stat.czxid != token:
                raise self._removed()
            if stat.version:
                arrived = decode_arrived(value)
                if arrived is None or arrived.round is None:
                    raise NodeForeign(f"{self._line.name}: something else wrote to our node")
                return Admission(mine, token, arrived.round, stat.mzxid)
            # Those in front only ever become fewer: who is no round's last need not look again.
            self._turn = self._turn and (yield from self._complete(mine))
            if not self._turn:
                yield News()  # of our own node

    def _check_size(self) -> Course[None]:
        """Whoever is in front waits for as many."""
        if not self._front:
            return
        try:
            value, _ = yield from read(GetData(self._front))
        except NodeMissing:
            return
        first = decode_arrived(value)
        if first is not None and first.size != self._size:
            raise ConfigError(
                f"{self._line.name}: size {self._size}, but {first.name or first.host} "
                f"(pid {first.pid}) waits for {first.size}",
                hint="give the same size everywhere, or use another name",
            )

    def _complete(self, mine: str) -> Course[bool]:
        """Make a round if there are enough; False when that is for those behind to do."""
        waiting = yield from self._waiting(mine)
        if len(waiting) < self._size:
            return False
        if waiting[self._size - 1][0].node != _node(mine):
            if (yield from self._stand_behind(mine)):
                return True
            waiting = yield from self._waiting(mine)
            if len(waiting) < self._size:
                return False
        writes = tuple(
            SetData(self._line.path(node), value, 0)
            for node, value in completed(waiting[: self._size])
        )
        if sum(len(one.path) + len(one.data) for one in writes) > _MULTI_BYTES_MAX:
            raise ConfigError(
                f"{self._line.name}: one write cannot reach {self._size} nodes with such names",
                hint="use shorter names or labels, or a smaller size",
            )
        try:
            yield Multi(writes)
        except (VersionConflict, NodeMissing, LinkDropped):
            pass  # something has changed; our own node tells
        except EnsembleUnavailable:
            yield Pause(PAUSE_S)
        return True

    def _stand_behind(self, mine: str) -> Course[bool]:
        """Another one's turn: whether something has changed; not for a while: make its round."""
        near = (self._present or 0) <= 2 * self._size  # few are: no herd
        waiting = yield from self._waiting(mine, watched=near)
        if (self._present or 0) <= self._size or not waiting:
            return True
        front, known = self._line.path(self._behind), self._behind_known
        try:
            _, stat = yield from read_watched(GetData(front, watch=True))
        except NodeMissing:
            return True
        self._behind_known = self._behind if stat.version else ""
        if stat.version and known != self._behind:
            return True
        return (yield News(self._rng.uniform(*_AGAIN_S))) is not None

    def _waiting(
        self, mine: str, *, watched: bool = False
    ) -> Course[list[tuple[Contender, Arrived]]]:
        """The first in the line that are in no round, up to us: as many as make one, and more.

        None when too few are there. Those behind a waiting one wait too, so not all are read.
        """
        ask = read_watched if watched else read
        line = in_order((yield from ask(GetChildren(self._line.folder, watch=watched))))
        upto = next((index for index, one in enumerate(line, 1) if one.node == _node(mine)), 0)
        self._present = upto
        self._behind = line[upto - 1 - self._size].node if upto > self._size else ""
        waiting: list[tuple[Contender, Arrived]] = []
        if upto < self._size:
            return waiting
        asked = 0
        while asked < upto and len(waiting) <= self._size:
            some = line[asked : min(upto, asked + _CHUNK)]
            asked += len(some)
            while True:
                found = yield Flight(*(GetData(self._line.path(one.node)) for one in some))
                if not any(isinstance(one, LinkDropped) for one in found):
                    break
            for one, result in zip(some, found, strict=True):
                if isinstance(result, NodeMissing):
                    continue
                if isinstance(result, CoordinationError):
                    raise result
                value, stat = result
                arrived = decode_arrived(value)
                if stat.version == 0 and arrived is not None and arrived.size == self._size:
                    waiting.append((one, arrived))
        self._present = len(waiting) + upto - asked
        return waiting

    def _removed(self) -> LeaseLost:
        name = self._line.name
        text = f"{name}: the node was removed while it waited"
        return LeaseLost(text, name=name, token=0, reason="removed")

    # --- the end --------------------------------------------------------------------------------

    def _gathered(self) -> None:
        gathering, entry, epoch = self._gathering, self._entry, self._epoch
        if gathering is None or entry is None or epoch is None or gathering.promise.cancelled():
            return
        error = gathering.promise.exception()
        if error is not None:
            if isinstance(error, LeaseLost) and self._withdrawn:
                error = self._late()  # we removed it ourselves
            self.promise.fail(error)
            self._leave()
            return
        if self.promise.done() or epoch.over():
            self._leave()
            return
        entry.granted()
        epoch.leave(self)
        self._stop_timers()
        lease = self._make(epoch, gathering.promise.result())
        if not self.promise.fulfil(lease):
            lease.leave(quiet=True)

    def _withdraw(self) -> None:
        """The deadline is near: go, unless a round has us already."""
        self._due = True
        entry, epoch = self._entry, self._epoch
        if self.promise.done() or entry is None or epoch is None or self._gathering is None:
            return  # once we are in the line
        if self._withdrawing:
            return

        def withdrawn(_result: Any, error: CoordinationError | None) -> None:
            if error is None and not self.promise.done():
                entry.granted()  # nothing is left for the entry to remove
                epoch.free(entry.mine)
                self.promise.fail(self._late())
                self._leave()
            elif isinstance(error, EnsembleUnavailable):
                self._withdrawing = False  # ask again
            # else: a round has us, or the node was removed; the one who gathers reads which

        self._withdrawing = self._withdrawn = True
        self._link.call(Delete(entry.mine, 0), withdrawn, epoch=epoch, verb="withdraw")

    def _expired(self, until: float) -> None:
        """The deadline has passed: give up, but not while a round may count on us."""
        if self.promise.done():
            return
        if self._entry is not None and self._link.connected and now() < until:
            self._withdraw()
            self._timers.append(self._link.timer(_LOOK_S, self._expired, until))
            return
        self.promise.fail(self._late())
        self._leave()

    def _late(self) -> WaitTimeout:
        name, present = self._line.name, self._present
        if present is None or present >= self._size:
            text = f"{name}: no round of {self._size} was made with this one"
            text += f" within {self._timeout:g} s"
        else:
            text = f"{name}: not {self._size} came within {self._timeout:g} s"
            text += f", last count: {present}"
        if not self._link.connected:
            text += f"; no link to ZooKeeper: {self._link.why_down}"
        return WaitTimeout(text)

    def _closed(self) -> None:
        self.promise.fail(SessionClosed(f"{self._line.name}: the session is closed"))
        self._stop_timers()

    def _session_over(self) -> None:
        if self._epoch is not None:
            kind = SessionClosed if self._link.closed else SessionLost
            self.promise.fail(kind(f"{self._line.name}: the session is over, {self._epoch.reason}"))
        self._stop_timers()

    def _leave(self) -> None:
        """Leave nothing behind: no timer, no watch, no node."""
        self._stop_timers()
        self._link.forget_epoch(self._enter)
        if self._epoch is not None:
            self._epoch.leave(self)
        if self._gathering is not None:
            self._gathering.promise.cancel()
        if self._entry is not None:
            self._entry.leave()

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


def _undo(lease: Lease) -> None:
    lease.leave(quiet=True)


def _node(path: str) -> str:
    return path.rpartition("/")[2]
