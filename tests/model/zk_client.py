"""The shipped session, link, watches, epochs and recipes, over the model instead of a socket.

Only what does I/O is replaced: kazoo's client, the connection, the two threads and the clock. The
connection here follows the rules of ``zkcoord.zk.connection`` that matter to the protocol: one
queue of requests that survives links, replies matched by xid in order, xids that go on.
"""

from __future__ import annotations

import heapq
import logging
import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from unittest import mock

from zk_ensemble import SESSION_EXPIRED, Ensemble, Wire
from zk_tree import NO_NODE

import zkcoord.recipes
from zkcoord.config import SessionConfig
from zkcoord.errors import CoordinationError, SessionLost
from zkcoord.zk import Session, clock, link
from zkcoord.zk.call import Call
from zkcoord.zk.loop import Timer
from zkcoord.zk.outbox import Outbox
from zkcoord.zk.requests import Close, Delete, Exists
from zkcoord.zk.translate import LinkDropped, from_code

assert zkcoord.recipes  # imported, so that its modules are found below
TIMEOUT_S = 10.0


class Clock:
    """The one clock of a world."""

    now = 1000.0

    @classmethod
    def read(cls) -> float:
        return cls.now


class ModelLoop:
    """The session's loop without a thread: it runs when it is told to."""

    def __init__(self, _name: str) -> None:
        self._items: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = count()

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def welcome(self) -> None: ...

    def join(self, _timeout: float) -> bool:
        return True

    def timer_cancelled(self) -> None: ...

    def post(self, call: Callable[..., object], *args: Any) -> None:
        self._items.append((call, args))

    def call_at(self, when: float, call: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(self, call, args)  # type: ignore[arg-type]
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def turn(self, _seconds: float = math.inf) -> None:
        while self._items:  # what goes wrong in a callback is not to be passed over here
            call, args = self._items.popleft()
            call(*args)

    # --- for the world ---

    @property
    def posted(self) -> bool:
        return bool(self._items)

    def due(self) -> float:
        """When the next timer fires; infinite when there is none."""
        timers = self._timers
        while timers and timers[0][2].call is None:
            heapq.heappop(timers)
        return timers[0][0] if timers else math.inf

    def run_due(self) -> None:
        ready = []
        while self.due() <= Clock.now:
            ready.append(heapq.heappop(self._timers)[2])
        for timer in ready:
            self.post(timer.fire)
        self.turn()

    def waits(self) -> list[Timer]:
        return [item[2] for item in self._timers if item[2].call is not None]


class ModelWorker(ModelLoop):
    """The dispatcher without a thread."""


class _Kazoo:
    """What the link wants of kazoo's client."""

    chroot = ""

    def __init__(self, **_: Any) -> None:
        self._stopped = threading.Event()


class ModelConnection:
    """Takes the place of the hardened connection. The world calls what stands below."""

    xids_restart = False

    def __init__(self, _client: Any, owner: Any, config: SessionConfig, **_: Any) -> None:
        self.owner = owner
        self.config = config
        self.session = 0
        self.seen = 0
        self.wire: Wire | None = None
        self._outbox = Outbox(owner)
        self._inflight: deque[Call] = deque()
        self._xid = 0
        self._abandoned = 0
        self._closing = False
        self._closed_by = 0
        self.ended = False

    # --- the link's side ---

    def start(self) -> None: ...

    def close(self) -> None: ...

    def join(self, _timeout: float) -> bool:
        return True

    def submit(self, call: Call) -> None:
        self._outbox.add(call)

    def abandon(self, session: int) -> None:
        self._abandoned = session

    def close_session(self) -> None:
        self._closing = True

    # --- the world's side ---

    def connect(self, ensemble: Ensemble, server: int) -> None:
        """A handshake: the session goes on, or a new one begins."""
        if self.session and self.session == self._abandoned:
            self._session_over("given up")
        wire = None
        if self.session:
            wire = ensemble.join(self.session, server, Clock.now)
            if wire is None:
                self._session_over("expired")
        if wire is None:
            self.session = ensemble.open(server, Clock.now)
            wire = ensemble.join(self.session, server, Clock.now)
        self.wire = wire
        if self.xids_restart:
            self._xid = 0
        self.owner.established(self.session, TIMEOUT_S, Clock.now)

    def drop(self, ensemble: Ensemble, reason: str = "cut") -> None:
        """The link is gone, seen from here."""
        wire, self.wire = self.wire, None
        if wire is not None:
            ensemble.part(wire)
        lost, self._inflight = self._inflight, deque()
        for call in lost:
            error = LinkDropped(f"{call.what}: {reason}", sent=True)
            self.owner.reply(call, None, error)
        self.owner.link_down(reason)
        if self._closing:
            self._end()

    def deliver(self, ensemble: Ensemble) -> None:
        """Take the next frame from the link."""
        assert self.wire is not None
        told = self.wire.down.popleft()
        if not told.xid:
            self.owner.event(told.result)
            return
        self.seen = max(self.seen, told.zxid)
        if told.xid == self._closed_by:
            self.drop(ensemble, "closed")
            return
        if not self._inflight or self._inflight[0].xid != told.xid:
            self.drop(ensemble, f"xid {told.xid} was not asked for")
            return
        call = self._inflight.popleft()
        if told.code != SESSION_EXPIRED:
            self.acknowledged(call.sent)
        error: CoordinationError | None = None
        if told.code and not (told.code == NO_NODE and isinstance(call.request, Exists)):
            error = from_code(told.code, call.what)
        result = told.zxid if isinstance(call.request, Delete) else told.result
        self.owner.reply(call, None if error else result, error)

    def acknowledged(self, sent: float) -> None:
        self.owner.acknowledged(sent)

    def settle(self, ensemble: Ensemble) -> None:
        """Run what follows from the news, then put the requests on the link."""
        self._turn()
        if self.session and self.session == self._abandoned and self.wire is not None:
            if not self.wire.up:  # the farewell gets through
                ensemble.end(self.session)
            self._session_over("given up")
            self.drop(ensemble, "given up")
            self._turn()
        while self.wire is not None and not self.wire.closed:
            call = self._outbox.next(self.session)
            if call is not None:
                self._xid += 1
                call.xid, call.sent = self._xid, Clock.now
                self._inflight.append(call)
                self.wire.up.append((call.xid, call.request))
            elif not self._turn():
                self._close()
                break

    def _close(self) -> None:
        """All is sent: close the session, if that is wanted."""
        if self._closing and not self._closed_by and self.wire is not None:
            self._closed_by = self._xid + 1
            self.wire.up.append((self._closed_by, Close()))

    def _end(self) -> None:
        self.ended = True
        self._outbox.end()
        self.owner.ended()

    def _turn(self) -> bool:
        """Run all that is posted; whether anything was."""
        loop, dispatcher = self.owner.loop, self.owner.dispatcher
        ran = False
        while loop.posted or dispatcher.posted:
            ran = True
            loop.turn()
            dispatcher.turn()
        return ran

    def _session_over(self, reason: str) -> None:
        session, self.session = self.session, 0
        lost, self._inflight = self._inflight, deque()
        for call in lost:
            self.owner.reply(call, None, SessionLost(f"{call.what}: {reason}"))
        self._outbox.fail(SessionLost, "the session is over")
        self.owner.session_over(session, reason)


@contextmanager
def modelled() -> Iterator[None]:
    """Within it, sessions stand on the model."""
    real = clock.now
    with mock.patch.multiple(
        link, KazooClient=_Kazoo, HardenedConnection=ModelConnection, Loop=ModelLoop,
        Worker=ModelWorker,
    ):  # fmt: skip
        patched = [
            module
            for name, module in list(sys.modules.items())
            if name.startswith("zkcoord") and getattr(module, "now", None) is real
        ]
        for module in patched:
            module.now = Clock.read  # type: ignore[attr-defined]
        log = logging.getLogger("zkcoord")
        level = log.level
        log.setLevel(logging.CRITICAL + 1)  # lost sessions are the point here
        try:
            yield
        finally:
            log.setLevel(level)
            for module in patched:
                module.now = real  # type: ignore[attr-defined]


def new_session(name: str) -> Session:
    """A started session on the model."""
    session = Session("model:1", config=SessionConfig(timeout_s=TIMEOUT_S), name=name)
    session.link.start()
    return session


def connection(session: Session) -> ModelConnection:
    found = session.link._connection
    assert isinstance(found, ModelConnection)
    return found


def next_timer(session: Session) -> float:
    """When a session's next timer fires; infinite when there is none."""
    loop: Any = session.link.loop
    return float(loop.due())
