"""The shipped semaphore as a client of a model world, and what must hold of it."""

from __future__ import annotations

from collections.abc import Sequence

from lock_requests import Ours
from lock_scenario import Request, Scenario, Wish
from lock_world import World

from zkcoord.core import ordering
from zkcoord.core.permits import Limit, holders, read_limit, weight_of
from zkcoord.errors import LimitExceeded
from zkcoord.recipes import Resized, Semaphore
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise

NAME = "jobs"
FOLDERS = ("/semaphores", f"/semaphores/{NAME}")


class Permits:
    """The rule: no more than so many are held.

    Attributes:
        limit: what may be granted up to. surplus: what may be held above it after a forced resize,
            or while a resize is under way.
        unknown: a resize ended without telling whether it was made.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.surplus = 0
        self.unknown = False
        self.granting = False

    def __call__(self, held: Sequence[int]) -> str:
        total = sum(held)
        if self.granting or self.unknown:
            return "" if total <= self.limit and not self.unknown else "above the limit"
        if total > self.limit + self.surplus:
            return f"{total} permits are held of {self.limit} + {self.surplus}"
        return ""

    def check(self, held: Sequence[int]) -> str:
        return "" if self.unknown else self(held)


class Resizing:
    """A resize as a request; it holds nothing."""

    what = 0
    token = 0
    finished = True
    granted = False

    def __init__(
        self, promise: Promise[Resized], rule: Permits, wanted: int, *, force: bool
    ) -> None:
        self._promise = promise
        self._rule = rule
        self._wanted = wanted
        self._before = rule.limit
        self._force = force
        rule.surplus = max(0, wanted - rule.limit)
        promise.on_done(self._done)

    def _done(self) -> None:
        rule = self._rule
        if self._promise.cancelled():
            rule.unknown = True
        elif isinstance(self._promise.exception(), LimitExceeded):
            rule.surplus = 0
        elif self._promise.exception() is not None:
            rule.unknown = True
        else:
            rule.limit = self._wanted
            rule.surplus = max(0, self._before - self._wanted) if self._force else 0

    def settled(self) -> bool:
        return self._promise.done()

    def believed(self) -> bool:
        return False

    def release(self) -> None: ...

    def cancel(self) -> None: ...


class SemaphoreWorld(World):
    """A world that tells what is held from what may be granted.

    A limit that was lowered revokes nothing, but nobody is granted before what is held fits: only
    those may be who stood within the old limit when it was lowered.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._spared: set[str] = set()
        super().__init__(scenario)

    def _stored(self) -> tuple[Limit | None, list[ordering.Contender]]:
        tree = self.ensemble.trees[0]
        if FOLDERS[1] not in tree:
            return None, []
        return read_limit(tree[FOLDERS[1]].data), ordering.in_order(tree.children(FOLDERS[1]))

    def _commit(self, number: int) -> None:
        before, queue = self._stored()
        super()._commit(number)
        after, _ = self._stored()
        if before is not None and after is not None and after.permits < before.permits:
            self._spared = {one.node for one in holders(queue, before.reach)}

    def _granted(self, request: Request) -> None:
        super()._granted(request)
        limit, queue = self._stored()
        assert isinstance(request, Ours)
        assert request._lease is not None
        node = request._lease.path.rpartition("/")[2]
        places = [one.node for one in queue]
        if limit is None or node in self._spared or node not in places:
            return
        total = sum(map(weight_of, queue[: places.index(node) + 1]))
        if total > limit.permits:
            self.wrong.append(f"above: granted with {total} of {limit.permits} permits")

    def _look(self) -> None:
        rule = self.scenario.rule
        assert isinstance(rule, Permits)
        if not rule.unknown:
            super()._look()

    def _overslept(self) -> str:
        rule = self.scenario.rule
        assert isinstance(rule, Permits)
        rule.granting = True
        try:
            return super()._overslept()
        finally:
            rule.granting = False


def permits(
    weight: int = 1, *, of: int, timeout: float | None = None, may_cancel: bool = False
) -> Wish:
    """A wish for permits of a semaphore that was declared with so many."""

    def begin(session: Session, label: str) -> Request:
        semaphore = Semaphore(session, NAME, of, label=label)
        return Ours(semaphore.acquire_future(weight, timeout), weight)

    return Wish(begin, may_cancel)


def resize(rule: Permits, wanted: int, *, force: bool = False) -> Wish:
    """A wish to change the limit."""

    def begin(session: Session, _label: str) -> Request:
        promise = Semaphore(session, NAME).resize_future(wanted, force=force, timeout=1e6)
        return Resizing(promise, rule, wanted, force=force)

    return Wish(begin)
