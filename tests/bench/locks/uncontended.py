"""Acquire and release without a rival for it, one after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from tests.bench.locks import wire
from tests.bench.locks.measuring import (
    Goal,
    Row,
    Series,
    far_away,
    kazoo_client,
    servers,
    taking_turns,
    timed,
)
from tests.bench.locks.rivals import EtcdClient, curator, etcd_servers, where_it_runs
from zkcoord import Lock, Session

FLOOR = "floor: 2 flights"
CONFIRMED = "zkcoord, confirmed"
ROUND_TRIP_S = 0.010


def ours(session: Session) -> dict[str, Series]:
    """With the release in the background, as ``with lock.hold()`` has it, and waited for."""
    lock = Lock(session, "bench")
    return {
        "zkcoord": timed(lambda: lock.acquire(timeout=30).release()),
        CONFIRMED: timed(lambda: lock.acquire(timeout=30).release(timeout=30)),
    }


def kazoos(client: KazooClient) -> Series:
    lock = client.Lock("/bench-kazoo")

    def once() -> None:
        lock.acquire()
        lock.release()

    return timed(once)


def floor(bare: wire.Wire) -> Series:
    bare.folder("/bench-floor")
    return timed(lambda: wire.lock_once(bare, "/bench-floor"))


@contextmanager
def contestants(
    hosts: str, etcd: list[str] | None, notes: list[str]
) -> Iterator[dict[str, Series]]:
    """Everybody who can run here, connected."""
    with ExitStack() as stack:
        works = {FLOOR: floor(stack.enter_context(wire.Wire(hosts)))}
        works |= ours(stack.enter_context(Session(hosts, timeout=10)))
        works["kazoo"] = kazoos(stack.enter_context(kazoo_client(hosts)))
        with where_it_runs(notes):
            driver = stack.enter_context(curator(hosts))
            works["curator"] = lambda count: [
                one * 1000 for one in driver.bench("/bench-curator", count).rounds
            ]
        if etcd is not None:
            works["etcd"] = stack.enter_context(EtcdClient(etcd)).locks
        yield works


@contextmanager
def etcd_beside(count: int, notes: list[str]) -> Iterator[list[str] | None]:
    """The addresses of as many etcd members, or None where they cannot run."""
    with ExitStack() as stack:
        found = None
        with where_it_runs(notes):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            found = stack.enter_context(etcd_servers(count, Path(folder)))
        yield found


def local() -> Row:
    notes: list[str] = []
    with (
        servers(1) as stack,
        etcd_beside(1, notes) as etcd,
        contestants(stack.zookeeper, etcd, notes) as works,
    ):
        spreads = taking_turns(works, 200, warm_up=1000)
    row = Row("lock, local", "acquire + release, one local server", "ms", spreads, notes=notes)
    row.goal("kazoo", 2.0)
    row.goal("curator", 1.0)
    return row


def far() -> Row:
    notes: list[str] = []
    with servers(3) as stack, etcd_beside(3, notes) as etcd, ExitStack() as proxies:
        addresses = [server.address for server in stack.zookeepers]
        near = proxies.enter_context(far_away(addresses, ROUND_TRIP_S))
        far_etcd = etcd and proxies.enter_context(far_away(etcd, ROUND_TRIP_S))
        with contestants(",".join(near), far_etcd, notes) as works:
            spreads = taking_turns(works, 20, warm_up=20)
    what = "acquire + release, three servers 10 ms away"
    row = Row("lock, 3 servers, 10 ms", what, "ms", spreads, notes=notes)
    row.goals.append(Goal("visible", spreads["zkcoord"].p50, 20.0, "ms", at_least=False))
    row.goal("kazoo", 3.5)
    row.goal("curator", 2.5)
    return row
