"""Locks of different make behind one face, so that one client program can use them all."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionLoss, KazooException, OperationTimeoutError

from tests.chaos.programs.drifting import Drift
from zkcoord.errors import AcquireTimeout, EnsembleUnavailable, SessionLost, ZkcoordError
from zkcoord.recipes import Lease, Lock, MultiLock, ReadWriteLock, Semaphore
from zkcoord.zk import Session

COUNTER = "/counter-"
_AT_ONCE = 50


class Grant(Protocol):
    """A lock in hand."""

    token: int
    session: int

    def until(self) -> float:
        """Until when it is believed if nothing more is heard; 0 when nobody says."""

    def believed(self) -> bool:
        """Look now."""

    def release(self) -> bool:
        """Give it back; whether that is confirmed. Raises when it was lost."""

    def let_go(self, confirmed: Callable[[], object]) -> None:
        """Give it back without waiting."""


class Client(Protocol):
    """A session and what is done with it."""

    errors: tuple[type[Exception], ...]
    session: int
    timeout: float

    def acquire(self, limit: float | None) -> Grant: ...

    def queue_up(self, granted: Callable[[Grant], object]) -> None:
        """Acquire without a limit and without waiting; `granted` is called somewhere."""

    def come_to_nothing(self, count: int) -> None:
        """So many requests that are too late, refused or given up, while somebody else holds."""

    def choose(self, choice: Sequence[str]) -> None:
        """The locks to take from now on, all at once."""

    def cancel(self) -> None:
        """Give up the acquire that is under way."""

    def read(self, name: str) -> int:
        """A counter."""

    def write(self, name: str, value: int, grant: Grant, *, guarded: bool) -> str:
        """Set a counter: ``ok``, ``refused`` or ``unknown``."""

    def password(self) -> bytes:
        """Of the session."""

    def ask(self) -> None:
        """Send a request and do not wait for its answer."""

    def counts(self) -> dict[str, int]:
        """What it has that could be left behind."""

    def abuse(self, word: str) -> None:
        """From now on every change of the connection's state calls this from its callback."""

    def close(self) -> None: ...


# --- zkcoord -------------------------------------------------------------------------------------


class Weighed:
    """A semaphore, asked for so many permits."""

    def __init__(self, semaphore: Semaphore, weight: int) -> None:
        self._semaphore = semaphore
        self._weight = weight

    def acquire_future(self, limit: float | None) -> Any:
        return self._semaphore.acquire_future(self._weight, limit)


class OurGrant:
    def __init__(self, client: OurClient, lease: Lease) -> None:
        self.lease = lease
        self._drift = client.drift
        self.token = lease.token
        self.session = client.session

    def until(self) -> float:
        return self._drift.true(self.lease.valid_until)

    def believed(self) -> bool:
        try:
            self.lease.check()
        except ZkcoordError:
            return False
        return True

    def release(self) -> bool:
        return bool(self.lease.release_future().result(60))

    def let_go(self, confirmed: Callable[[], object]) -> None:
        self.lease.release_future().on_done(confirmed)


class OurClient:
    errors: tuple[type[Exception], ...] = (ZkcoordError,)

    def __init__(self, hosts: str, timeout: float, name: str, how: dict[str, Any]) -> None:
        self.drift = Drift(how.get("rate", 1.0))
        self._session = Session(hosts, timeout=timeout, name=how["client"])
        self._session.start(30)
        self.timeout = self._session.negotiated_timeout
        self._what = self._recipe(name, how)
        self._future: Any = None

    def _recipe(self, name: str, how: dict[str, Any]) -> Any:
        """Something with `acquire_future(limit)`."""
        mode = how.get("mode", "x")
        if mode == "s":
            semaphore = Semaphore(self._session, name, permits=how["permits"])
            return Weighed(semaphore, how["weight"])
        if mode in {"r", "w"}:
            lock = ReadWriteLock(self._session, name)
            return lock.read if mode == "r" else lock.write
        return Lock(self._session, name)

    def choose(self, choice: Sequence[str]) -> None:
        self._what = MultiLock(self._session, choice)

    @property
    def session(self) -> int:
        return self._session.id

    def acquire(self, limit: float | None) -> OurGrant:
        self._future = self._what.acquire_future(limit)
        return OurGrant(self, self._future.wait())

    def queue_up(self, granted: Callable[[Grant], object]) -> None:
        future = self._what.acquire_future(None)
        future.add_done_callback(lambda done: granted(OurGrant(self, done.result())))

    def come_to_nothing(self, count: int) -> None:
        """Tries, time limits, and requests that are cancelled at once or in the line."""
        for begun in range(0, count, _AT_ONCE):
            asked = [
                (kind, self._what.acquire_future((0, 0.01, None, None)[kind]))
                for kind in (n % 4 for n in range(begun, min(begun + _AT_ONCE, count)))
            ]
            for wanted in (2, 1, 0, 3):
                for future in [future for kind, future in asked if kind == wanted]:
                    if wanted < 2:
                        with contextlib.suppress(AcquireTimeout):
                            future.wait().release()
                    else:
                        future.cancel()

    def cancel(self) -> None:
        if self._future is not None:
            self._future.cancel()

    def read(self, name: str) -> int:
        return int(self._session.nodes.get(COUNTER + name)[0] or b"0")

    def write(self, name: str, value: int, grant: Grant, *, guarded: bool) -> str:
        transaction = self._session.nodes.transaction()
        if guarded:
            assert isinstance(grant, OurGrant)
            grant.lease.guard(transaction)
        try:
            transaction.set(COUNTER + name, b"%d" % value).commit(60)
        except (EnsembleUnavailable, SessionLost):
            return "unknown"
        except ZkcoordError:
            return "refused"
        return "ok"

    def password(self) -> bytes:
        return bytes(self._session.link._client._session_passwd)

    def ask(self) -> None:
        self._session.nodes.exists_future("/")

    def counts(self) -> dict[str, int]:
        return {
            "threads": threading.active_count(),
            "watches": len(self._session.link.watches),
            "bytes of ephemeral paths": self._session.ephemeral_bytes,
        }

    def abuse(self, word: str) -> None:
        def called(_state: str) -> None:
            if word == "acquire":
                self._what.acquire(timeout=0.5).release()
            else:
                self.close()

        self._session.on_state(called)

    def close(self) -> None:
        self._session.close()


