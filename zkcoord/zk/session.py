"""A session with ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

from zkcoord.config import SessionConfig
from zkcoord.errors import ConfigError, EnsembleUnavailable, SessionClosed
from zkcoord.zk.blocking import in_event_loop, refuse_in_event_loop
from zkcoord.zk.callbacks import check_function
from zkcoord.zk.clock import now
from zkcoord.zk.condition import condition
from zkcoord.zk.hosts import check_hosts
from zkcoord.zk.link import Link
from zkcoord.zk.names import check_label
from zkcoord.zk.nodes import Nodes
from zkcoord.zk.promise import Promise, Signal
from zkcoord.zk.verbs import check_timeout

State = Literal["connected", "read_only", "suspended", "lost", "closed"]

_CLOSE_S = 5.0


class Session:
    """A session with a ZooKeeper ensemble, renewed by itself when it is lost.

    Locks, elections and memberships live on a session and end with it. When the session is lost -
    the server says so, or nothing was acknowledged for so long that it might be - every lease on it
    is lost, `lost` is set, and a new ZooKeeper session is opened: the same object can be used
    again, and `id` and `lost` are then those of the new one. Nothing of an old session is ever
    taken for the new one's.

    Use it in ``with`` or ``async with``, or call `start` and `close`. All methods may be called
    from any thread, callbacks included. A forked child gets SessionClosed and sends nothing, and a
    session cannot be sent to another process. gevent's monkey patching works when it comes before
    the import; a greenlet that keeps the processor keeps the session from answering, too.

    Args:
        hosts: ``host:port`` pairs separated by commas, and a chroot if wanted:
            ``"zk1:2181,zk2:2181/shop"``. The chroot is created at start. Every host is tried
            within a third of the session timeout, in random order.
        timeout: session timeout to ask for, in seconds; short for ``config``.
        config: all the settings. Give this or `timeout`.
        name: for thread names and the data of locks: what this process calls itself.

    Raises:
        ConfigError: hosts or settings that cannot work.
        NameRefused: a name longer than 1000 bytes.
    """

    def __init__(
        self,
        hosts: str,
        *,
        timeout: float | None = None,
        config: SessionConfig | None = None,
        name: str = "",
    ) -> None:
        if config is not None and timeout is not None:
            raise ConfigError("Session: give timeout or config, not both")
        check_hosts(hosts)
        check_label(name, "session name")
        if config is None:
            config = SessionConfig() if timeout is None else SessionConfig(timeout_s=timeout)
        self.name = name
        self.config = config
        self.link = Link(hosts, config, name=name)
        self.nodes = Nodes(self.link)

    def __repr__(self) -> str:
        named = f" named {self.name!r}" if self.name else ""
        number = f", id {self.id & (1 << 64) - 1:#x}" if self.id else ""
        return f"<Session {self.hosts!r}{named}, {condition(self.link)}{number}>"

    # --- life -----------------------------------------------------------------------------------

    def start(self, timeout: float | None = None) -> None:
        """Connect, and create the chroot. Again when started: no effect.

        Args:
            timeout: seconds to wait; the configured `connect_timeout_s` when None.

        Raises:
            EnsembleUnavailable: no server answered in time; the session is closed then.
            IdentityRefused: the servers refuse who we are, or want to know who we are.
            AccessDenied: the chroot is missing and we may not create it.
            SessionClosed: it was closed before.
            RuntimeError: called inside an event loop; use ``async with``.
        """
        refuse_in_event_loop("with Session, or session.start()", "async with Session(...)")
        self.start_future(timeout).wait()

    def start_future(self, timeout: float | None = None) -> Promise[None]:
        """The same, to be awaited."""
        wait = self.config.connect_timeout_s if timeout is None else check_timeout(timeout)
        self.link.start()
        promise: Promise[None] = Promise(self.link.dispatcher)
        started = self.link.started
        timer = self.link.timer(wait, lambda: promise.fail(self._unreachable(wait)))

        def settle() -> None:
            timer.cancel()
            error = started.exception()
            if error is None:
                promise.fulfil(None)
            else:
                promise.fail(error)

        def failed() -> None:
            if promise.cancelled() or promise.exception() is not None:
                self.link.close()

        started.on_done(settle)
        promise.on_done(failed)
        return promise

    def set_hosts(self, hosts: str) -> None:
        """Use these servers of the same ensemble from now on, without losing the session.

        A link to a host that is still listed stays; else it moves once what is on its way has been
        answered. When none of the new hosts can be reached the session is lost in time.

        Args:
            hosts: as for the session; the chroot may be left out, and must not change.

        Raises:
            ConfigError: hosts that cannot work, or another chroot.
            SessionClosed: closed, or in a forked child.
        """
        self.link.set_hosts(hosts)

    def close(self, timeout: float = _CLOSE_S) -> bool:
        """Send what is queued, close the session and end its threads. Again: no effect.

        Ephemeral nodes go at once when a link stands, else when the session times out. Inside an
        event loop it does not wait, so that it can always be closed: ``await close_future()`` does.

        Args:
            timeout: seconds to wait for the end; it goes on in the background afterwards.

        Returns:
            Whether everything had ended by then.
        """
        deadline = now() + check_timeout(timeout)
        self.link.close()
        return self.link.join(now() if in_event_loop() else deadline)

    def close_future(self) -> Promise[None]:
        """Close; done when everything has ended. To be awaited."""
        self.link.close()
        return self.link.ended_promise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self.start_future()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close_future()

    # --- what is known of it ---------------------------------------------------------------------

    @property
    def hosts(self) -> str:
        """The connect string."""
        return self.link.hosts

    @property
    def id(self) -> int:
        """ZooKeeper's session id; 0 before the first connection."""
        return self.link.epoch.id if self.link.epoch is not None else 0

    @property
    def negotiated_timeout(self) -> float:
        """The timeout the server granted, in seconds; 0 before the first connection."""
        return self.link.epoch.timeout if self.link.epoch is not None else 0.0

    @property
    def valid_until(self) -> float:
        """Until when the session can be believed, on :func:`zkcoord.zk.clock.now`.

        Send time of the last acknowledged request + negotiated timeout - margin.
        """
        return self.link.epoch.valid_until if self.link.epoch is not None else 0.0

    @property
    def connected(self) -> bool:
        """Whether a link stands. Without one the session lives on until `valid_until`."""
        return self.link.connected

    @property
    def read_only(self) -> bool:
        """Whether the link is to a server without a quorum; see ``SessionConfig.read_only``."""
        return self.link.read_only

    @property
    def identity(self) -> tuple[str, ...]:
        """Who we are for the servers, each as ``scheme:user``; empty before the first connection.

        Servers before 3.7 do not tell.
        """
        return self.link.identity

    @property
    def lost(self) -> Signal:
        """Set when the present session is over, at `valid_until` at the latest.

        A renewed session has a new one: keep the object you got to hear of this session's end.
        """
        epoch = self.link.epoch
        if epoch is None:
            raise SessionClosed("the session is not started", hint="call start() or use `with`")
        return epoch.lost

    @property
    def ephemeral_bytes(self) -> int:
        """Bytes of ephemeral paths of the present session, see SessionFull; 0 without one."""
        epoch = self.link.epoch
        return 0 if epoch is None or epoch.over() else epoch.ephemeral_bytes

    def on_state(self, fn: Callable[[str], object]) -> None:
        """Call ``fn(state)`` on the dispatcher: "connected", "suspended", "lost", "closed".

        With ``SessionConfig.read_only`` also "read_only" instead of "connected". A suspended
        session is no reason to stop work: its leases live until `valid_until`.
        """
        self.link.on_state(check_function(fn, "fn"))

    def _unreachable(self, waited: float) -> EnsembleUnavailable:
        return EnsembleUnavailable(
            f"no ZooKeeper server of {self.hosts} answered within {waited:g} s: "
            f"{self.link.why_down}",
            hint="check that it runs and can be reached",
        )


def check_session(session: Session) -> Session:
    """A session, given back.

    Raises:
        TypeError: it is something else, such as the address of a server.
    """
    given: object = session
    if not isinstance(given, Session):
        kind = "None" if given is None else type(given).__name__
        raise TypeError(f"session: must be a Session, not {kind}: Session(hosts) makes one")
    return given
