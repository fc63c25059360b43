"""Waiting for permits of a semaphore: the state machine around :mod:`zkcoord.core.permits`.

- *Getting in* is one flight: create, listing, and the folder's limit behind it. Who comes right
  behind another waiter of the same session only creates: that one tells it all it needs. Limit and
  listing count as one instant when the limit was not changed after our node was made, or not since
  it was read before the listing; otherwise both are asked once more.
- *Hand-off.* The first waiter watches holders and the limit, so what ends lets it decide without
  a read. Once granted it tells who follows it: within a session directly, watches included; another
  session's by writing the names of those ahead into its own node, which the follower watches.
- *A try that cannot win writes nothing.*

Everything but `begin` runs on the loop.
"""

from __future__ import annotations

from typing import Any

from zkcoord.core import ordering, permits
from zkcoord.core.ordering import Place
from zkcoord.core.permits import Limit, Step, Waiter
from zkcoord.errors import (
    CoordinationError,
    EnsembleUnavailable,
    NodeMissing,
    VersionConflict,
)
from zkcoord.recipes.entry import Entry
from zkcoord.recipes.line import Line
from zkcoord.recipes.lookout import Lookout
from zkcoord.recipes.permit import (
    Asked,
    PermitLease,
    read_signal,
    too_heavy,
    understand,
    write_signal,
)
from zkcoord.recipes.waiting import Waiting
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.requests import GetChildren, GetData, SetData, Stat