# --- kazoo ---------------------------------------------------------------------------------------


class KazooGrant:
    """kazoo gives no token; the node's czxid is read for the history's sake.

    It is used as its documentation says: with a listener, and no work once it is suspended.
    """

    def __init__(self, client: KazooClient, lock: Any) -> None:
        self._client = client
        self._lock = lock
        self._lost = False
        client.add_listener(self._heard)
        self.session = client.client_id[0]
        self.token = 0
        with contextlib.suppress(KazooException):
            stat = client.exists(f"{lock.path}/{lock.node}")
            self.token = 0 if stat is None else stat.czxid

    def until(self) -> float:
        return 0.0

    def _heard(self, state: str) -> None:
        self._lost = self._lost or state != KazooState.CONNECTED

    def believed(self) -> bool:
        if self._lost:
            self._client.remove_listener(self._heard)
        return self._lock.is_acquired and not self._lost

    def release(self) -> bool:
        self._client.remove_listener(self._heard)
        return bool(self._lock.release())

    def let_go(self, confirmed: Callable[[], object]) -> None:
        self.release()
        confirmed()


class PlainKazoo:
    errors: tuple[type[Exception], ...] = (KazooException, OperationTimeoutError)

    def __init__(self, hosts: str, timeout: float, name: str, _how: dict[str, Any]) -> None:
        self._client = KazooClient(hosts, timeout=timeout)
        self._client.start(30)
        self.timeout = timeout
        self._path = f"/locks/{name}"
        self._lock: Any = None

    @property
    def session(self) -> int:
        return (self._client.client_id or (0,))[0]

    def acquire(self, limit: float | None) -> KazooGrant:
        self._lock = self._client.Lock(self._path)
        if limit == 0:
            got = self._lock.acquire(blocking=False)
        else:
            got = self._lock.acquire(timeout=limit)
        if not got:
            raise OperationTimeoutError("not acquired")
        return KazooGrant(self._client, self._lock)

    def queue_up(self, granted: Callable[[Grant], object]) -> None:
        lock = self._client.Lock(self._path)

        def wait() -> None:
            lock.acquire()
            granted(KazooGrant(self._client, lock))

        threading.Thread(target=wait, daemon=True).start()
        settled = threading.Event()
        while not lock.create_tried or lock.node is None:  # in the order of their numbers
            settled.wait(0.002)

    def come_to_nothing(self, count: int) -> None:
        for n in range(count):
            with contextlib.suppress(*self.errors):
                self.acquire(0.01 if n % 2 else 0).release()

    def choose(self, choice: Sequence[str]) -> None:
        raise NotImplementedError("kazoo has no lock of several things")

    def cancel(self) -> None:
        if self._lock is not None:
            self._lock.cancel()

    def read(self, name: str) -> int:
        return int(self._client.get(COUNTER + name)[0] or b"0")

    def write(self, name: str, value: int, grant: Grant, *, guarded: bool) -> str:
        try:
            self._client.retry(self._client.set, COUNTER + name, b"%d" % value)
        except ConnectionLoss:
            return "unknown"
        except KazooException:
            return "refused"
        return "ok"

    def password(self) -> bytes:
        return bytes(self._client.client_id[1])

    def ask(self) -> None:
        self._client.exists_async("/")

    def counts(self) -> dict[str, int]:
        watchers = (*self._client._data_watchers.values(), *self._client._child_watchers.values())
        return {
            "threads": threading.active_count(),
            "listeners": len(self._client.state_listeners),
            "watches": sum(map(len, watchers)),
        }

    def abuse(self, word: str) -> None:
        def called(_state: str) -> None:
            if word == "acquire":
                lock = self._client.Lock(self._path)
                if lock.acquire(timeout=0.5):
                    lock.release()
            else:
                self.close()

        self._client.add_listener(called)

    def close(self) -> None:
        self._client.stop()
        self._client.close()


FLAVOURS: dict[str, Any] = {"zkcoord": OurClient, "kazoo": PlainKazoo}
