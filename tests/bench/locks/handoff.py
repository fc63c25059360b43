"""From the release in one session to the grant in another."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

from kazoo.client import KazooClient

from tests.bench.locks import wire
from tests.bench.locks.measuring import (
    Goal,
    Row,
    Series,
    kazoo_client,
    servers,
    taking_turns,
    wait_until,
)
from tests.bench.locks.rivals import EtcdClient, curator, where_it_runs
from tests.bench.locks.sides import FarSide, Side, two_sides
from tests.bench.locks.uncontended import etcd_beside
from zkcoord import Lock, Session

FLOOR = "floor: delete + event + read"
LINE = 8
IDLE_S = 0.02  # before each hand-off, for everybody: caches and cores are as cold


def in_a_pair(one: Session, two: Session) -> Series:
    """One waiter: nobody else can be in front, so the event alone is the grant."""
    first, second = Lock(one, "pair"), Lock(two, "pair")

    def once() -> float:
        lease = first.acquire(timeout=30)
        granted: list[float] = []
        future = second.acquire_future(timeout=30)
        future.on_done(lambda: granted.append(time.perf_counter()))
        wait_until(lambda: len(two.link.watches) == 1)
        time.sleep(IDLE_S)
        begun = time.perf_counter()
        lease.release()
        future.wait().release(timeout=30)
        return (granted[0] - begun) * 1000

    return lambda count: [once() for _ in range(count)]


def in_a_line(near: Side, far: FarSide) -> Series:
    """A line of sessions of two processes by turns, as a fleet has them: each listed others in
    front, so a hand-off reads once."""

    def ask(place: int) -> None:
        if place % 2:
            far.send("ask", place // 2)
            far.take()
        else:
            near.ask(place // 2)

    def hand_on(place: int) -> float:
        """The one in front releases; how long until this one has it, in milliseconds."""
        mine, other = place // 2, (place - 1) // 2
        if place % 2:
            far.send("granted", mine)
            time.sleep(IDLE_S)
            begun = near.release(other)
            stamp = far.take()
        else:
            time.sleep(IDLE_S)
            far.send("release", other)
            stamp = near.granted(mine)
            begun = far.take()
        return (stamp - begun) * 1000

    def once() -> list[float]:
        for place in range(LINE):
            ask(place)
        taken = [hand_on(place) for place in range(1, LINE)]
        far.send("release", (LINE - 1) // 2)
        far.take()
        return taken[1:]  # the first waits in a pair, see there

    def series(count: int) -> list[float]:
        taken: list[float] = []
        while len(taken) < count:
            taken += once()
        return taken

    return series


def kazoos(one: KazooClient, two: KazooClient) -> Series:
    first, second = one.Lock("/hand-off-kazoo"), two.Lock("/hand-off-kazoo")

    def once() -> float:
        first.acquire()
        granted: list[float] = []

        def wait() -> None:
            second.acquire()
            granted.append(time.perf_counter())

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: len(first.contenders()) == 2)
        time.sleep(IDLE_S)  # its watch is set a moment after it shows up
        begun = time.perf_counter()
        first.release()
        thread.join()
        second.release()
        return (granted[0] - begun) * 1000

    return lambda count: [once() for _ in range(count)]


def floor(one: wire.Wire, two: wire.Wire) -> Series:
    """Delete in one session; in the other the event comes, and one listing is read."""
    one.folder("/hand-off-floor")

    def once() -> float:
        (made,) = one.ask(wire.create("/hand-off-floor"))
        path = wire.path_of(made)
        two.ask(wire.exists(path, watch=True))
        time.sleep(IDLE_S)
        begun = time.perf_counter()
        one.send(wire.delete(path))
        two.event()
        two.ask(wire.children("/hand-off-floor"))
        taken = time.perf_counter() - begun
        one.reply()
        return taken * 1000

    return lambda count: [once() for _ in range(count)]


def hand_off() -> Row:
    notes: list[str] = []
    with ExitStack() as stack:
        hosts = stack.enter_context(servers(1)).zookeeper
        sessions = [stack.enter_context(Session(hosts, timeout=10)) for _ in range(2)]
        sides = stack.enter_context(two_sides(hosts, "line", LINE // 2))
        bare = [stack.enter_context(wire.Wire(hosts)) for _ in range(2)]
        clients = [stack.enter_context(kazoo_client(hosts)) for _ in range(2)]
        works = {
            FLOOR: floor(*bare),
            "zkcoord": in_a_line(*sides),
            "zkcoord, one waiter, one process": in_a_pair(*sessions),
            "kazoo": kazoos(*clients),
        }
        with where_it_runs(notes):
            driver = stack.enter_context(curator(hosts))
            works["curator"] = lambda count: [
                one * 1000 for one in driver.hand_offs("/hand-off-curator", count).rounds
            ]
        etcd = stack.enter_context(etcd_beside(1, notes))
        if etcd is not None:
            works["etcd"] = stack.enter_context(EtcdClient(etcd)).hand_offs
        spreads = taking_turns(works, 25, warm_up=25, rounds=4)
    what = "from the release in one session to the grant in another, one local server"
    row = Row("hand-off", what, "ms", spreads, notes=notes)
    share = spreads["zkcoord"].p50 / spreads[FLOOR].p50
    row.goals.append(Goal("of the floor", share, 1.3, at_least=False))
    return row
