"""One use of each recipe: of session, name, folder and timeout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkcoord.errors import ZkcoordError
from zkcoord.recipes import (
    Barrier,
    Counter,
    DoubleBarrier,
    Election,
    FastCounter,
    Lock,
    Membership,
    MultiLock,
    NodeCache,
    Pool,
    ReadWriteLock,
    RLock,
    Semaphore,
    TreeCache,
)
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise

Use = Callable[[Session, str, str, Any], Promise[Any]]


def cached(cache: NodeCache | TreeCache, timeout: Any) -> Promise[Any]:
    try:
        ready = cache.ready_future(timeout)
    except ZkcoordError:
        cache.close()
        raise
    ready.on_done(cache.close)
    return ready


WRITING: dict[str, Use] = {
    "Lock": lambda s, n, r, t: Lock(s, n, root=r).acquire_future(t),
    "RLock": lambda s, n, r, t: RLock(s, n, root=r).acquire_future(t),
    "reader": lambda s, n, r, t: ReadWriteLock(s, n, root=r).read.acquire_future(t),
    "writer": lambda s, n, r, t: ReadWriteLock(s, n, root=r).write.acquire_future(t),
    "MultiLock": lambda s, n, r, t: MultiLock(s, [n, "also"], root=r).acquire_future(t),
    "Semaphore": lambda s, n, r, t: Semaphore(s, n, permits=2, root=r).acquire_future(1, t),
    "Pool": lambda s, n, r, t: Pool(s, n, slots=["a", "b"], root=r).acquire_future(t),
    "Election": lambda s, n, r, t: Election(s, n, root=r).campaign_future(t),
    "Membership": lambda s, n, r, t: Membership(s, r).join_future(n, timeout=t),
    "Barrier": lambda s, n, r, t: Barrier(s, n, root=r).create_future(t),
    "DoubleBarrier": lambda s, n, r, t: DoubleBarrier(s, n, 1, root=r).enter_future(t),
    "Counter": lambda s, n, r, t: Counter(s, f"{r}/{n}").add_future(1, t),
    "FastCounter": lambda s, n, r, t: FastCounter(s, f"{r}/{n}").add_future(1, t),
}
READING: dict[str, Use] = {
    "barrier's wait": lambda s, n, r, t: Barrier(s, n, root=r).wait_future(t),
    "NodeCache": lambda s, n, r, t: cached(NodeCache(s, f"{r}/{n}"), t),
    "TreeCache": lambda s, n, r, t: cached(TreeCache(s, f"{r}/{n}"), t),
    "count": lambda s, n, r, t: Counter(s, f"{r}/{n}").get_future(t),
    "fast count": lambda s, n, r, t: FastCounter(s, f"{r}/{n}").get_future(t),
}
USES = WRITING | READING
