"""Holding something for the length of a block, in both colours."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from zkcoord.errors import LeaseLost
from zkcoord.recipes.lease import Lease
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.promise import Promise, ask_and_wait

LeaseT = TypeVar("LeaseT", bound=Lease)


class Hold(Generic[LeaseT]):
    """Acquires on entering and releases on leaving; may be entered again, but not while inside."""

    def __init__(self, acquire: Callable[[], Promise[LeaseT]]) -> None:
        self._acquire = acquire
        self._lease: LeaseT | None = None

    def __enter__(self) -> LeaseT:
        refuse_in_event_loop("with ...hold()", "async with ...hold()")
        self._lease = ask_and_wait(self._acquire)
        return self._lease

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease = self._lease
        try:
            self._leave(quiet=kind is not None)
        except LeaseLost:
            raise
        except BaseException:  # a signal's handler: see to it that it is given back
            if lease is not None and (self._lease is lease or not lease.counted):
                lease.abandon()
            raise

    async def __aenter__(self) -> LeaseT:
        self._lease = await self._acquire()
        return self._lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(quiet=kind is not None)

    def _leave(self, *, quiet: bool) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.leave(quiet=quiet)
