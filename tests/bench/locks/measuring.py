"""What is measured, and how: everybody in one run, taking turns, with one clock."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient

from zkcoord.local import Proxy, Stack

Series = Callable[[int], list[float]]
"""Does its work so many times and tells what each took, in milliseconds."""

ROUNDS = 5
SHORT = bool(os.environ.get("ZKCOORD_BENCH_SHORT"))


@dataclass
class Spread:
    """What many samples say, in `unit`."""

    p50: float
    mean: float
    p99: float
    samples: int

    @staticmethod
    def of(values: list[float]) -> Spread:
        ordered = sorted(values)
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        return Spread(statistics.median(ordered), statistics.fmean(ordered), p99, len(ordered))


@dataclass
class Goal:
    """What a row has to show: `value` at most (or at least) `bound`."""

    what: str
    value: float
    bound: float
    unit: str = "x"
    at_least: bool = True

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass
class Row:
    """One line of the table: everybody's figures for one kind of work."""

    name: str
    what: str
    unit: str
    spreads: dict[str, Spread]
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def ratio(self, rival: str, ours: str = "zkcoord") -> float:
        """How many times faster we are, by the medians."""
        return self.spreads[rival].p50 / self.spreads[ours].p50

    def goal(self, rival: str, bound: float, ours: str = "zkcoord") -> None:
        """To be so many times faster than a rival, when it was there."""
        if rival in self.spreads:
            self.goals.append(Goal(f"faster than {rival}", self.ratio(rival, ours), bound))


def timed(work: Callable[[], object]) -> Series:
    """A series of calls of `work`."""

    def series(count: int) -> list[float]:
        taken = []
        for _ in range(count):
            begun = time.perf_counter()
            work()
            taken.append((time.perf_counter() - begun) * 1000)
        return taken

    return series


def taking_turns(
    works: dict[str, Series], count: int, *, warm_up: int, rounds: int = ROUNDS
) -> dict[str, Spread]:
    """All samples of each after its warm-up; every round has all of them, one after the other."""
    if SHORT:
        count, warm_up = max(5, count // 10), max(5, warm_up // 10)
    found: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work(warm_up)
    for _ in range(rounds):
        for name, work in works.items():
            found[name] += work(count)
    return {name: Spread.of(values) for name, values in found.items()}


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait, for half a minute at most, and cheaply."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@contextmanager
def kazoo_client(hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts, timeout=10)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def far_away(addresses: list[str], round_trip: float) -> Iterator[list[str]]:
    """The same servers, so many seconds away."""
    with ExitStack() as open_proxies:
        found = []
        for address in addresses:
            proxy = open_proxies.enter_context(Proxy(address))
            proxy.delay(round_trip / 2)
            found.append(proxy.address)
        yield found


@contextmanager
def servers(count: int) -> Iterator[Stack]:
    """ZooKeeper servers of our own."""
    with Stack(zookeepers=count, brokers=0) as stack:
        yield stack


def plain(value: Any) -> Any:
    """Dataclasses as what JSON knows; goals say whether they are met."""
    if isinstance(value, Goal):
        return {**vars(value), "met": value.met}
    if isinstance(value, (Row, Spread)):
        return {key: plain(item) for key, item in vars(value).items()}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value
