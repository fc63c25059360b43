"""One implementation, two colours: results that can be waited for and awaited.

A recipe completes a :class:`Promise`. Synchronous code calls ``wait``, asyncio code awaits it. When
the waiting is given up (an exception such as ``KeyboardInterrupt``, or a cancelled task) the
promise is cancelled, and a result that came too late is undone. Inside an event loop only awaiting
will do: what would block it raises RuntimeError.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.clock import countable
from zkcoord.zk.loop import Homebound, Worker, complain, run

T = TypeVar("T")
U = TypeVar("U")


_OVER = (FINISHED, CANCELLED, CANCELLED_AND_NOTIFIED)


class Promise(Future[T]):
    """A :class:`concurrent.futures.Future` that can be awaited too. Given by all ``…_future``.

    Callbacks added with ``add_done_callback`` run on the session's dispatcher thread, never on one
    of its inner threads. ``cancel`` gives up what is waited for and cleans up behind it.

    Every request makes one and mostly no thread waits for it, so it is lean: the condition that a
    waiting thread needs is made for the first, and to look takes no lock.
    """

    # Future's attributes; what of its methods is not replaced here works on them. `_state` is
    # written last and never changes once it is over, so who reads that may read the others.

    def __init__(self, dispatcher: Worker, *, undo: Callable[[T], object] | None = None) -> None:
        self._dispatcher = dispatcher
        self._undo = undo
        self._lock = threading.RLock()
        self._awaited: threading.Condition | None = None
        self._calls: list[Callable[[], object]] = []
        self._waiters = []
        self._result = None
        self._exception = None
        self._state = PENDING

    if not TYPE_CHECKING:  # they know it as an attribute

        @property
        def _condition(self) -> threading.Condition:
            with self._lock:
                if self._awaited is None:
                    self._awaited = threading.Condition(self._lock)
                return self._awaited

    def __repr__(self) -> str:
        if not self.done():
            state = "pending"
        elif self.cancelled():
            state = "cancelled"
        elif self._exception is not None:
            state = f"failed: {type(self._exception).__name__}"
        else:
            state = f"done: {type(self._result).__name__}"
        return f"<{type(self).__name__} {state}>"

    def done(self) -> bool:
        """Whether there is a result or an error, or it was cancelled."""
        return self._state in _OVER

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._state in _OVER and self._state != FINISHED

    def result(self, timeout: float | None = None) -> T:
        """The result, or the error raised; waits for it, for so many seconds at most.

        Raises:
            RuntimeError: it would wait inside an event loop; use ``await promise``.
        """
        if self._state == FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]
        if not self.done():
            refuse_in_event_loop("promise.result()", "await promise", timeout)
            self._sit_out(timeout)
            if self._state == FINISHED and self._exception is None:
                return self._result  # type: ignore[return-value]
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None; waits for it, for so many seconds at most.

        Raises:
            RuntimeError: it would wait inside an event loop; use ``await promise``.
        """
        if self._state == FINISHED:
            return self._exception
        if not self.done():
            refuse_in_event_loop("promise.exception()", "await promise", timeout)
            self._sit_out(timeout)
        return super().exception(0)

    def _sit_out(self, timeout: float | None) -> None:
        """Until it is done or `timeout` has passed.

        On a bare lock: when a signal's handler raises inside of a condition's wait, the condition
        raises another error in its place.
        """
        latch = threading.Lock()
        latch.acquire()
        wake = latch.release
        self.on_done(wake)
        if not latch.acquire(timeout=-1 if timeout is None else max(0.0, countable(timeout))):
            with self._lock:
                if wake in self._calls:
                    self._calls.remove(wake)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call `fn(self)` on the dispatcher thread once this is done."""
        self.on_done(partial(self._dispatcher.post, fn, self))

    def on_done(self, fn: Callable[[], object]) -> None:
        """Internal: call `fn()` on whichever thread completes this; `fn` must not block."""
        with self._lock:
            if self._state not in _OVER:
                self._calls.append(fn)
                return
        run((fn, ()))

    def fulfil(self, value: T) -> bool:
        """Internal: set the result; False when it was cancelled or is done already."""
        return self._settle(value, None)

    def fail(self, error: BaseException) -> bool:
        """Internal: set the error; False when it was cancelled or is done already."""
        return self._settle(None, error)

    def _settle(self, value: T | None, error: BaseException | None) -> bool:
        with self._lock:
            if self._state in _OVER:
                return False
            self._result, self._exception = value, error
            self._state = FINISHED
            for waiter in self._waiters:  # of concurrent.futures.wait and as_completed
                tell = waiter.add_result if error is None else waiter.add_exception
                tell(self)
            if self._awaited is not None:
                self._awaited.notify_all()
        if self._calls:
            self._invoke_callbacks()
        return True

    def _invoke_callbacks(self) -> None:
        calls, self._calls = self._calls, []  # they hold whoever waits, and are held by it
        for call in calls:
            try:
                call()
            except Exception:
                complain()

    def then(self, shape: Callable[[T], U]) -> Promise[U]:
        """A promise of `shape(result)`; `shape` must not block, and errors pass unchanged.

        Giving up the new one gives up this one.
        """
        shaped: Promise[U] = Promise(self._dispatcher)

        def done() -> None:
            if self.cancelled():
                shaped.cancel()
                return
            try:
                value = shape(self.result())
            except Exception as error:
                shaped.fail(error)
            else:
                shaped.fulfil(value)

        def up() -> None:
            if shaped.cancelled():
                self.give_up()

        self.on_done(done)
        shaped.on_done(up)
        return shaped

    def give_up(self) -> None:
        """Nobody wants the result any more: cancel, or undo what came too late, once."""
        if self.cancel():
            return
        undo, self._undo = self._undo, None
        if undo is not None and not self.cancelled() and self.exception() is None:
            run((undo, (self.result(),)))

    def wait(self) -> T:
        """Block until it is done; its own deadline bounds the wait.

        Raises:
            RuntimeError: it would wait inside an event loop; use ``await promise``. What was asked
                for is given up, as with every error while waiting.
        """
        try:
            if not self.done():
                refuse_in_event_loop("promise.wait()", "await promise")
            return self.result()
        except BaseException as error:
            own = self.exception() if self.done() and not self.cancelled() else None
            if error is not own:
                self.give_up()
            raise

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in asyncio."""
        return self._await().__await__()

    async def _await(self) -> T:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        def done() -> None:
            try:
                loop.call_soon_threadsafe(wake)
            except RuntimeError:  # that loop is closed: nobody waits any more
                self.give_up()

        self.on_done(done)
        try:
            await ready
        except asyncio.CancelledError:
            self.give_up()
            raise
        return self.result()


