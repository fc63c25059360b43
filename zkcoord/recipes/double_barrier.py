"""A double barrier: enter together, leave together."""

from __future__ import annotations

import os
import socket
import time
from random import Random
from types import TracebackType

from zkcoord.core.rounds import Arrived, Round, encode_arrived, members
from zkcoord.errors import ConfigError, EnsembleUnavailable, NodeMissing, WaitTimeout
from zkcoord.recipes.arrival import Admission, Arrival
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.line import Line
from zkcoord.recipes.steps import PAUSE_S, Course, News, Pause, Steps, Watched, read
from zkcoord.recipes.strangers import ROUND
from zkcoord.zk.amounts import is_whole
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.condition import shown
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.names import check_label, check_name, check_path, join
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Exists, GetChildren
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.translate import LinkDropped
from zkcoord.zk.verbs import check_timeout

SIZE_MAX = 1000

_LABEL_BYTES_MAX = 200


class DoubleBarrier:
    """So many participants begin together and end together; then the next round may begin.

    ::

        barrier = DoubleBarrier(session, "epoch", size=3)
        with barrier.hold(timeout=60):
            work()  # begins when three have come
        # all three are done here

    - Nobody gets in before `size` have come, whatever wakes it up.
    - A round has exactly `size` members, the first who came; those who come later wait for the next
      round and never count in this one, however late its members leave.
    - Who gives up in time or whose session ends before the round is complete does not count. Whose
      session ends inside counts as having left: the others do not wait for it.
    - When the session is lost, waiting to enter and waiting to leave fail with SessionLost, and
      the participant's `lost` is set while it works.

    Args:
        session: it lives and dies with this.
        name: the same for all; one part of a path.
        size: how many make a round, 1 to 1000; the same for all.
        root: folder of double barriers below the session's chroot.
        label: what this participant calls itself; the session's name when empty.

    Raises:
        NameRefused: the name cannot be part of a path.
        ConfigError: a size or a label out of range.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        size: int,
        *,
        root: str = "/double-barriers",
        label: str = "",
    ) -> None:
        self.name = check_name(name, "barrier name")
        self.session = check_session(session)
        self.size = size
        if not is_whole(size) or not 1 <= size <= SIZE_MAX:
            raise ConfigError(f"barrier {name}: size {size!r}: must be within 1 and {SIZE_MAX}")
        self._label = check_label(label) or session.name
        if len(self._label.encode()) > _LABEL_BYTES_MAX:
            raise ConfigError(f"barrier {name}: a label has at most {_LABEL_BYTES_MAX} bytes")
        self._folder = session.link.absolute(join(check_path(root), name))

    def __repr__(self) -> str:
        return shown(self, self.name, self.session.link, f"size {self.size}")

    def enter(self, timeout: float | None = None) -> Participant:
        """Wait until a round is complete that this call is in.

        Args:
            timeout: seconds, over everything; None waits until it is complete or the session is
                lost. It begins to give up 0.05 s sooner, of a timeout below 0.2 s after three
                quarters, and gives up once a server has confirmed that no round counts on it; when
                one does, it gets in. That answer is waited for beyond the deadline, for 2 s at
                most and only while the link is up. Without it nobody can be sure: a round that was
                completed at that very moment sees it leave.

        Raises:
            WaitTimeout: not enough came in time, or no server confirmed that it may be given up.
            SessionLost, SessionClosed, SessionFull, AccessDenied.
            LeaseLost: somebody removed the node.
            NodeForeign: a recipe of another kind uses the folder.
            ConfigError: others wait for another size; a negative or infinite timeout.
            RuntimeError: called inside an event loop; use ``async with barrier.hold()``, or
                ``await barrier.enter_future()``.
        """
        refuse_in_event_loop(
            "barrier.enter()", "async with barrier.hold(), or await barrier.enter_future()"
        )
        return self.enter_future(timeout).wait()

    def enter_future(self, timeout: float | None = None) -> Promise[Participant]:
        """The same, to be awaited. Cancelling it gives up."""
        if timeout is not None:
            check_timeout(timeout)
        since = round(time.time(), 3)
        value = Arrived(socket.gethostname(), os.getpid(), self.size, self._label, since)
        said, name = encode_arrived(value), f"barrier {self.name}"
        line = Line(self._folder, name, said, ROUND, recipe="double barrier")
        return Arrival(self.session.link, line, self.size, timeout, self._admit).begin()

    def hold(self, timeout: float | None = None, *, leave_timeout: float | None = None) -> Together:
        """Enter on entering ``with`` or ``async with``, leave together at its end.

        After an error inside it leaves without waiting for the others.

        Args:
            timeout: seconds for `enter`.
            leave_timeout: seconds for :meth:`Participant.finish`.
        """
        return Together(self, timeout, leave_timeout)

    def _admit(self, epoch: Epoch, admission: Admission) -> Participant:
        return Participant(self.session.link, epoch, admission, f"barrier {self.name}")


class Participant(Lease):
    """A place in a round of a double barrier: a lease. Given by ``barrier.enter``.

    `release` leaves without waiting for the others, `finish` leaves together with them.

    Attributes:
        rank: 0 for the first of the round in the order of coming, 1 for the next, and so on.
    """

    def __init__(self, link: Link, epoch: Epoch, admission: Admission, name: str) -> None:
        super().__init__(link, epoch, path=admission.path, name=name, token=admission.token)
        self._folder = admission.path.rpartition("/")[0]
        self._round: Round = admission.round
        self._made = admission.made
        self._left = 0
        self.rank = admission.round.rank

    def finish(self, timeout: float | None = None) -> None:
        """Leave, and wait until all of the round have left or are gone.

        Args:
            timeout: seconds; None waits until they have or the session is lost. This participant
                has left in any case.

        Raises:
            WaitTimeout: others have not left in time.
            LeaseLost: it was lost before, or left already.
            SessionLost, SessionClosed: the session was lost while waiting.
            ConfigError, AccessDenied.
            RuntimeError: called inside an event loop; use ``await participant.finish_future()``.
        """
        refuse_in_event_loop("participant.finish()", "await participant.finish_future()")
        self.finish_future(timeout).wait()

    def finish_future(self, timeout: float | None = None) -> Promise[None]:
        """The same, to be awaited."""
        if timeout is not None:
            check_timeout(timeout)
        self.check()
        self.release_future()

        def late() -> WaitTimeout:
            return WaitTimeout(f"{self.name}: {self._left} have not left within {timeout:g} s")

        steps = Steps(
            self._link, self._alone(), f"leave {self.name}", timeout, epoch=self._epoch, late=late
        )
        return steps.begin()

    def _alone(self) -> Course[None]:
        """Wait until nobody of the round is left.

        One watches a member by lot: of n who wait, each is woken about log n times.
        """
        rng = Random()  # noqa: S311 - by lot
        strangers: set[str] = set()  # a folder that was made anew counts from the start again
        while True:
            try:
                names = yield from read(GetChildren(self._folder))
            except NodeMissing:
                return
            left = [name for name in members(names, self._round) if name not in strangers]
            self._left = len(left)
            if not left:
                return
            name = rng.choice(left)
            try:
                stat = yield Watched(Exists(join(self._folder, name), watch=True))
            except LinkDropped:
                continue
            except EnsembleUnavailable:
                yield Pause(PAUSE_S)
                continue
            if stat is None:
                continue
            if stat.czxid > self._made:
                strangers.add(name)
                continue
            yield News()


class Together:
    """Enters on entering, leaves together on leaving; may be entered again, but not while inside.

    Made by :meth:`DoubleBarrier.hold`.
    """

    def __init__(
        self, barrier: DoubleBarrier, timeout: float | None, leave_timeout: float | None
    ) -> None:
        self._barrier = barrier
        self._timeout = timeout
        self._leave_timeout = leave_timeout
        self._inside: Participant | None = None

    def __enter__(self) -> Participant:
        refuse_in_event_loop("with ...hold()", "async with ...hold()")
        self._inside = self._barrier.enter_future(self._timeout).wait()
        return self._inside

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        leaving = self._leave(quiet=kind is not None)
        if leaving is not None:
            leaving.wait()

    async def __aenter__(self) -> Participant:
        self._inside = await self._barrier.enter_future(self._timeout)
        return self._inside

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        leaving = self._leave(quiet=kind is not None)
        if leaving is not None:
            await leaving

    def _leave(self, *, quiet: bool) -> Promise[None] | None:
        participant, self._inside = self._inside, None
        if participant is None:
            return None
        if quiet:
            participant.leave(quiet=True)
            return None
        return participant.finish_future(self._leave_timeout)
