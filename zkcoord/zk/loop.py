"""The two threads of a session besides kazoo's own.

All state machines of zkcoord run on the *loop*: replies, watch events and timers reach them there,
one after the other, so they need no locks. They never block. The loop has a thread, but the
connection's thread may take its turn instead when it has brought news: that saves a change of
threads for every reply. What a user registered runs on the *dispatcher*, a thread of its own, and
may block or call anything: it only delays other callbacks.
"""

from __future__ import annotations

import heapq
import logging
import math
import queue
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, NoReturn

from zkcoord.zk.clock import now

log = logging.getLogger("zkcoord")

Thunk = tuple[Callable[..., object], tuple[Any, ...]]

# Timers run on a clock that counts the machine's sleep, waiting does not: look at least this often.
_NAP_S = 1.0
_IDLE_S = 3600.0
_PURGE_MIN = 1024
_BETWEEN_LOOKS = 8  # calls, at the clock


class Homebound:
    """What cannot be sent to another process, nor anything that stands on it."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a session, and what stands on it, stays in its process: "
            "give the other process the hosts, and let it open a session of its own"
        )


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

    def fire(self) -> None:
        """Call, unless it was cancelled meanwhile."""
        call, args = self.call, self.args
        self.call = None
        if call is not None:
            call(*args)


class Worker(Homebound):
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

    def _run(self) -> None:
        while (thunk := self._queue.get()) is not None:
            run(thunk)
            del thunk


class Loop(Homebound):
    """Runs posted calls one after the other, and timers."""

    def __init__(self, name: str) -> None:
        self._items: deque[Thunk] = deque()
        self._turn = threading.Lock()
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._guest = 0
        self._ending = False
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = count()
        self._lock = threading.Lock()
        self._wakes_at = 0.0
        self._cancelled = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def post(self, call: Callable[..., object], *args: Any) -> None:
        """Run `call(*args)` after everything posted before. From any thread."""
        self._items.append((call, args))
        if threading.get_ident() != self._guest:
            self._wake.put(True)

    def welcome(self) -> None:
        """The calling thread promises to call `turn` soon after every `post` of its own."""
        self._guest = threading.get_ident()

    def turn(self, seconds: float = math.inf, *, again: bool = False) -> bool:
        """Run what is posted, unless another thread is at it: that one will.

        After so many seconds what is left is handed to the loop's own thread.

        Args:
            seconds: how long.
            again: the caller will take another turn soon, so nothing is handed over.

        Returns:
            Whether time was up before everything had run.
        """
        while self._items and self._turn.acquire(blocking=False):
            try:
                end = math.inf if seconds == math.inf else now() + seconds
                while self._items and now() < end:
                    for _ in range(min(len(self._items), _BETWEEN_LOOKS)):
                        call, args = self._items.popleft()
                        try:
                            call(*args)
                        except Exception:
                            complain()
            finally:
                self._turn.release()
            if self._items and seconds != math.inf:
                if not again:
                    self._wake.put(True)
                return True
        return False

    def stop(self) -> None:
        """End the thread once everything posted before has run."""
        self.post(self._end)

    def join(self, timeout: float) -> bool:
        """Wait for the thread's end."""
        if self._thread.ident is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def call_at(self, when: float, call: Callable[..., object], *args: Any) -> Timer:
        """Run `call(*args)` at `when` (of :func:`zkcoord.zk.clock.now`) or soon after.

        From any thread.
        """
        timer = Timer(self, call, args)
        with self._lock:
            heapq.heappush(self._timers, (when, next(self._numbers), timer))
            wake = when < self._wakes_at
        if wake:
            self._wake.put(True)
        return timer

    def timer_cancelled(self) -> None:
        """Count a cancelled timer; throw them out when they are the majority."""
        with self._lock:
            self._cancelled += 1
            if self._cancelled > _PURGE_MIN and self._cancelled * 2 > len(self._timers):
                self._timers = [item for item in self._timers if item[2].call is not None]
                heapq.heapify(self._timers)
                self._cancelled = 0

    def _end(self) -> None:
        self._ending = True
        self._wake.put(True)

    def _due(self) -> float:
        """Post the timers that are due; how long to wait for the next."""
        with self._lock:
            moment = now()
            while self._timers:
                when, _, timer = self._timers[0]
                if timer.call is None:
                    self._cancelled -= 1
                elif when <= moment:
                    self._items.append((timer.fire, ()))
                else:
                    self._wakes_at = min(when, moment + _NAP_S)
                    return self._wakes_at - moment
                heapq.heappop(self._timers)
            self._wakes_at = moment + _IDLE_S
            return _IDLE_S

    def _run(self) -> None:
        while not self._ending:
            wait = self._due()
            self.turn()
            try:
                self._wake.get(timeout=wait)
                while True:
                    self._wake.get_nowait()
            except queue.Empty:
                continue


def run(thunk: Thunk) -> None:
    """Run one call; an error in it is logged and stops nothing else."""
    call, args = thunk
    try:
        call(*args)
    except Exception:
        complain()


def complain() -> None:
    """Log the error that is being handled."""
    log.exception("error in a callback of zkcoord")  # noqa: LOG004 - called in handlers
