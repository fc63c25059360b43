"""64 locks at once on one session, each acquired and released again and again."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from contextlib import ExitStack
from typing import Any

from tests.bench.locks import wire
from tests.bench.locks.measuring import Goal, Row, Series, kazoo_client, servers, taking_turns
from tests.bench.locks.rivals import curator, where_it_runs
from zkcoord import Lock, Session
from zkcoord.zk.requests import EPHEMERAL, SEQUENTIAL, Create, Delete, GetChildren

LOCKS = 64
CEILING = "ceiling: create + delete"
CEILING_LISTING = "ceiling: create + list + delete"
BARE = "bare socket: create + delete"
BARE_LISTING = "bare socket: create + list + delete"


def ours(session: Session) -> Series:
    """Acquisitions a second; each grant releases and asks again."""
    locks = [Lock(session, f"bench-{number}") for number in range(LOCKS)]

    def once(total: int) -> float:
        left, ended = [total, LOCKS], threading.Event()

        def again(lock: Lock) -> None:
            future = lock.acquire_future(30)

            def granted() -> None:
                future.result().release()
                left[0] -= 1
                if left[0] >= LOCKS:
                    again(lock)
                else:
                    left[1] -= 1
                    if not left[1]:
                        ended.set()

            future.on_done(granted)

        begun = time.perf_counter()
        for lock in locks:
            again(lock)
        assert ended.wait(120)
        return total / (time.perf_counter() - begun)

    return lambda count: [once(count)]


def ceiling(session: Session, *, listing: bool) -> Series:
    """As many nodes at a time, created and deleted on our session, and no lock around them.

    With `listing` the very requests that locks send, and nothing is made of the answers.
    """
    root = f"/bench-ceiling-{listing}"
    folders = [f"{root}/{number}" for number in range(LOCKS)]
    session.nodes.create(root, b"")
    for folder in folders:
        session.nodes.create(folder, b"")
    link = session.link

    def once(total: int) -> float:
        left, ended = [total, LOCKS], threading.Event()

        def again(folder: str) -> None:
            paths: list[str] = []

            def made(result: Any, _: object) -> None:
                paths.append(result[0])
                if not listing:
                    listed(None, None)

            def listed(_: object, __: object) -> None:
                link.call(Delete(paths[0]), deleted)

            def deleted(_: object, __: object) -> None:
                left[0] -= 1
                if left[0] >= LOCKS:
                    again(folder)
                else:
                    left[1] -= 1
                    if not left[1]:
                        ended.set()

            node = Create(f"{folder}/xAAAAAAAAAAA.0.", b"x" * 60, EPHEMERAL | SEQUENTIAL)
            link.call(node, made)
            if listing:
                link.call(GetChildren(folder), listed)

        begun = time.perf_counter()
        for folder in folders:
            again(folder)
        assert ended.wait(120)
        return total / (time.perf_counter() - begun)

    return lambda count: [once(count)]


def bare(link: wire.Wire, *, listing: bool) -> Series:
    """As many nodes at a time, created and deleted with nothing in between."""
    folders = [f"/bench-bare/{number}" for number in range(LOCKS)]
    for folder in folders:
        link.folder(folder)

    def enter(folder: str) -> list[wire.Request]:
        return [wire.create(folder), wire.children(folder)] if listing else [wire.create(folder)]

    def once(total: int) -> float:
        begun = time.perf_counter()
        waiting: deque[tuple[str, str]] = deque()
        for folder in folders:
            link.send(*enter(folder))
            waiting.append(("made", folder))
        left = total
        while waiting:
            reply = link.reply()
            state, folder = waiting.popleft()
            if state == "made":
                if listing:
                    link.reply()
                link.send(wire.delete(wire.path_of(reply)))
                waiting.append(("deleted", folder))
            else:
                left -= 1
                if left >= LOCKS:
                    link.send(*enter(folder))
                    waiting.append(("made", folder))
        return total / (time.perf_counter() - begun)

    return lambda count: [once(count)]


def counting_cpu(series: Series, spent: list[float]) -> Series:
    """The same; adds what this process, not the servers, worked for each, in microseconds."""

    def counted(count: int) -> list[float]:
        begun = time.process_time()
        found = series(count)
        spent.append((time.process_time() - begun) / count * 1e6)
        return found

    return counted


def kazoos(client: object) -> Series:
    """A thread for each lock: kazoo's locks block."""

    def once(total: int) -> float:
        def work(number: int) -> None:
            lock = client.Lock(f"/bench-kazoo-{number}")  # type: ignore[attr-defined]
            for _ in range(total // LOCKS):
                lock.acquire()
                lock.release()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(LOCKS)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return total / (time.perf_counter() - begun)

    return lambda count: [once(count)]


def many() -> Row:
    notes: list[str] = []
    spent: dict[str, list[float]] = {CEILING: [], "zkcoord": []}
    with ExitStack() as stack:
        hosts = stack.enter_context(servers(1)).zookeeper
        works = {
            BARE: bare(stack.enter_context(wire.Wire(hosts)), listing=False),
            BARE_LISTING: bare(stack.enter_context(wire.Wire(hosts)), listing=True),
            CEILING: ceiling(stack.enter_context(Session(hosts, timeout=10)), listing=False),
            CEILING_LISTING: ceiling(stack.enter_context(Session(hosts, timeout=10)), listing=True),
            "zkcoord": ours(stack.enter_context(Session(hosts, timeout=10))),
            "kazoo": kazoos(stack.enter_context(kazoo_client(hosts))),
        }
        with where_it_runs(notes):
            driver = stack.enter_context(curator(hosts))

            def curators(count: int) -> list[float]:
                found = driver.bench("/bench-curator-{}", count // LOCKS, threads=LOCKS)
                return [len(found.rounds) / found.wall]

            works["curator"] = curators
        for name, cpu in spent.items():
            works[name] = counting_cpu(works[name], cpu)
        spreads = taking_turns(works, 1024, warm_up=2560, rounds=10)
    bare_cpu, our_cpu = (statistics.median(cpu) for cpu in spent.values())
    notes.append(
        f"an acquire + release takes {our_cpu:.0f} µs of the client's CPU, its create + delete "
        f"alone on the same session {bare_cpu:.0f} µs: the rest is what makes a lock of them "
        "(place, lease, deadline, promise), and client and server share the cores"
    )
    notes.append(
        "a session that was the last to hold a lock does not list: the number of its new node "
        "proves that nobody is in front, see `zkcoord/core/vacancy.py`"
    )
    what = f"{LOCKS} locks at once on one session, acquired and released again and again"
    row = Row(f"{LOCKS} locks at once", what, "a second", spreads, notes=notes)
    row.goals += [
        Goal(f"of {name}", spreads["zkcoord"].p50 / spreads[name].p50, 0.8)
        for name in (CEILING, CEILING_LISTING, BARE)
    ]
    return row
