"""Leading in callback style: a function that runs while its process leads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Generic, TypeVar

from zkcoord.errors import ConfigError, LeaseLost, SessionLost
from zkcoord.recipes.leadership import Leadership
from zkcoord.zk.clock import now
from zkcoord.zk.promise import Promise, ask_and_wait
from zkcoord.zk.verbs import check_timeout

TERMS_MAX = 1_000_000
_PAUSE_S = 0.5

T = TypeVar("T")

Campaign = Callable[[float | None], Promise[Leadership]]


class Running(Generic[T]):
    """One call of `run`: campaign, call the function, resign; again after a loss.

    Args:
        campaign: stands for election with so many seconds.
        timeout: seconds of waiting in all campaigns together.
        terms: so many campaigns at most.
    """

    def __init__(self, campaign: Campaign, timeout: float | None, terms: int) -> None:
        if not isinstance(terms, int) or not 1 <= terms <= TERMS_MAX:
            raise ConfigError(f"terms {terms!r}: must be within 1 and {TERMS_MAX}")
        self._campaign = campaign
        self._left = None if timeout is None else check_timeout(timeout)
        self._terms = terms
        self._began = 0.0
        self._rng = Random()  # noqa: S311 - jitter

    def blocking(self, fn: Callable[[Leadership], T]) -> T:
        """Run it in this thread."""
        while True:
            leadership = None
            try:
                leadership = ask_and_wait(self._stand)
                self._stood()
                result = fn(leadership)
                _check_finished(result)
                return self._checked(leadership, result)
            except (LeaseLost, SessionLost) as error:
                self._give_up(leadership, error)
            finally:
                if leadership is not None:
                    leadership.leave(quiet=True)
                    if (giving_way := leadership.give_way()) is not None:
                        giving_way.wait()
            threading.Event().wait(self._pause())

    async def awaited(self, fn: Callable[[Leadership], Coroutine[Any, Any, T]]) -> T:
        """Run it as a task of this event loop."""
        while True:
            leadership = None
            try:
                leadership = await self._stand()
                self._stood()
                return self._checked(leadership, await _while_leading(leadership, fn))
            except (LeaseLost, SessionLost) as error:
                self._give_up(leadership, error)
            finally:
                if leadership is not None:
                    leadership.leave(quiet=True)
                    if (giving_way := leadership.give_way()) is not None:
                        await giving_way
            await asyncio.sleep(self._pause())

    def _stand(self) -> Promise[Leadership]:
        self._terms -= 1
        self._began = now()
        return self._campaign(self._left)

    def _stood(self) -> None:
        if self._left is not None:
            self._left = max(0.0, self._left - (now() - self._began))

    def _checked(self, leadership: Leadership, result: T) -> T:
        """The result, if it was made while leading; who resigned inside led to the end."""
        if leadership.lost.is_set():
            leadership.check()
        return result

    def _give_up(self, leadership: Leadership | None, error: LeaseLost | SessionLost) -> None:
        """Raise what cannot be mended by another campaign."""
        if isinstance(error, SessionLost) and leadership is None:
            self._stood()
            mendable = True
        else:
            mendable = leadership is not None and leadership.lost.is_set()
        if not mendable or self._terms == 0 or self._left == 0:
            raise error

    def _pause(self) -> float:
        return self._rng.random() * _PAUSE_S


def _check_finished(result: object) -> None:
    """Look at what a plain function returned.

    Raises:
        TypeError: it has to be awaited, which nobody would do.
    """
    if isinstance(result, Awaitable):
        if isinstance(result, Coroutine):
            result.close()
        raise TypeError("election.run(): fn is async; use: await election.run_async(...)")


async def _while_leading(
    leadership: Leadership, fn: Callable[[Leadership], Coroutine[Any, Any, T]]
) -> T:
    """Run it, cancelled when the leadership is lost.

    Raises:
        LeaseLost: it was lost, and the task has ended.
    """
    loop = asyncio.get_running_loop()
    running = fn(leadership)
    given: object = running
    if not isinstance(given, Coroutine):
        kind = type(given).__name__
        raise TypeError(f"election.run_async(): {fn!r} must be async, it gave {kind}; use run()")
    task = loop.create_task(running)

    def lost() -> None:
        try:
            loop.call_soon_threadsafe(task.cancel)
        except RuntimeError:  # that loop is closed, and the task with it
            return

    leadership.lost.on_set(lost)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
    finally:
        leadership.lost.remove(lost)
    if task.cancelled() and leadership.lost.is_set():
        leadership.check()
    return task.result()
