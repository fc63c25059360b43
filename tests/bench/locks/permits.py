"""One of two permits of a semaphore, without a rival for it, one after the other."""

from __future__ import annotations

from contextlib import ExitStack

from tests.bench.locks import wire
from tests.bench.locks.measuring import Row, kazoo_client, servers, taking_turns, timed
from tests.bench.locks.rivals import curator, where_it_runs
from zkcoord import Session
from zkcoord.recipes import Semaphore

FLOOR_PATH = "/bench-floor"


def semaphore() -> Row:
    notes: list[str] = []
    with ExitStack() as stack:
        hosts = stack.enter_context(servers(1)).zookeeper
        session = stack.enter_context(Session(hosts, timeout=10))
        ours = Semaphore(session, "bench", permits=2)
        theirs = stack.enter_context(kazoo_client(hosts)).Semaphore("/bench-kazoo", max_leases=2)

        def kazoos() -> None:
            theirs.acquire()
            theirs.release()

        bare = stack.enter_context(wire.Wire(hosts))
        bare.folder(FLOOR_PATH)

        def floor() -> None:
            asked = wire.create(FLOOR_PATH), wire.children(FLOOR_PATH), wire.read(FLOOR_PATH)
            made, *_ = bare.ask(*asked)
            bare.ask(wire.delete(wire.path_of(made)))

        works = {
            "floor: 2 flights": timed(floor),
            "zkcoord": timed(lambda: ours.acquire(timeout=30).release()),
            "zkcoord, confirmed": timed(lambda: ours.acquire(timeout=30).release(timeout=30)),
            "kazoo": timed(kazoos),
        }
        with where_it_runs(notes):
            driver = stack.enter_context(curator(hosts))
            works["curator"] = lambda count: [
                one * 1000 for one in driver.permits("/bench-curator", count).rounds
            ]
        spreads = taking_turns(works, 200, warm_up=1000)
    what = "acquire + release of one of two permits, one local server"
    row = Row("semaphore, local", what, "ms", spreads, notes=notes)
    row.goal("kazoo", 4.0)
    return row
