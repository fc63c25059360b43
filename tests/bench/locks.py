"""What a lock costs, against kazoo's Lock and against bare requests, in one run.

    python -m tests.bench.locks

Uncontended acquire + release, one after the other, as medians of rounds that take turns: on one
local server, and on three servers that are 10 ms away. The floor is create + getChildren in one
flight and then delete, with bare kazoo and no lock around it. A hand-off is timed from the release
in one session to the grant in another.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from kazoo.client import KazooClient

from zkcoord.local import Proxy, Stack
from zkcoord.recipes import Lock
from zkcoord.zk import Session

Row = tuple[str, float, str, float | None, float | None, float | None]

ROUNDS = 5


@contextmanager
def kazoo_client(hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts, timeout=10)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def milliseconds(work: Callable[[], object], count: int) -> float:
    """Mean milliseconds of one call, over `count` calls in a row."""
    begun = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - begun) / count * 1000


def taking_turns(works: dict[str, Callable[[], object]], count: int) -> dict[str, float]:
    """The median over rounds of each; every round runs all of them."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        milliseconds(work, max(3, count // 10))
    for _ in range(ROUNDS):
        for name, work in works.items():
            found[name].append(milliseconds(work, count))
    return {name: statistics.median(values) for name, values in found.items()}


def uncontended(hosts: str, count: int) -> dict[str, float]:
    with Session(hosts, timeout=10) as session, kazoo_client(hosts) as client:
        ours = Lock(session, "bench")
        theirs = client.Lock("/bench-kazoo")
        client.ensure_path("/bench-floor")

        def confirmed() -> None:
            ours.acquire(timeout=30).release(timeout=30)

        def rival() -> None:
            theirs.acquire()
            theirs.release()

        def floor() -> None:
            made = client.create_async("/bench-floor/n-", ephemeral=True, sequence=True)
            client.get_children_async("/bench-floor").get()
            client.delete_async(made.get()).get()

        return taking_turns(
            {
                "ours": lambda: ours.acquire(timeout=30).release(),
                "confirmed": confirmed,
                "rival": rival,
                "floor": floor,
            },
            count,
        )


def our_hand_off(one: Session, two: Session) -> float:
    lease = Lock(one, "hand-off").acquire(timeout=30)
    granted: list[float] = []
    future = Lock(two, "hand-off").acquire_future(timeout=30)
    future.on_done(lambda: granted.append(time.perf_counter()))
    while len(one.nodes.children("/locks/hand-off")) < 2 or len(two.link.watches) < 1:
        time.sleep(0.001)
    begun = time.perf_counter()
    lease.release()
    future.wait().release(timeout=30)
    return (granted[0] - begun) * 1000


def kazoo_hand_off(one: KazooClient, two: KazooClient) -> float:
    first, second = one.Lock("/hand-off-kazoo"), two.Lock("/hand-off-kazoo")
    first.acquire()
    granted: list[float] = []

    def wait() -> None:
        second.acquire()
        granted.append(time.perf_counter())

    thread = threading.Thread(target=wait)
    thread.start()
    while len(first.contenders()) < 2:
        time.sleep(0.001)
    time.sleep(0.02)  # its watch is set a moment after it shows up
    begun = time.perf_counter()
    first.release()
    thread.join()
    second.release()
    return (granted[0] - begun) * 1000


def hand_offs(hosts: str, count: int) -> tuple[float, float]:
    """Medians, ours and kazoo's, of hand-offs that take turns."""
    ours, theirs = [], []
    with (
        Session(hosts, timeout=10) as one,
        Session(hosts, timeout=10) as two,
        kazoo_client(hosts) as three,
        kazoo_client(hosts) as four,
    ):
        for _ in range(count):
            ours.append(our_hand_off(one, two))
            theirs.append(kazoo_hand_off(three, four))
    return statistics.median(ours), statistics.median(theirs)


def rows(where: str, found: dict[str, float]) -> list[Row]:
    """Ours with background release, as `with lock.hold()` does it, and with confirmed release."""
    floor, rival = found["floor"], found["rival"]
    return [
        (f"lock_{where}{kind}", value, "ms", floor, rival, rival / value)
        for kind, value in (("", found["ours"]), ("_confirmed", found["confirmed"]))
    ]


@contextmanager
def far_away(stack: Stack, round_trip: float) -> Iterator[str]:
    """The stack's ZooKeeper servers, so far away."""
    with ExitStack() as open_proxies:
        addresses = []
        for server in stack.zookeepers:
            proxy = open_proxies.enter_context(Proxy(server.address))
            proxy.delay(round_trip / 2)
            addresses.append(proxy.address)
        yield ",".join(addresses)


def run() -> list[Row]:
    """All rows: name, value, unit, floor, rival, ratio."""
    found: list[Row] = []
    with Stack(zookeepers=1, brokers=0) as stack:
        found += rows("local", uncontended(stack.zookeeper, count=200))
        ours, theirs = hand_offs(stack.zookeeper, count=40)
        found.append(("lock_hand_off_local", ours, "ms", None, theirs, theirs / ours))
    with Stack(zookeepers=3, brokers=0) as stack, far_away(stack, 0.010) as hosts:
        found += rows("10ms_3servers", uncontended(hosts, count=25))
    return found


if __name__ == "__main__":
    for name, value, unit, floor, rival, ratio in run():
        beside = "" if floor is None else f"  floor {floor:.2f}"
        print(f"{name:28} {value:8.2f} {unit}{beside}  kazoo {rival:.2f}  ratio {ratio:.2f}")
