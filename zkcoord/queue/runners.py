"""Where attempts run: coroutines on the agent's event loop, functions on its threads.

Coroutines do not get an asyncio task each. A few long-lived tasks ("runners") take attempts one
after the other; a coroutine that never suspends is over before the event loop hears of it, which is
what makes short handlers cheap. When one suspends, another runner takes over the rest. A handler
sees nothing of this: `asyncio.current_task()` is a real task throughout its run, cancelling is
ordinary task cancellation (undone by `Task.uncancel` before the next attempt), and each attempt
has its own copy of the context variables.

A process that a handler forked ends here, where it would come back out of the handler; see `forks`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import queue
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from zkcoord.core.records import Report
from zkcoord.queue import forks
from zkcoord.queue.attempt import Attempt
from zkcoord.queue.handlers import report_error, report_value, report_verdict

_log = logging.getLogger(__name__)

INLINE_S = 0.005
"""How long a runner goes on with coroutines that never suspend before others get the loop."""

OnEnd = Callable[[Attempt, Report], None]


class AsyncRunners:
    """Runs coroutines. All methods are for the thread of `loop`.

    `on_end(attempt, report)` is called on the loop when an attempt is over. At most `limit`
    attempts may be given at a time; the caller counts.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int, on_end: OnEnd) -> None:
        self._loop = loop
        self._limit = limit
        self._on_end = on_end
        self._pid = os.getpid()
        self._ready: deque[Attempt] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._runners: set[asyncio.Task[None]] = set()
        self._pulling = False  # some runner is about to look at _ready
        self._closed = False
        self._base = contextvars.copy_context()

    def start(self, attempt: Attempt) -> None:
        """Run it as soon as the loop gets to it."""
        self._ready.append(attempt)
        if not self._pulling:
            self._wake()

    def cancel(self, attempt: Attempt) -> None:
        """Cancel a started attempt, as `asyncio.Task.cancel` does."""
        if attempt.task is not None:
            attempt.task.cancel()

    async def close(self, within: float) -> bool:
        """Cancel what still runs and end all runners; whether all ended within so many seconds.

        No attempt's end is reported from here on.
        """
        self._closed = True
        self._ready.clear()
        for runner in self._runners:
            runner.cancel()
        if not self._runners:
            return True
        _, pending = await asyncio.wait(set(self._runners), timeout=within)
        return not pending

    def _wake(self) -> None:
        self._pulling = True
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        if len(self._runners) < self._limit:
            runner = self._loop.create_task(self._run(), name="zkcoord-runner")
            self._runners.add(runner)
            runner.add_done_callback(self._runners.discard)

    def _suspended(self) -> None:
        """A coroutine suspended: its runner is taken, so another one must look at the rest."""
        self._pulling = False
        if self._ready:
            self._wake()

    async def _run(self) -> None:
        runner = asyncio.current_task()
        assert runner is not None
        since = time.monotonic()
        while not self._closed:
            try:
                if not self._ready:
                    await self._park()
                    since = time.monotonic()
                elif time.monotonic() - since > INLINE_S:
                    await asyncio.sleep(0)
                    since = time.monotonic()
            except asyncio.CancelledError:
                # Nobody cancels an idle runner but `close`, and that is looked at above.
                await _shed_cancellation(runner)
            if self._ready and not self._closed:
                self._pulling = True
                await self._attempt(self._ready.popleft(), runner)
                if runner.cancelling():
                    await _shed_cancellation(runner)

    async def _park(self) -> None:
        self._pulling = False
        idle = self._loop.create_future()
        self._idle.append(idle)
        await idle

    async def _attempt(self, attempt: Attempt, runner: asyncio.Task[None]) -> None:
        if attempt.verdict is not None:  # stopped before it began
            self._on_end(attempt, report_verdict(attempt, time.time()))
            return
        attempt.task = runner
        context = self._base.copy()
        try:
            coroutine = context.run(attempt.invoke)
            value = await _drive(coroutine, context, self._suspended, self._pid)
        except GeneratorExit:
            raise  # the loop is being torn down
        except BaseException as error:  # whatever it raised is its outcome
            if os.getpid() != self._pid:
                forks.end_child(error)
            attempt.task = None
            report = report_error(attempt, error, time.time())
        else:
            if os.getpid() != self._pid:
                forks.end_child()
            attempt.task = None
            report = report_value(attempt, value, time.time())
        if not self._closed:
            self._on_end(attempt, report)


async def _shed_cancellation(task: asyncio.Task[None]) -> None:
    """Take back what a handler left cancelled, so that the next one is not hit by it."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # a cancellation that is still to be thrown is thrown here
    while task.cancelling():
        task.uncancel()


@types.coroutine
def _drive(
    coroutine: Coroutine[Any, Any, Any],
    context: contextvars.Context,
    on_suspend: Callable[[], None],
    pid: int,
) -> Generator[Any, Any, Any]:
    """Run a coroutine inside the current task, each step in `context`; tell of its first pause."""
    try:
        awaited = context.run(coroutine.send, None)
        if os.getpid() != pid:
            forks.end_waiting_child()
        on_suspend()
        while True:
            try:
                value = yield awaited
            except GeneratorExit:
                context.run(coroutine.close)
                raise
            except BaseException as error:  # cancellation, most of all: the coroutine's to handle
                awaited = context.run(coroutine.throw, error)
            else:
                awaited = context.run(coroutine.send, value)
            if os.getpid() != pid:
                forks.end_waiting_child()
    except StopIteration as stop:
        return stop.value


class ThreadRunners:
    """Runs functions on daemon threads, started as they are needed, at most `limit`.

    `on_end(attempt, report)` is called on the loop. A function cannot be stopped from outside:
    its thread stays with it until it returns.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int, on_end: OnEnd) -> None:
        self._loop = loop
        self._limit = limit
        self._on_end = on_end
        self._pid = os.getpid()
        self._jobs: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._ends: deque[tuple[Attempt, Report]] = deque()
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._called = False  # the loop was asked to collect the ends
        self._closed = False
        self._base = contextvars.copy_context()

    def start(self, attempt: Attempt) -> None:
        """Run it on a free thread. Loop thread only."""
        self._running += 1
        if self._running > len(self._threads) and len(self._threads) < self._limit:
            thread = threading.Thread(
                target=self._work, name=f"zkcoord-slot-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        self._jobs.put(attempt)

    def close(self, timeout: float) -> bool:
        """End all idle threads; whether all were idle within `timeout` seconds.

        A thread that is inside a function ends after it. No end is reported from here on.
        """
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        with forks.watched():
            self._serve()

    def _serve(self) -> None:
        while (attempt := self._jobs.get()) is not None:
            report = self._outcome(attempt)
            self._ends.append((attempt, report))
            del attempt  # an idle thread must not keep its last task alive
            if not self._called and not self._closed:
                self._called = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # the loop has gone

    def _outcome(self, attempt: Attempt) -> Report:
        if attempt.verdict is not None:  # stopped before it began
            return report_verdict(attempt, time.time())
        try:
            value = self._base.copy().run(attempt.invoke)
        except BaseException as error:  # whatever it raised is its outcome
            if os.getpid() != self._pid:
                forks.end_child(error)
            return report_error(attempt, error, time.time())
        if os.getpid() != self._pid:
            forks.end_child()
        return report_value(attempt, value, time.time())

    def _collect(self) -> None:
        self._called = False  # before looking: an end that comes now calls again
        while self._ends:
            attempt, report = self._ends.popleft()
            self._running -= 1
            if not self._closed:
                self._on_end(attempt, report)
