"""The inside of a session: threads, connection, epochs, watches, calls.

Recipes are built on this; users see :class:`~zkcoord.zk.session.Session`. Methods say on which
thread they may be called; where nothing is said, on any.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient

from zkcoord.config import SessionConfig
from zkcoord.core.lease import Belief
from zkcoord.errors import (
    CoordinationError,
    ReadOnlyServer,
    SessionClosed,
    SessionLost,
)
from zkcoord.zk.acls import stamp, to_wire
from zkcoord.zk.call import Call, Reply
from zkcoord.zk.clock import now
from zkcoord.zk.connection import HardenedConnection, QuietHandler
from zkcoord.zk.epoch import Epoch, Expectants
from zkcoord.zk.errands import discard, ensure, open_chroot
from zkcoord.zk.folders import Folders
from zkcoord.zk.forks import watch_forks
from zkcoord.zk.hosts import other_hosts, read_hosts
from zkcoord.zk.loop import Homebound, Loop, Timer, Worker
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Request, WatchEvent
from zkcoord.zk.translate import LinkDropped
from zkcoord.zk.watches import WatchTable

log = logging.getLogger("zkcoord")

_kazoo_log = logging.getLogger("zkcoord.kazoo")  # what matters of it is said by us
_kazoo_log.setLevel(logging.CRITICAL)

_GUEST_S = 0.01
_SLICE_S = 0.02

Listener = Callable[[str], object]


class Link(Homebound):
    """Everything a session does with ZooKeeper."""

    def __init__(self, hosts: str, config: SessionConfig, *, name: str = "") -> None:
        self.hosts = hosts
        self.config = config
        self.acl = to_wire(config.acl)
        self.loop = Loop(f"zkcoord-loop-{name}")
        self.dispatcher = Worker(f"zkcoord-calls-{name}")
        self.watches = WatchTable(self)
        self.folders = Folders(self)
        self.epoch: Epoch | None = None
        self.connected = False
        self.read_only = False
        self.why_down = "not connected yet"
        self.closed = False
        self.refusal: CoordinationError | None = None
        self.started: Promise[None] = Promise(self.dispatcher)
        self.ended_promise: Promise[None] = Promise(self.dispatcher)
        self._running = False
        self._pid = os.getpid()
        self._acking: Epoch | None = None
        self._expectants = Expectants()
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self.observers: tuple[Callable[[Any], object], ...] = ()
        self._client = KazooClient(
            hosts=hosts, timeout=config.timeout_s, handler=QuietHandler(), logger=_kazoo_log
        )
        servers, self.chroot = read_hosts(hosts)
        self._connection = HardenedConnection(self._client, self, config, hosts=servers)
        self._client._connection = self._connection  # noqa: SLF001
        watch_forks(self)

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads, once."""
        self.check_mine()
        with self._lock:
            if self._running or self.closed:
                return
            self._running = True
            self.loop.start()
            self.dispatcher.start()
            self._client._stopped.clear()  # noqa: SLF001
            self._connection.start()

    def set_hosts(self, hosts: str) -> None:
        """Use other servers of the same ensemble from now on. The chroot stays."""
        self.check_mine()
        servers = other_hosts(hosts, self.chroot)
        self.hosts = hosts.partition("/")[0] + self.chroot
        self._connection.set_hosts(servers)

    def close(self) -> None:
        """Begin to close; `ended_promise` is done when everything has ended."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            was, self.closed = self.closed, True
        if was:
            return
        if self._running:
            self._connection.close_session()
        else:
            self.ended_promise.fulfil(None)

    def join(self, deadline: float) -> bool:
        """Wait for the threads; whether they have all ended."""
        if not self._running or os.getpid() != self._pid:
            return True
        return (
            self.loop.join(max(0.0, deadline - now()))
            and self._connection.join(max(0.0, deadline - now()))
            and self.dispatcher.join(max(0.0, deadline - now()))
        )

    @property
    def identity(self) -> tuple[str, ...]:
        """Who we are for the servers."""
        return self._connection.identity or ()

    def check_mine(self) -> None:
        """Raise SessionClosed when it is closed, or another process's."""
        if os.getpid() != self._pid:
            raise SessionClosed(
                "this session belongs to the parent process",
                hint="make a new Session after fork",
            )
        if self.closed:
            why = "" if self.refusal is None else f": {self.refusal.args[0]}"
            raise SessionClosed(f"the session is closed{why}", hint="make a new Session")

    def check_open(self) -> None:
        """Raise SessionClosed unless the session can be used by this process."""
        self.check_mine()
        if not self._running:
            raise SessionClosed("the session is not started", hint="call start() or use `with`")

    def forked(self) -> None:
        """In a forked child: nothing here works any more, and nothing is believed."""
        self.closed = True
        self.connected = False
        for epoch in {self.epoch, self._acking} - {None}:
            epoch.belief.end()  # type: ignore[union-attr]

    def on_state(self, fn: Listener) -> None:
        """Call `fn("connected" | "suspended" | "lost" | "closed")` on the dispatcher."""
        self._listeners.append(fn)

    def _tell(self, state: str) -> None:
        for listener in self._listeners:
            self.dispatcher.post(listener, state)

    # --- what the connection reports, on its thread ---------------------------------------------

    def welcome(self) -> None:
        """The thread begins."""
        self.loop.welcome()

    def turn(self, *, again: bool = False) -> bool:
        """Run what follows from the news, but not for so long that requests and pings wait."""
        return self.loop.turn(_SLICE_S if again else _GUEST_S, again=again)

    def established(self, session: int, timeout: float, sent: float) -> None:
        """A link stands."""
        epoch = self._acking
        if epoch is None or epoch.id != session:
            belief = Belief(sent, timeout, self.config.margin(timeout))
            epoch = Epoch(session, belief, self.dispatcher, self.config.ephemeral_bytes_max)
            self._acking = epoch
        else:
            epoch.acknowledge(sent)
        self.loop.post(self._established, epoch)

    def established_read_only(self) -> None:
        """A link to a server without a quorum stands."""
        self.loop.post(self._established_read_only)

    def acknowledged(self, sent: float) -> None:
        """Something was answered."""
        if self._acking is not None:
            self._acking.acknowledge(sent)

    def link_down(self, reason: str) -> None:
        """There is no link."""
        self.loop.post(self._link_down, reason)

    def session_over(self, session: int, reason: str) -> None:
        """A session is over."""
        epoch = self._acking
        if epoch is not None and epoch.id == session:
            epoch.belief.end()
            self.loop.post(self._session_over, epoch, reason)

    def refused(self, error: CoordinationError) -> None:
        """No link will ever stand."""
        self.loop.post(self._refused, error)

    def ended(self) -> None:
        """The connection's thread ends."""
        self.loop.post(self._ended)

    def reply(self, call: Call, result: Any, error: CoordinationError | None) -> None:
        """A call is over."""
        self.loop.post(call.answer, result, error)

    def event(self, event: WatchEvent) -> None:
        """A watch fired."""
        self.loop.post(self.watches.fire, event)

    # --- the same, on the loop ------------------------------------------------------------------

    def _established(self, epoch: Epoch) -> None:
        if epoch.over():
            self._watchdog(epoch)
            return
        if epoch is not self.epoch:
            self.epoch = epoch
            self.loop.call_at(epoch.valid_until, self._watchdog, epoch)
        self.connected = True
        self._tell("connected")
        if not self.started.done():
            self._first_time()
        self._expectants.serve(epoch)

    def _established_read_only(self) -> None:
        self.connected = self.read_only = True
        self._tell("read_only")
        if not self.started.done():
            self._first_time()

    def _first_time(self) -> None:
        def done(error: CoordinationError | None) -> None:
            if error is None:
                self.started.fulfil(None)
            elif not isinstance(error, (LinkDropped, SessionLost, ReadOnlyServer)):
                self.started.fail(error)
            # else: the next link tries again

        if self.chroot:
            open_chroot(self, self.chroot, done)
        else:
            done(None)

    def _refused(self, error: CoordinationError) -> None:
        self.refusal = error
        if not self.started.fail(error):
            log.error("zookeeper session ends: %s", error)

    def _link_down(self, reason: str) -> None:
        was, self.connected, self.read_only = self.connected, False, False
        self.why_down = reason
        self.watches.reset()
        if was and not self.closed:
            log.info("zookeeper link down: %s", reason)
        if was:
            self._tell("suspended")

    def _watchdog(self, epoch: Epoch) -> None:
        if epoch.reason:
            return
        if epoch.over():
            self._connection.abandon(epoch.id)
            self._session_over(epoch, "nothing was acknowledged for too long")
        else:
            self.loop.call_at(epoch.valid_until, self._watchdog, epoch)

    def _session_over(self, epoch: Epoch, reason: str) -> None:
        if epoch.reason:
            return
        log.warning("zookeeper session 0x%x is over: %s", epoch.id % (1 << 64), reason)
        epoch.end(reason)
        self._tell("lost")

    def _ended(self) -> None:
        self.closed = True
        self.connected = False
        self.started.fail(SessionClosed("the session is closed"))
        if self.epoch is not None:
            self.epoch.end("the session was closed")
        self._expectants.close()
        self.watches.reset()
        self._tell("closed")
        self.loop.post(self._finish)

    def _finish(self) -> None:
        self._connection.close()
        self.dispatcher.stop()
        self.loop.stop()
        self.ended_promise.fulfil(None)

    # --- calls ----------------------------------------------------------------------------------

    def absolute(self, path: str) -> str:
        """A path with the chroot in front."""
        if not self.chroot:
            return path
        return self.chroot if path == "/" else self.chroot + path

    def relative(self, path: str) -> str:
        """A path without the chroot."""
        return path[len(self.chroot) :] or "/"

    def named(self, path: str) -> str:
        """An absolute path as messages name it: the chroot itself and what is above it in full."""
        inside = not self.chroot or path.startswith(self.chroot + "/")
        return self.relative(path) if inside else path

    def prepare(
        self, request: Request, on_reply: Reply, *, epoch: Epoch | None = None, verb: str = ""
    ) -> Call:
        """A call for `submit`: the reply may come before `submit` returns."""
        stamp(request, self.acl)

        def what() -> str:
            return f"{verb or type(request).__name__} {self.named(request.path)}"

        return Call(request, on_reply, what, session=None if epoch is None else epoch.id)

    def call(
        self, request: Request, on_reply: Reply, *, epoch: Epoch | None = None, verb: str = ""
    ) -> Call:
        """Send a request with absolute paths; `on_reply` runs on the loop, exactly once."""
        call = self.prepare(request, on_reply, epoch=epoch, verb=verb)
        self.submit(call)
        return call

    def submit(self, call: Call) -> None:
        """Send a prepared call."""
        if os.getpid() == self._pid:
            self._connection.submit(call)

    def with_epoch(self, fn: Callable[[Epoch], None], closed: Callable[[], object]) -> None:
        """Run `fn(epoch)`: at once when a session lives, else on the loop once one does.

        In the order of the calls. `closed()` on the loop instead when this link is closed before.
        """
        epoch = self._expectants.wait(self._living, fn, closed)
        if epoch is not None:
            fn(epoch)
        elif self.closed:
            self.loop.post(self._none_lives)

    def _living(self) -> Epoch | None:
        return None if self.epoch is None or self.epoch.over() else self.epoch

    def _none_lives(self) -> None:
        """Somebody came after the close: nobody will be served any more, unless one lives on."""
        if self._living() is None:
            self._expectants.close()

    def forget_epoch(self, fn: Callable[[Epoch], None]) -> None:
        """Take back a `with_epoch` that has not run."""
        self._expectants.forget(fn)

    def discard(self, path: str, epoch: Epoch, done: Callable[[bool], object]) -> None:
        """Delete an ephemeral node of `epoch`: retried until it is gone or the session is over.

        `done(True)` on the loop once the node is known to be gone, `done(False)` when the session
        ended first or the server refuses.
        """
        discard(self, path, epoch, done)

    def ensure(
        self,
        path: str,
        done: Callable[[CoordinationError | None], object],
        *,
        container: bool = False,
    ) -> None:
        """Create a node at an absolute path, and plain ones above it, where they are missing.

        `done(error)` on the loop. A container is removed by the server after its last child.
        """
        ensure(self, path, done, container=container)

    def timer(self, seconds: float, fn: Callable[..., object], *args: Any) -> Timer:
        """Run `fn(*args)` on the loop in so many seconds."""
        return self.loop.call_at(now() + seconds, fn, *args)
