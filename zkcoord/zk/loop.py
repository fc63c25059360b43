"""The two threads of a session besides kazoo's own.

All state machines of zkcoord run on the *loop*: replies, watch events and timers reach them there,
one after the other, so they need no locks. They never block. What a user registered runs on the
*dispatcher*, a thread of its own, and may block or call anything: it only delays other callbacks.
"""

from __future__ import annotations

import heapq
import logging
import queue
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from zkcoord.zk.clock import now

log = logging.getLogger("zkcoord")

Thunk = tuple[Callable[..., object], tuple[Any, ...]]

# Timers run on a clock that counts the machine's sleep, waiting does not: look at least this often.
_NAP_S = 1.0
_PURGE_MIN = 1024


class Timer:
    """A call in the future. `cancel` may come from any thread."""

    __slots__ = ("_loop", "args", "call")

    def __init__(self, loop: Loop, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._loop = loop
        self.call: Callable[..., object] | None = call
        self.args = args

    def cancel(self) -> None:
        """Never call. Harmless when it was called already."""
        if self.call is not None:
            self.call = None
            self.args = ()
            self._loop.timer_cancelled()


class Worker:
    """A daemon thread that runs posted calls in order."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Thunk | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def post(self, call: Callable[..., object], *args: Any) -> None:
        """Run `call(*args)` on the thread, after everything posted before."""
        self._queue.put((call, args))

    def stop(self) -> None:
        """End the thread once everything posted before has run."""
        self._queue.put(None)

    def join(self, timeout: float) -> bool:
        """Wait for the thread's end; at once when called on the thread itself."""
        if self._thread is threading.current_thread() or self._thread.ident is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def inside(self) -> bool:
        """Whether the caller runs on this thread."""
        return self._thread is threading.current_thread()

    def _run(self) -> None:
        while (thunk := self._queue.get()) is not None:
            run(thunk)
            del thunk


class Loop(Worker):
    """A worker with timers."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = count()
        self._lock = threading.Lock()
        self._wakes_at = 0.0
        self._cancelled = 0

    def call_at(self, when: float, call: Callable[..., object], *args: Any) -> Timer:
        """Run `call(*args)` on the loop at `when` (of :func:`zkcoord.zk.clock.now`) or soon after.

        From any thread.
        """
        timer = Timer(self, call, args)
        with self._lock:
            heapq.heappush(self._timers, (when, next(self._numbers), timer))
            wake = when < self._wakes_at
        if wake:
            self._queue.put((_nothing, ()))
        return timer

    def timer_cancelled(self) -> None:
        """Count a cancelled timer; throw them out when they are the majority."""
        with self._lock:
            self._cancelled += 1
            if self._cancelled > _PURGE_MIN and self._cancelled * 2 > len(self._timers):
                self._timers = [item for item in self._timers if item[2].call is not None]
                heapq.heapify(self._timers)
                self._cancelled = 0

    def _due(self) -> Timer | float:
        """A timer to run, or how long to wait for the next."""
        with self._lock:
            moment = now()
            while self._timers:
                when, _, timer = self._timers[0]
                if timer.call is None:
                    heapq.heappop(self._timers)
                    self._cancelled -= 1
                    continue
                if when <= moment:
                    heapq.heappop(self._timers)
                    return timer
                self._wakes_at = min(when, moment + _NAP_S)
                return self._wakes_at - moment
            self._wakes_at = moment + 3600.0
            return 3600.0

    def _run(self) -> None:
        while True:
            due = self._due()
            if isinstance(due, Timer):
                call, args = due.call, due.args
                due.call = None
                if call is not None:
                    run((call, args))
                continue
            try:
                thunk = self._queue.get(timeout=due)
            except queue.Empty:
                continue
            if thunk is None:
                return
            run(thunk)
            del thunk


def run(thunk: Thunk) -> None:
    """Run one call; an error in it is logged and stops nothing else."""
    call, args = thunk
    try:
        call(*args)
    except Exception:
        log.exception("error in a callback of zkcoord")


def _nothing() -> None:
    """Wake a loop up."""
