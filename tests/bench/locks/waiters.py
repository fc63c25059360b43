"""Ten thousand waiters for one lock in one process: what queueing and draining them costs."""

from __future__ import annotations

import gc
import threading
import time
from contextlib import ExitStack

import psutil

from tests.bench.locks.measuring import SHORT, Goal, Row, Spread, servers
from zkcoord import Lock, Session
from zkcoord.local import Proxy
from zkcoord.recipes import Lease
from zkcoord.zk.promise import Promise

WAITERS = 1000 if SHORT else 10_000
TIMEOUT_S = 300.0


def resident() -> float:
    return float(psutil.Process().memory_info().rss) / 1e6


class Crowd:
    """Waiters of one session that release as soon as they are granted."""

    def __init__(self, session: Session, count: int) -> None:
        self.lock = Lock(session, f"crowd-{count}")
        self.count = count
        self.order: list[int] = []
        self.ended = threading.Event()
        self.holder = self.lock.acquire(timeout=30)

    def queue(self) -> None:
        for number in range(self.count):
            self._wait(number)

    def _wait(self, number: int) -> None:
        future: Promise[Lease] = self.lock.acquire_future(TIMEOUT_S)

        def granted() -> None:
            self.order.append(number)
            future.result().release()
            if len(self.order) == self.count:
                self.ended.set()

        future.on_done(granted)


def crowd(session: Session, proxy: Proxy, count: int) -> dict[str, float]:
    """Seconds, bytes on the wire and megabytes for so many."""
    wire = lambda: proxy.bytes_up + proxy.bytes_down  # noqa: E731
    those = Crowd(session, count)
    gc.collect()
    before, on_wire = resident(), wire()
    begun = time.perf_counter()
    those.queue()
    while len(session.link.watches) < count:
        time.sleep(0.01)
    queued = time.perf_counter() - begun
    grown, queueing = resident() - before, wire() - on_wire
    watches = len(session.link.watches)
    begun = time.perf_counter()
    those.holder.release()
    assert those.ended.wait(TIMEOUT_S)
    drained = time.perf_counter() - begun
    return {
        "queueing, s": queued,
        "draining, s": drained,
        "queueing, bytes each": queueing / count,
        "draining, bytes each": (wire() - on_wire - queueing) / count,
        "memory, MB": grown,
        "watches each": watches / count,
        "out of order": float(sum(a != b for a, b in zip(those.order, range(count), strict=True))),
    }


def waiters() -> Row:
    with ExitStack() as stack:
        server = stack.enter_context(servers(1)).zookeepers[0]
        proxy = stack.enter_context(Proxy(server.address))
        session = stack.enter_context(Session(proxy.address, timeout=30))
        crowd(session, proxy, 100)
        few = crowd(session, proxy, WAITERS // 10)
        found = crowd(session, proxy, WAITERS)
    spreads = {name: Spread(value, value, value, 1) for name, value in found.items()}
    what = f"{WAITERS:,} waiters for one lock in one process, queueing and draining"
    row = Row("10,000 waiters", what, "", spreads)
    each = "queueing, bytes each", "draining, bytes each"
    growth = sum(found[name] for name in each) / sum(few[name] for name in each)
    row.goals += [
        Goal("out of order", found["out of order"], 0, "", at_least=False),
        Goal("memory", found["memory, MB"], 100, "MB", at_least=False),
        Goal("bytes each, of a tenth as many", growth, 1.5, at_least=False),
    ]
    return row
