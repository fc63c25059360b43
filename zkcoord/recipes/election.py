"""Leader election."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

from zkcoord.core.ordering import in_order
from zkcoord.errors import CoordinationError
from zkcoord.recipes.acquisition import Acquisition
from zkcoord.recipes.contenders import Identity, contenders_future, describe, read_identity
from zkcoord.recipes.entry import Line
from zkcoord.recipes.hold import Hold
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.position import OnPosition
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.follow import Follower
from zkcoord.zk.link import Link
from zkcoord.zk.names import check_name, check_path, join
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Stat
from zkcoord.zk.session import Session
from zkcoord.zk.verbs import check_timeout


class Leader(NamedTuple):
    """Who leads.

    Attributes:
        name: what the leader calls itself.
        term: rises with every leader.
        data: what it published when it campaigned.
        host, pid: where it runs.
        since: when it began to campaign, wall clock of its host.
    """

    name: str
    term: int
    data: bytes
    host: str
    pid: int
    since: float


def _leader(who: Identity | None, term: int) -> Leader:
    if who is None:
        return Leader("", term, b"", "", 0, 0.0)
    return Leader(who.name, term, who.data, who.host, who.pid, who.since)


class Leadership(Lease):
    """A won election: a lease. Release it to resign: the next candidate leads at once.

    When the session is lost the leadership is lost with it: `lost` is set before another can win.
    """

    @property
    def term(self) -> int:
        """The token: above the term of every leader before."""
        return self.token


class Election:
    """One leader among those who campaign, in the order of campaigning.

    Two leaders never believe in themselves at the same time: a leader whose session is in doubt
    stops believing (`lost` is set, `check` raises) before another can win.

    Args:
        session: it lives and dies with this.
        name: the same for all candidates; one part of a path.
        root: folder of elections below the session's chroot.
        label: what this candidate calls itself; the session's name when empty.

    Raises:
        NameRefused: the name cannot be part of a path.
    """

    def __init__(
        self, session: Session, name: str, *, root: str = "/elections", label: str = ""
    ) -> None:
        self.name = check_name(name, "election name")
        self.session = session
        self._root = check_path(root)
        self._label = label or session.name
        self._folder = session.link.absolute(join(root, name))

    def campaign(
        self,
        timeout: float | None = None,
        data: bytes = b"",
        *,
        on_position: OnPosition | None = None,
    ) -> Leadership:
        """Stand for election and wait until it is won.

        Args:
            timeout: seconds, over everything; None waits until it is won or the session is lost;
                0 tries, as in :meth:`~zkcoord.recipes.lock.Lock.acquire`.
            data: published to observers for as long as this candidate leads.
            on_position: told where this candidate stands, as in
                :meth:`~zkcoord.recipes.lock.Lock.acquire`.

        Raises:
            AcquireTimeout, SessionLost, SessionClosed, SessionFull, AccessDenied, ConfigError: as
                for a lock. After SessionLost campaign again: the session is renewed by itself.
            RuntimeError: called inside an event loop; use ``async with election.lead()``.
        """
        refuse_in_event_loop(
            "election.campaign()", "async with election.lead(), or await election.campaign_future()"
        )
        return self.campaign_future(timeout, data, on_position=on_position).wait()

    def campaign_future(
        self,
        timeout: float | None = None,
        data: bytes = b"",
        *,
        on_position: OnPosition | None = None,
    ) -> Promise[Leadership]:
        """The same, to be awaited. Cancelling it withdraws the candidate."""
        if timeout is not None:
            check_timeout(timeout)
        line = Line(self._folder, f"election {self.name}", describe(self._label, data))
        link = self.session.link
        return Acquisition(link, line, timeout, self._grant, on_position=on_position).begin()

    def lead(self, timeout: float | None = None, data: bytes = b"") -> Hold[Leadership]:
        """Campaign on entering ``with`` or ``async with``, resign on leaving."""
        return Hold(lambda: self.campaign_future(timeout, data))

    def leader(self, timeout: float = 10.0) -> Leader | None:
        """Who leads now, as this session's server knows it; None when nobody does."""
        refuse_in_event_loop("election.leader()", "await election.leader_future()")
        return self.leader_future(timeout).wait()

    def leader_future(self, timeout: float = 10.0) -> Promise[Leader | None]:
        """The same, to be awaited."""
        found = contenders_future(
            self.session, self.name, root=self._root, limit=1, timeout=timeout
        )
        return found.then(
            lambda standing: _leader(standing[0].identity, standing[0].token) if standing else None
        )

    def observe(self, callback: Callable[[Leader | None], object]) -> Observer:
        """Call ``callback(leader)`` now and whenever it changes; None while nobody leads.

        The callback runs on the session's dispatcher thread and may block. It goes on across
        reconnects and lost sessions until it is closed. One watch, on the leader's node.
        """
        self.session.link.check_open()
        return Observer(self.session.link, self._folder, callback)

    def _grant(self, epoch: Epoch, path: str, token: int) -> Leadership:
        return Leadership(
            self.session.link, epoch, path=path, name=f"election {self.name}", token=token
        )


class Observer:
    """Someone who watches an election. Close it when you are done.

    Attributes:
        error: why it ended by itself, such as AccessDenied; None while it goes on.
    """

    def __init__(
        self, link: Link, folder: str, callback: Callable[[Leader | None], object]
    ) -> None:
        self._link = link
        self._folder = folder
        self._callback = callback
        self._closed = False
        self._told: Leader | bool | None = False
        self.error: CoordinationError | None = None
        self._follower: Follower | None = None
        link.loop.post(self._search)

    def close(self) -> None:
        """No more calls. From any thread."""
        self._closed = True
        self._link.loop.post(self._stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def _follow(self, follower: Follower) -> None:
        self._stop()
        if not self._closed:
            self._follower = follower
            follower.start()

    def _search(self) -> None:
        """Nobody is known to lead: follow the folder until somebody stands in front."""
        self._follow(Follower(self._link, self._folder, self._listed, children=True))

    def _listed(self, names: list[str] | None, error: CoordinationError | None) -> None:
        if error is not None:
            self.error = error
            return
        queue = in_order(names or ())
        if not queue:
            self._tell(None)
            return
        head = join(self._folder, queue[0].node)
        self._follow(Follower(self._link, head, self._seen, children=False, missing_ends=True))

    def _seen(self, result: tuple[bytes, Stat] | None, error: CoordinationError | None) -> None:
        if error is not None:
            self.error = error
        elif result is None:
            self._search()
        else:
            value, stat = result
            self._tell(_leader(read_identity(value), stat.czxid))

    def _tell(self, leader: Leader | None) -> None:
        if leader != self._told:
            self._told = leader
            self._link.dispatcher.post(self._call, leader)

    def _call(self, leader: Leader | None) -> None:
        if not self._closed:
            self._callback(leader)
