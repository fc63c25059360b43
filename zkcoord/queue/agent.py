"""The agent: a process that runs a queue's tasks.

It claims an inbox, runs what the leader orders there within its slots, and reports. Its claim
stands on a ZooKeeper session; when that is lost the agent stops all its attempts at once (before
the leader may give them to others), and begins again as a new incarnation. A broker that is away
stops nothing that runs: reports wait, within a bound, until it is back.

Threads: the caller of `run` (or one thread of its own after `start`) supervises; one runs the event
loop for async handlers and all bookkeeping; one reads the inbox; up to `slots` run plain functions.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import queue as queues
import random
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self

from zkcoord.config import AgentConfig, SessionConfig
from zkcoord.core.records import AgentInfo
from zkcoord.errors import ConfigError, SessionClosed, ZkcoordError
from zkcoord.queue.crew import Crew
from zkcoord.queue.handle import Queue

_log = logging.getLogger("zkcoord.agent")

REJOIN_S = (0.2, 5.0)  # first and longest pause between tries to claim an inbox again
UPDATE_S = 1.0  # the claim's data changes at most this often
DISMISS_S = 1.0  # for the leader to hear that the agent drains, and to say so
HALT_S = 1.0  # what a second signal leaves for the last reports
FLUSH_S = 10.0
CLOSE_S = 5.0


class Agent:
    """Runs the tasks of one queue.

    Handlers are the queue's tasks (``@queue.task()``). An ``async def`` runs on the agent's event
    loop, a plain function on one of its threads. A handler that does not stop when told to keeps
    its slot until it returns; the agent then offers fewer slots.

    When the session is lost, handlers are told to stop at once (`asyncio.CancelledError`,
    ``ctx.cancelled``), nothing of theirs is reported, and the agent joins again by itself.

    Args:
        queue: the queue, with its tasks.
        slots: tasks it runs at a time; 8 unless `config` says otherwise.
        config: all the settings; `slots`, when given, outweighs it.
        session: how its ZooKeeper session behaves; the queue's settings when None.
        name: what it calls itself; host, process id and four random digits when empty.

    Raises:
        ConfigError: settings that cannot work, or a queue without tasks.
    """

    def __init__(
        self,
        queue: Queue,
        slots: int | None = None,
        *,
        config: AgentConfig | None = None,
        session: SessionConfig | None = None,
        name: str = "",
    ) -> None:
        config = config if config is not None else AgentConfig()
        if slots is not None:
            if type(slots) is not int:
                kind = type(slots).__name__
                raise ConfigError(f"Agent: slots: must be a whole number, not {slots!r} ({kind})")
            config = dataclasses.replace(config, slots=slots)
        if not queue.handlers:
            raise ConfigError(f"Agent: queue {queue.name!r} has no tasks: decorate functions first")
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self.config = config
        self._queue = queue
        self._session_config = session if session is not None else queue.session_config
        self._commands: queues.SimpleQueue[tuple[str, Any]] = queues.SimpleQueue()
        self._crew: Crew | None = None
        self._thread: threading.Thread | None = None
        self._draining = False
        self._since = 0.0
        self._clean = True
        self._error: BaseException | None = None
        self._random = random.SystemRandom()

    # --- life -----------------------------------------------------------------------------------

    def run(self) -> bool:
        """Join the queue and run its tasks until SIGTERM or SIGINT, then drain and return.

        The first signal marks the agent as draining, starts nothing more, lets running tasks
        finish for up to `drain_s` seconds, gives back the rest, and sends all reports; ZooKeeper is
        left last. A second signal stops at once: running tasks are given back. Signals are only
        caught in the main thread; elsewhere call :meth:`stop` from another thread.

        Returns:
            Whether every task that had started could finish, and every report was sent.

        Raises:
            NodeMissing: there is no such queue.
            EnsembleUnavailable, BrokerUnavailable: no server answered at the start. Later outages
                are waited for.
            CoordinationError, StreamError: the queue cannot be joined; the message says why.
        """
        with self._signals():
            self._open()
            try:
                self._supervise()
            finally:
                self._leave()
        return self._clean

    def start(self) -> None:
        """Join the queue and run its tasks in threads of this process; returns once joined.

        Raises as :meth:`run` does. Call :meth:`stop` in the end.
        """
        if self._thread is not None:
            return
        self._open()
        self._thread = threading.Thread(
            target=self._supervise_and_leave, name="zkcoord-agent", daemon=True
        )
        self._thread.start()

    def stop(self, *, drain: bool = True) -> bool:
        """Leave the queue, as after a signal, and wait for it.

        With `drain=False` running tasks are given back at once. From any thread; in the thread
        that is inside `run` it only asks. Returns what :meth:`run` returns.
        """
        self._commands.put(("drain" if drain else "halt", None))
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
            self._thread = None
            if self._error is not None:
                raise self._error
        return self._clean

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- what is known of it --------------------------------------------------------------------

    @property
    def incarnation(self) -> int | None:
        """Czxid of its claim; None while it has none."""
        claim = self._crew.claim if self._crew is not None else None
        return claim.incarnation if claim is not None else None

    @property
    def inbox(self) -> int | None:
        """The inbox partition that it has claimed; None while it has none."""
        claim = self._crew.claim if self._crew is not None else None
        return claim.partition if claim is not None else None

    @property
    def busy(self) -> int:
        """Slots in use."""
        return self._crew.executor.busy if self._crew is not None else 0

    # --- supervising ----------------------------------------------------------------------------

    def _open(self) -> None:
        if self._crew is not None:
            raise SessionClosed("an agent runs once: make a new one")
        self._since = time.time()
        crew = Crew(
            self._queue,
            self.config,
            self._session_config,
            name=self.name,
            tell=lambda word, what: self._commands.put((word, what)),
        )
        crew.open()
        self._crew = crew
        try:
            self._join(crew)
        except BaseException:
            crew.close(CLOSE_S)
            raise

    def _join(self, crew: Crew) -> None:
        claim = crew.join(self._info(), self._random)
        _log.info(
            "agent %s joined queue %s: inbox %d, incarnation %d",
            self.name,
            self._queue.name,
            claim.partition,
            claim.incarnation,
        )

    def _info(self) -> AgentInfo:
        capacity = self._crew.executor.capacity if self._crew is not None else self.config.slots
        return AgentInfo(
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            slots=max(0, capacity),
            tasks=tuple(sorted(self._queue.handlers)),
            capabilities=tuple(sorted(self.config.capabilities)),
            since=self._since,
            draining=self._draining,
        )

    def _supervise_and_leave(self) -> None:
        try:
            try:
                self._supervise()
            finally:
                self._leave()
        except BaseException as error:
            self._error = error
            _log.exception("agent %s failed", self.name)

    def _supervise(self) -> None:
        """Until asked to leave: join again after losses, keep the claim's data true."""
        crew = self._crew
        assert crew is not None
        pause = REJOIN_S[0]
        told = self._info()
        changed = 0.0  # when the data may next be written, 0.0 when they are as they should be
        while True:
            word, what = self._next(pause if crew.claim is None else None, changed)
            if word == "halt":
                self._halt(crew)
                return
            if word == "drain":
                self._drain(crew)
                return
            if word == "lost" and crew.is_current(what[0]):
                _log.warning("agent %s lost incarnation %d: %s", self.name, *what)
                crew.part(what[1])
            elif word == "changed" and not changed:
                changed = time.monotonic() + UPDATE_S
            if crew.claim is None:
                try:
                    self._join(crew)
                    told, changed, pause = self._info(), 0.0, REJOIN_S[0]
                except ZkcoordError as error:
                    _log.warning("agent %s cannot join: %s", self.name, error)
                    pause = min(2 * pause, REJOIN_S[1])
            elif changed and time.monotonic() >= changed:
                changed = 0.0
                if self._info() != told:
                    told = self._info()
                    self._tell(crew, told)

    def _next(self, pause: float | None, changed: float) -> tuple[str, Any]:
        """The next command, or ("", None) when it is time to look again."""
        wait = pause
        if changed:
            left = max(0.0, changed - time.monotonic())
            wait = left if wait is None else min(wait, left)
        try:
            return self._commands.get(timeout=wait)
        except queues.Empty:
            return "", None

    def _tell(self, crew: Crew, info: AgentInfo) -> None:
        claim = crew.claim
        if claim is None:
            return
        try:
            claim.update(info, timeout=2.0)
        except ZkcoordError as error:
            _log.warning("agent %s could not tell what changed: %s", self.name, error)
            self._commands.put(("changed", None))

    # --- leaving --------------------------------------------------------------------------------

    def _drain(self, crew: Crew) -> None:
        self._draining = True
        _log.info("agent %s drains for up to %g s", self.name, self.config.drain_s)
        crew.drain()
        self._tell(crew, self._info())
        done = crew.idle(self.config.drain_s)
        done.add_done_callback(lambda _: self._commands.put(("idle", None)))
        while True:
            word, what = self._commands.get()
            if word == "idle":
                break
            if word in ("drain", "halt"):
                self._halt(crew)
                return
            if word == "lost" and crew.is_current(what[0]):
                crew.part(what[1])
        if not done.result():
            self._clean = False
            crew.give_back()
            crew.idle(self.config.grace_s + 0.5).result()
        if not crew.dismissed(DISMISS_S):
            _log.info("agent %s leaves unheard: no leader answered that it drains", self.name)
        if not crew.flush(FLUSH_S):
            self._clean = False
            _log.warning("agent %s leaves with reports that were not acknowledged", self.name)

    def _halt(self, crew: Crew) -> None:
        """Stop at once: what runs is given back, without grace."""
        _log.info("agent %s stops at once", self.name)
        crew.drain()
        if crew.executor.busy:
            self._clean = False
            crew.give_back(grace=False)
        crew.flush(HALT_S)

    def _leave(self) -> None:
        crew = self._crew
        assert crew is not None
        if not crew.close(CLOSE_S):
            self._clean = False
            _log.warning("agent %s leaves handlers behind that did not stop", self.name)
        _log.info("agent %s has left queue %s", self.name, self._queue.name)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT become commands while inside; the second one says halt."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        seen = 0

        def heard(_number: int, _frame: FrameType | None) -> None:
            nonlocal seen
            seen += 1
            # SimpleQueue.put may be called while the same thread is inside get.
            self._commands.put(("drain" if seen == 1 else "halt", None))

        before = {number: signal.signal(number, heard) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
