"""The fair lock that whoever holds it may acquire again."""

from __future__ import annotations

from zkcoord.core.layouts import Layout
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.lock import LayoutName, Lock
from zkcoord.recipes.position import OnPosition
from zkcoord.recipes.reentry import DEPTH_MAX, ReentrantLease, Tenure, Tenures
from zkcoord.recipes.revocation import OnRevoke
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.promise import Promise
from zkcoord.zk.session import Session


class RLock(Lock):
    """A lock that its owner may acquire again while holding it, without a request.

    ::

        lock = RLock(session, "account-7")

        def book(amount: int) -> None:
            with lock.hold(timeout=10) as lease:  # also inside of transfer()
                write(amount, fence=lease.token)

        def transfer(amount: int) -> None:
            with lock.hold(timeout=10):
                book(-amount)
                book(amount)

    The owner is the asyncio task that acquires, or else the thread. It finds its hold again
    through this object: another `RLock` of the same name is another contender. Each acquire gives
    the same lease, with the token of the outer hold, and needs a release of its own; the last one
    gives the lock back, and only the owner may release. So a second ``lease.release()`` is not
    without effect while the lock is held further out: it undoes that hold. `hold` releases once.
    After the last one a release changes nothing and tells whether the removal is confirmed, as
    for every lease; it is no error, unlike that of :class:`threading.RLock`.

    When the session is lost the lease is, and asking again raises LeaseLost until the outer hold
    has been released; then it is a fresh request.

    Args:
        session, name, root, label, layout, lock_delay: as for :class:`Lock`.
        depth_max: how often one owner may hold it, 1 to 1000000.

    Raises:
        NameRefused, ConfigError: the name, layout or bound cannot be.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        root: str = "/locks",
        label: str = "",
        layout: Layout | LayoutName = "zkcoord",
        lock_delay: float = 0.0,
        depth_max: int = DEPTH_MAX,
    ) -> None:
        super().__init__(
            session, name, root=root, label=label, layout=layout, lock_delay=lock_delay
        )
        self._tenures = Tenures(self._what, depth_max)

    @property
    def depth(self) -> int:
        """How often the calling task or thread holds it."""
        mine = self._tenures.mine()
        return mine.exclusive.depth if mine is not None and mine.exclusive is not None else 0

    def acquire_future(
        self,
        timeout: float | None = None,
        *,
        on_position: OnPosition | None = None,
        on_revoke: OnRevoke | None = None,
    ) -> Promise[Lease]:
        """As :meth:`Lock.acquire`, to be awaited; the owner is whoever calls this.

        Raises:
            ReentryRefused: at once: the owner holds it `depth_max` times, or still waits for an
                earlier request.
            LeaseLost: the owner's hold is lost and not released yet.
        """

        def start(tenure: Tenure) -> Promise[Lease]:
            def make(epoch: Epoch, path: str, token: int) -> Lease:
                link = self.session.link
                lease = ReentrantLease(
                    tenure,
                    link,
                    epoch,
                    path=path,
                    name=self._what,
                    token=token,
                    give_back=self._give_back,
                )
                tenure.exclusive = lease
                return lease

            return self._request(timeout, make, on_position=on_position, on_revoke=on_revoke)

        return self._tenures.ask(start, self.session.link.dispatcher)
