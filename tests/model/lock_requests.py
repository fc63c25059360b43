"""Our recipes as clients of a model world, and the rules that their grants must obey."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from lock_scenario import Request, Wish

from zkcoord.recipes import Lock
from zkcoord.recipes.lease import Lease
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise


class Ours:
    """A promise of a lease."""

    def __init__(self, promise: Promise[Any]) -> None:
        self._promise = promise
        self._lease: Lease | None = None
        self._settled = False
        promise.on_done(self._done)

    def _done(self) -> None:
        self._settled = True
        if not self._promise.cancelled() and self._promise.exception() is None:
            self._lease = self._promise.result()

    @property
    def granted(self) -> bool:
        return self._lease is not None

    @property
    def token(self) -> int:
        return self._lease.token if self._lease is not None else 0

    @property
    def error(self) -> BaseException | None:
        promise = self._promise
        return promise.exception() if promise.done() and not promise.cancelled() else None

    def settled(self) -> bool:
        return self._settled

    def believed(self) -> bool:
        lease = self._lease
        if lease is None or lease._reason:
            return False
        belief = lease._epoch.belief
        ended = belief._ended
        over = lease._over()
        belief._ended = ended  # to look changes nothing
        return not over

    def release(self) -> None:
        assert self._lease is not None
        self._lease.leave(quiet=True)

    def cancel(self) -> None:
        self._promise.cancel()


def lock(name: str = "gpu", *, timeout: float | None = None, may_cancel: bool = False) -> Wish:
    """A wish for a lock."""

    def ask(session: Session) -> Request:
        return Ours(Lock(session, name, label="m").acquire_future(timeout))

    return Wish(ask, name, may_cancel)


def alone(holders: list[tuple[Any, Request]]) -> str:
    """One holder for each name."""
    names = Counter(what for what, _ in holders)
    twice = [name for name, count in names.items() if count > 1]
    return f"{twice[0]} is held twice" if twice else ""


Rule = Callable[[list[tuple[Any, Request]]], str]
