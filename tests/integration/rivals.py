"""The locks of kazoo and Curator behind one face, for tests of our lock in their layouts."""

import threading
from queue import SimpleQueue
from typing import Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, KazooException, LockTimeout

from tests.curator.driver import CuratorDriver, CuratorMutex

ROOT = "/app/locks"
PATH = f"{ROOT}/gpu"


class Turn(Protocol):
    """One request of the other library."""

    def wait(self, seconds: float = 20.0) -> bool: ...

    def waits(self) -> bool: ...

    def release(self) -> None: ...


class KazooTurn:
    """kazoo's Lock needs a thread for each waiter."""

    def __init__(self, client: KazooClient, timeout: float | None, identifier: str) -> None:
        self.lock = client.Lock(PATH, identifier)
        self._answers: SimpleQueue[bool] = SimpleQueue()
        self.thread = threading.Thread(target=self._acquire, args=(timeout,), daemon=True)
        self.thread.start()

    def _acquire(self, timeout: float | None) -> None:
        try:
            self._answers.put(self.lock.acquire(timeout=timeout))
        except LockTimeout:
            self._answers.put(False)
        except (KazooException, ConnectionClosedError):
            pass  # its client was stopped

    def wait(self, seconds: float = 20.0) -> bool:
        return self._answers.get(timeout=seconds)

    def waits(self) -> bool:
        return self._answers.empty()

    def release(self) -> None:
        self.thread.join(10)
        assert self.lock.release()


class Rival:
    """The other library in a session of its own; `ask` queues up and returns at once."""

    layout: str

    def ask(self, timeout: float | None = None) -> Turn:
        raise NotImplementedError

    def crash(self) -> None:
        """Its session ends although it holds or waits."""
        raise NotImplementedError

    def close(self) -> None:
        """The test is over."""


class Kazoo(Rival):
    layout = "kazoo"

    def __init__(self, hosts: str) -> None:
        self.client = KazooClient(hosts, timeout=4)
        self.client.start(timeout=15)

    def ask(self, timeout: float | None = None) -> KazooTurn:
        return KazooTurn(self.client, timeout, "k1")

    def crash(self) -> None:
        self.close()

    def close(self) -> None:
        self.client.stop()
        self.client.close()


class Curator(Rival):
    """One process serves all tests but those that kill it."""

    layout = "curator"
    shared: CuratorDriver | None = None

    def __init__(self, hosts: str) -> None:
        host, self.chroot = hosts.split("/")
        if Curator.shared is None:
            Curator.shared = CuratorDriver(host, timeout=4)
        self.driver = Curator.shared

    def ask(self, timeout: float | None = None) -> CuratorMutex:
        return self.driver.ask(f"/{self.chroot}{PATH}", timeout)

    def crash(self) -> None:
        self.driver.kill()
        Curator.shared = None
