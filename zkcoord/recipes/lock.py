"""The fair lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn

from zkcoord.core.layouts import Layout
from zkcoord.errors import ConfigError
from zkcoord.recipes.acquisition import Acquisition
from zkcoord.recipes.contenders import describe
from zkcoord.recipes.hold import Hold
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.line import Line
from zkcoord.recipes.lock_delay import check_delay, give_back
from zkcoord.recipes.position import OnPosition
from zkcoord.recipes.revocation import OnRevoke, listening
from zkcoord.recipes.sharing import check_handoffs, shares
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.callbacks import check_callback
from zkcoord.zk.condition import shown
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.names import check_label, check_name, check_path, join
from zkcoord.zk.promise import Promise, ask_and_wait
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.verbs import check_timeout

LayoutName = Literal["zkcoord", "kazoo", "curator"]


class Lock:
    """An exclusive lock, granted in the order of request across all processes.

    ::

        with Lock(session, "gpu-0").hold(timeout=10) as lease:
            work(fence=lease.token)

    One object may be used by many threads and tasks at once: each call of `acquire` is a request
    of its own, and the lock is not reentrant. An uncontended acquire is one round trip, a release
    none that is waited for. Failed, cancelled and timed-out requests leave nothing behind.

    When the session is lost, held leases are lost and waiting requests fail with SessionLost.

    Args:
        session: it lives and dies with this.
        name: the same for all who exclude each other; one part of a path.
        root: folder of locks below the session's chroot.
        label: what this process calls itself in `contenders`; the session's name when empty.
        layout: ``"kazoo"`` or ``"curator"`` to take turns with the Lock of kazoo or the
            InterProcessMutex of Apache Curator on the path ``<root>/<name>``. They do not see
            locks of the layout ``"zkcoord"``, which sees theirs.
        lock_delay: seconds, 0 to 60, that the next one is held back when a hold of this lock ends
            uncleanly: its session expired or was closed, or it was broken, but not released. For
            resources that cannot check tokens. It costs one more write for each acquire. All who
            use the lock should ask for it: others neither wait nor leave a mark. Whoever comes
            later waits from then on, since nobody knows how long ago the loss was.
        local_handoffs: 0 to 10000. Above 0, waiters of one session share a node, and hand the lock
            on among themselves so many times before others get it, without a request. They keep
            their own order, but may overtake other processes' waiters, and have one token for all
            of them: it does not fence them from each other. `on_position` and `on_revoke` are not
            for them.

    Raises:
        NameRefused: the name cannot be part of a path, or a label is longer than 1000 bytes.
        ConfigError: there is no such layout, a number is out of range, or the delay is asked for
            in another library's layout.
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
        local_handoffs: int = 0,
    ) -> None:
        self.name = check_name(name, "lock name")
        self.session = check_session(session)
        self._what = f"lock {name}"
        self._layout = _layout(layout)
        self._lock_delay = check_delay(lock_delay)
        if lock_delay and self._layout is not Layout.ZKCOORD:
            raise ConfigError(f"lock_delay: other libraries do not know it, layout {layout!r}")
        self._handoffs = check_handoffs(local_handoffs)
        self._give_back = partial(give_back, session.link) if lock_delay else None
        self._label = check_label(label) or session.name
        self._folder = session.link.absolute(join(check_path(root), name))

    def __repr__(self) -> str:
        return shown(self, self.name, self.session.link)

    def acquire(
        self,
        timeout: float | None = None,
        *,
        on_position: OnPosition | None = None,
        on_revoke: OnRevoke | None = None,
    ) -> Lease:
        """Wait for the lock.

        Args:
            timeout: seconds, over everything. None waits until it is granted or the session is
                lost. 0 tries: it writes nothing unless it can win, waits for no holder, and at
                most a second for the network.
            on_position: called with a :class:`Position` on the session's dispatcher while waiting,
                when the place in the queue is learned and when it or the holder changes. It costs
                one watch and at most one listing a second for each lock and session, however many
                ask; without it a waiter does not know its place and costs nothing.
            on_revoke: called with a :class:`Revocation` on the dispatcher when somebody asks the
                holder to let go, see :func:`revoke`. The holder then watches its own node, which
                is one read after the grant that nobody waits for, and learns at once when it is
                removed (`lost` is set, with the reason ``removed``).

        Returns:
            The lease, which must be released.

        What a signal's handler raises, such as KeyboardInterrupt, gives the request up. When it
        raises between the return and the assignment of the lease nobody can release it: use `hold`
        where handlers raise.

        Raises:
            AcquireTimeout: not granted in time; names the holder where it is known.
            SessionLost: the session was lost while waiting.
            SessionClosed: the session is not started, closed, or the parent process's.
            SessionFull: the session holds too many bytes of ephemeral paths.
            AccessDenied: the folder's ACL refuses.
            NodeForeign: a recipe of another kind uses the folder.
            ConfigError: a negative or infinite timeout.
            RuntimeError: called inside an event loop; use ``async with lock.hold()``, or
                ``await lock.acquire_future()``.
        """
        refuse_in_event_loop(
            "lock.acquire()", "async with lock.hold(), or await lock.acquire_future()"
        )
        return ask_and_wait(
            lambda: self.acquire_future(timeout, on_position=on_position, on_revoke=on_revoke)
        )

    def acquire_future(
        self,
        timeout: float | None = None,
        *,
        on_position: OnPosition | None = None,
        on_revoke: OnRevoke | None = None,
    ) -> Promise[Lease]:
        """The same, to be awaited or composed. Cancelling it gives up the request."""
        if not self._handoffs:
            return self._request(timeout, self._grant, on_position=on_position, on_revoke=on_revoke)
        if on_position is not None or on_revoke is not None:
            raise ConfigError(
                f"{self._what}: local_handoffs goes without on_position and on_revoke"
            )
        return self._shared(timeout)

    def hold(
        self,
        timeout: float | None = None,
        *,
        on_position: OnPosition | None = None,
        on_revoke: OnRevoke | None = None,
    ) -> Hold[Lease]:
        """Acquire on entering ``with`` or ``async with``, release on leaving.

        Leaving raises LeaseLost when the lease was lost inside, unless another error is on its way.
        Inside an event loop only ``async with`` will do; ``with`` raises RuntimeError there.
        """
        return Hold(
            lambda: self.acquire_future(timeout, on_position=on_position, on_revoke=on_revoke)
        )

    if not TYPE_CHECKING:  # so that type checkers refuse it too

        def __enter__(self) -> NoReturn:
            raise TypeError("a lock is entered through hold(): with lock.hold(timeout=10) as lease")

        def __exit__(self, *_: object) -> None:  # without it Python speaks of another mistake
            pass

        async def __aenter__(self) -> NoReturn:
            raise TypeError("a lock is entered through hold(): async with lock.hold() as lease")

        async def __aexit__(self, *_: object) -> None:
            pass

    def _shared(self, timeout: float | None) -> Promise[Lease]:
        """Wait together with others of this session."""
        link = self.session.link
        link.check_open()
        if timeout is not None:
            check_timeout(timeout)

        def start() -> Promise[Lease]:
            node = f"{self._what}: a node for waiters of one process"
            return self._request(None, partial(self._grant, what=node), what=node)

        asked = shares.of(link).ask(link, self._folder, self._what, self._handoffs, timeout, start)
        return self._request(timeout, self._grant) if asked is None else asked

    def _request(
        self,
        timeout: float | None,
        make: Callable[[Epoch, str, int], Lease],
        *,
        on_position: OnPosition | None = None,
        on_revoke: OnRevoke | None = None,
        what: str = "",
    ) -> Promise[Lease]:
        if timeout is not None:
            check_timeout(timeout)
        check_callback(on_position, "on_position")
        check_callback(on_revoke, "on_revoke")
        link = self.session.link
        said = describe(self._label, revocable=on_revoke is not None)
        line = Line(self._folder, what or self._what, said, layout=self._layout)
        make = listening(link, make, on_revoke)
        return Acquisition(
            link, line, timeout, make, on_position=on_position, lock_delay=self._lock_delay
        ).begin()

    def _grant(self, epoch: Epoch, path: str, token: int, what: str = "") -> Lease:
        return Lease(
            self.session.link,
            epoch,
            path=path,
            name=what or self._what,
            token=token,
            give_back=self._give_back,
        )


def _layout(name: str) -> Layout:
    try:
        return Layout(name)
    except ValueError:
        known = ", ".join(Layout)
        raise ConfigError(f"layout {name!r}: there are {known}") from None