class PermitAcquisition(Waiting[PermitLease]):
    """One request for permits; see :class:`~zkcoord.recipes.waiting.Waiting`."""

    def __init__(self, link: Link, asked: Asked, timeout: float | None) -> None:
        what = f"{asked.name}: {asked.weight} of the permits"
        super().__init__(link, asked.name, what, timeout)
        self._asked = asked
        self._line = Line(
            asked.folder,
            asked.name,
            asked.data,
            kind=permits.PERMIT,
            load=permits.load(asked.weight),
            listed=self._read_limit,
            behind=self._comes_behind,
            recipe="semaphore",
        )
        self._waiter = Waiter(asked.weight)
        self._entry: Entry | None = None
        self._lookout: Lookout | None = None
        self._found: Place | None = None
        self._limit_zxid = 0
        self._signals = False
        self._granting = False
        self._following = ""
        self._neighbour: Limit | None = None
        self._declared = asked.permits  # compared once: it may be resized while we wait

    def _enter(self, epoch: Epoch) -> None:
        if self._trying:
            self._peek()
        else:
            self._queue_up(epoch)

    def _queue_up(self, epoch: Epoch) -> None:
        self._entry = Entry(self._link, self._line, epoch, self)
        self._entry.enter()

    # --- a try ------------------------------------------------------------------------------------

    def _peek(self) -> None:
        seen: list[Any] = []

        def listed(names: list[str] | None, error: CoordinationError | None) -> None:
            seen.extend((names or [], error))

        def read(result: Any, error: CoordinationError | None) -> None:
            names, failed = seen
            for problem in (failed, error):
                if problem is not None and not isinstance(problem, NodeMissing):
                    self._trouble(problem, self._peek)
                    return
            self._peeked(names, b"" if error else result[0])

        folder = self._asked.folder
        self._link.call(GetChildren(folder), listed, epoch=self._epoch, verb="children")
        self._link.call(GetData(folder), read, epoch=self._epoch, verb="get")

    def _peeked(self, names: list[str], value: bytes) -> None:
        limit = self._understand(value)
        if not self.wanted() or self._epoch is None or limit is None:
            return
        step = Step.GRANT
        if value:
            queue = ordering.in_order(names)
            foreign = self._line.stranger(queue, names)
            if foreign is not None:
                self.failed(foreign)
                return
            self._heads = [self._line.path(one.node) for one in queue[:1]]
            step = self._waiter.placed(queue, limit)
        if step is Step.GRANT:
            self._queue_up(self._epoch)
        else:
            self._take(step, sure=True)

    # --- the limit --------------------------------------------------------------------------------

    def _read_limit(self) -> None:
        """A listing was sent: read the limit behind it."""
        if self.wanted():
            request = GetData(self._asked.folder)
            self._link.call(request, self._limit_read, epoch=self._epoch, verb="get")

    def _limit_read(self, result: Any, error: CoordinationError | None) -> None:
        found, entry = self._found, self._entry
        if found is None or entry is None or not self.wanted():
            return  # the listing failed and was sent again, another read behind it
        if error is not None:
            self._trouble(error, self._read_limit)
            return
        value, stat = result
        self._found = None
        limit = self._understand(value)
        if limit is None:
            return
        if not value:
            self._declare(limit, stat)
        elif self._at_one_instant(stat, entry.token):
            self._signals = self._signals or found.behind > 0
            self._heads = [self._line.path(one.node) for one in found.ahead[:1]]
            self._take(self._waiter.placed(found.ahead, limit), sure=True)
        else:  # the limit was changed meanwhile: listing and limit may belong to different times
            self._limit_zxid = stat.mzxid
            entry.look()

    def _at_one_instant(self, stat: Stat, token: int) -> bool:
        """Whether a limit read behind a listing stood when the listing was made."""
        return stat.mzxid < token or stat.mzxid == self._limit_zxid

    def _understand(self, value: bytes) -> Limit | None:
        # A folder may be made anew after a try has looked at the one before: then ours counts.
        declared = self._declared if value else self._asked.permits
        limit = understand(self._asked.name, value, declared)
        if isinstance(limit, CoordinationError):
            self.failed(limit)
            return None
        if value:
            self._declared = None
        return limit

    def _declare(self, limit: Limit, stat: Stat) -> None:
        """Nobody wrote a limit yet: ours counts, if we are first."""
        entry = self._entry
        assert entry is not None

        def written(result: Any, error: CoordinationError | None) -> None:
            if error is not None and not isinstance(error, VersionConflict):
                self._trouble(error, entry.look)
            elif self.wanted():
                if error is None:
                    self._limit_zxid = result.mzxid
                entry.look()

        request = SetData(self._asked.folder, permits.write_limit(limit), stat.version)
        self._link.call(request, written, epoch=self._epoch, verb="set")

    # --- in the line: what entry and lookout report ----------------------------------------------

    def placed(self, found: Place) -> None:
        """This is where we stand. After a listing the limit comes behind it."""
        limit, self._neighbour = self._neighbour, None
        if limit is None:
            self._found = found
            return
        self._declared = None
        self._heads = [self._line.path(one.node) for one in found.ahead[:1]]
        self._take(self._waiter.behind(found.ahead[-1].node, limit))

    @property
    def limit(self) -> Limit:
        """As last seen; without permits before it was."""
        return self._waiter.limit

    def _comes_behind(self, other: object) -> bool:
        """Whether another of this session waits right in front, and knows the limit.

        It tells us when it is granted, and what we watch then; and we see when it goes. So its
        limit need not be the present one, as long as it does not make us give up.
        """
        asker = other.asker if isinstance(other, Entry) else None
        if not isinstance(asker, PermitAcquisition) or not asker.wanted():
            return False
        limit = asker.limit
        agreed = self._declared is None or limit.agrees(self._declared)
        if not limit.permits or not agreed or self._waiter.hopeless(limit):
            return False
        self._neighbour = limit
        return True

    def gone(self, node: str) -> None:
        """A node in front has gone.

        When it was our own session's and nobody here deleted it, an operator did, or the session
        was ended from elsewhere: then ours has gone in the same instant.
        """
        if not self.wanted() or self._epoch is None:
            return
        contender = ordering.parse(node)
        foreign = contender is None or contender.owner != ordering.encode_session(self._epoch.id)
        sure = foreign or self._line.path(node) in self._epoch.leaving
        self._take(self._waiter.gone(node, sure=sure))

    def limited(self, value: bytes) -> None:
        """The limit is this now."""
        limit = self._understand(value) if self.wanted() else None
        if limit is not None:
            self._take(self._waiter.resized(limit))

    def told(self, node: str, value: bytes) -> None:
        """The value of the node that we follow."""
        granted, ahead = read_signal(value)
        contender = ordering.parse(node)
        if granted and contender is not None and self.wanted():
            self._take(self._waiter.succeed(node, permits.weight_of(contender), ahead))

    def _take(self, step: Step, *, sure: bool = False) -> None:
        """Do what follows. `sure`: the limit is known to be the present one."""
        if step is Step.REFUSE:
            limit = self._waiter.limit.permits
            self.failed(too_heavy(self._asked.name, self._asked.weight, limit))
        elif self._entry is None or (self._trying and step is not Step.GRANT):
            self._refuse()
        elif step is Step.LOOK:
            self._stop_following()
            self._entry.look()
        elif step is Step.GRANT and (sure or (self._lookout is not None and self._lookout.live)):
            self._grant()
        else:
            self._signals = True
            self._watch()

    def _watch(self) -> None:
        epoch, followed = self._epoch, self._waiter.followed
        assert epoch is not None
        if self._lookout is None:
            self._lookout = Lookout(self._link, epoch, self._asked.folder, self)
        if not followed:
            self._stop_following()
            self._lookout.watch(self._waiter.watched())
        elif followed != self._following:
            self._stop_following()
            self._following = followed
            epoch.successors[self._line.path(followed)] = self._inherit
            self._lookout.follow(followed)

    def _stop_following(self) -> None:
        if self._following and self._epoch is not None:
            self._epoch.successors.pop(self._line.path(self._following), None)
            self._following = ""

    def _inherit(self, other: PermitAcquisition) -> None:
        """The one we follow, of our own session, was granted: go on with what it watches."""
        if not self.wanted() or self._lookout is None:
            return
        self._waiter.inherit(self._following, other._waiter)
        self._stop_following()
        if other._lookout is not None:
            other._lookout.hand_over(self, self._lookout)
            self._lookout, other._lookout = other._lookout, None
        self._link.loop.post(self._proceed)  # not at once: thousands may be granted one by one

    def _proceed(self) -> None:
        if self.wanted():
            self._take(self._waiter.resized(self._waiter.limit))

    # --- the grant --------------------------------------------------------------------------------

    def _grant(self) -> None:
        if self._entry is not None and not self._granting:
            self._granting = True
            self._entry.identify()

    def identified(self, token: int) -> None:
        """Our node's token is known: the lease can be made."""
        epoch, entry, asked = self._epoch, self._entry, self._asked
        assert epoch is not None
        assert entry is not None
        if epoch.over() or self._link.closed:
            return  # the end of the session tells everybody; closing it deletes those in front
        if self.promise.done():
            self._leave()
            return
        entry.reached(next(iter(self._waiter.ahead), entry.mine.rpartition("/")[2]))
        entry.granted()
        self._stop_following()
        self._pass_on(epoch, entry.mine)
        self._done(
            PermitLease(
                self._link,
                epoch,
                path=entry.mine,
                name=asked.name,
                token=token,
                weight=asked.weight,
            )
        )

    def _pass_on(self, epoch: Epoch, mine: str) -> None:
        """Whoever follows us is next: tell it."""
        follower = epoch.successors.get(mine)
        if follower is not None:
            follower(self)
        elif self._signals:
            self._signal(epoch, mine)
        if self._lookout is not None:
            self._lookout.close()

    def _signal(self, epoch: Epoch, mine: str) -> None:
        """Write it into our node, until it is known to be written or the node is gone."""
        request = SetData(mine, write_signal(self._asked.data, tuple(self._waiter.ahead)))

        def written(_result: Any, error: CoordinationError | None) -> None:
            if isinstance(error, EnsembleUnavailable) and not epoch.over():
                self._link.call(request, written, epoch=epoch, verb="signal")

        self._link.call(request, written, epoch=epoch, verb="signal")

    def _tidy(self) -> None:
        self._stop_following()
        if self._lookout is not None:
            self._lookout.close()
        if self._entry is not None:
            self._entry.leave()
