"""Holding something for the length of a block, in both colours."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from zkcoord.recipes.lease import Lease
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.promise import Promise

LeaseT = TypeVar("LeaseT", bound=Lease)


class Hold(Generic[LeaseT]):
    """Acquires on entering and releases on leaving; may be entered again, but not while inside."""

    def __init__(self, acquire: Callable[[], Promise[LeaseT]]) -> None:
        self._acquire = acquire
        self._lease: LeaseT | None = None

    def __enter__(self) -> LeaseT:
        refuse_in_event_loop("with ...hold()", "async with ...hold()")
        self._lease = self._acquire().wait()
        return self._lease

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(quiet=kind is not None)

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