def ask_and_wait(ask: Callable[[], Promise[T]]) -> T:
    """The result of what `ask()` asks for. Whatever is raised meanwhile gives it up.

    A signal's handler may raise between any two calls, also after `ask` has begun and before
    somebody waits. It cannot come between a return and what is done with the value, as long as
    `ask` is a Python function and returns what it just made: so nothing is lost in between.
    """
    promise = None
    try:
        promise = ask()
        return promise.wait()
    except BaseException:
        if promise is not None:
            promise.give_up()
        raise


class Signal(Homebound):
    """Something that happens once: a :class:`threading.Event` with callbacks, usable in asyncio."""

    __slots__ = ("_calls", "_dispatcher", "_event", "_lock")

    def __init__(self, dispatcher: Worker) -> None:
        self._dispatcher = dispatcher
        self._lock = threading.Lock()
        self._event: threading.Event | None = None
        self._calls: list[Callable[[], object]] | None = []

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._calls is None

    def set(self) -> bool:
        """It happens now; False when it had happened before."""
        with self._lock:
            calls, self._calls = self._calls, None
            if calls is None:
                return False
            if self._event is not None:
                self._event.set()
        for call in calls:
            run((call, ()))
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it happens or `timeout` seconds have passed; whether it has happened.

        Raises:
            RuntimeError: it would wait inside an event loop; use ``await signal.wait_async()``.
        """
        with self._lock:
            if self._calls is None:
                return True
            refuse_in_event_loop("signal.wait()", "await signal.wait_async()", timeout)
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        return event.wait(None if timeout is None else countable(timeout))

    def add_callback(self, fn: Callable[[], object]) -> None:
        """Call `fn()` on the dispatcher thread when it happens; soon, when it has."""
        self.on_set(lambda: self._dispatcher.post(fn))

    def on_set(self, fn: Callable[[], object]) -> None:
        """Call `fn()` on whichever thread sets it; `fn` must not block."""
        with self._lock:
            if self._calls is not None:
                self._calls.append(fn)
                return
        run((fn, ()))

    def remove(self, fn: Callable[[], object]) -> None:
        """Forget a function given to `on_set`."""
        with self._lock:
            if self._calls is not None and fn in self._calls:
                self._calls.remove(fn)

    async def wait_async(self) -> None:
        """Wait for it in asyncio."""
        loop = asyncio.get_running_loop()
        ready = loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        def fire() -> None:
            loop.call_soon_threadsafe(wake)

        self.on_set(fire)
        try:
            await ready
        finally:
            self.remove(fire)
