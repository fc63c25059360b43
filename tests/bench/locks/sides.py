"""Sessions of two processes, as a fleet has them, that hand one lock to each other."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any

from tests.bench.locks.measuring import wait_until
from zkcoord import Lease, Lock, Promise, Session

STOP_S = 10.0


class Side:
    """One process's sessions, each with one request at a time for the same lock."""

    def __init__(self, hosts: str, name: str, count: int) -> None:
        self._name = name
        self._stack = ExitStack()
        sessions = [Session(hosts, timeout=10) for _ in range(count)]
        self._sessions = [self._stack.enter_context(session) for session in sessions]
        self._asked: dict[int, Promise[Lease]] = {}
        self._stamps: dict[int, float] = {}

    def ask(self, number: int) -> None:
        """Queue up with this session; returns once it holds, or watches who is in front."""
        session = self._sessions[number]
        promise = Lock(session, self._name).acquire_future(timeout=30)
        self._stamps.pop(number, None)
        promise.on_done(lambda: self._stamps.setdefault(number, time.perf_counter()))
        self._asked[number] = promise
        wait_until(lambda: promise.done() or len(session.link.watches) == 1)

    def granted(self, number: int) -> float:
        """Wait for the grant; when it came."""
        self._asked[number].wait()
        return self._stamps[number]

    def release(self, number: int) -> float:
        """When the release began."""
        lease = self._asked.pop(number).result()
        begun = time.perf_counter()
        lease.release()
        return begun

    def close(self) -> None:
        self._stack.close()


def _serve(connection: Connection, hosts: str, name: str, count: int) -> None:
    side = Side(hosts, name, count)
    connection.send(None)
    while (order := connection.recv()) is not None:
        method, number = order
        connection.send(getattr(side, method)(number))
    side.close()


class FarSide:
    """A side in another process. What is sent is answered in order: `take` the answer of each."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, method: str, number: int) -> None:
        self._connection.send((method, number))

    def take(self) -> Any:
        if not self._connection.poll(60):
            raise TimeoutError("the other process does not answer")
        return self._connection.recv()


@contextmanager
def two_sides(hosts: str, name: str, count: int) -> Iterator[tuple[Side, FarSide]]:
    """`count` sessions here, and as many in another process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, hosts, name, count), daemon=True)
    process.start()
    near = Side(hosts, name, count)
    far = FarSide(ours)
    try:
        far.take()
        yield near, far
        ours.send(None)
        process.join(STOP_S)
    finally:
        process.kill()
        near.close()
