"""Locks that are held again, revoked, or held back, as clients of a model world."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from acting_world import ActingWorld
from lock_requests import Ours, is_believed
from lock_scenario import Request, Wish
from zk_client import Clock, connection

from zkcoord.errors import LeaseLost, NotOwner, ReentryRefused
from zkcoord.recipes import Lock, RLock, reentry
from zkcoord.recipes.contenders import Revocation, Standing
from zkcoord.recipes.lasting import MARK
from zkcoord.recipes.reentry import ReentrantLease
from zkcoord.recipes.revocation import revoke_future
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise

NAME = "gpu"
FOLDER = f"/locks/{NAME}"
DELAY_S = 4.0


# --- held again ---------------------------------------------------------------------------------


class Owner:
    """Stands for a thread."""


_stranger = Owner()
_locks: WeakKeyDictionary[Session, RLock] = WeakKeyDictionary()


@contextlib.contextmanager
def acting_as(owner: Owner) -> Iterator[None]:
    """Within it, this thread runs."""
    with mock.patch.object(reentry, "owner", return_value=owner):
        yield


class Again(Ours):
    """A thread that takes a reentrant lock, again and again, and gives it back as often.

    All threads of a client use one lock object.
    """

    def __init__(self, lock: RLock, label: str, timeout: float | None, deeper: int) -> None:
        self.complaints: list[str] = []
        self.acts = deeper
        self.tenures = lock._tenures
        self._lock = lock
        self._owner = Owner()
        self._depth = 1
        lock._label = label
        with acting_as(self._owner):
            super().__init__(lock.acquire_future(timeout), (NAME,))

    @property
    def _held(self) -> ReentrantLease:
        assert isinstance(self._lease, ReentrantLease)
        return self._lease

    def believed(self) -> bool:
        return self.granted and self._depth > 0 and is_believed(self._held)

    def act(self) -> None:
        """A stranger tries to release; then the owner acquires once more, without a request."""
        believed = self.believed()
        with acting_as(_stranger):
            try:
                self._held.release_future()
                self.complaints.append("ended: a stranger could release")
            except NotOwner:
                pass
        with acting_as(self._owner):
            try:
                inner = self._lock.acquire_future(1.0).result(0)
            except LeaseLost:
                if believed:
                    self.complaints.append("ended: the owner could not acquire again")
            except (TimeoutError, ReentryRefused):
                self.complaints.append("ended: the owner waits for itself")
            else:
                self._depth += 1
                if not believed or inner.token != self.token:
                    self.complaints.append("ended: an inner hold is not the outer one")

    def release(self) -> None:
        believed = self.believed()
        self._depth -= 1
        with acting_as(self._owner), contextlib.suppress(LeaseLost):
            self._held.release_future()
        self.finished = self._depth == 0
        if believed and self._depth and not self.believed():
            self.complaints.append("ended: an inner release ended the outer hold")


def again(*, deeper: int = 2, timeout: float | None = None, may_cancel: bool = False) -> Wish:
    """A wish for a reentrant lock, of a thread of its own."""

    def begin(session: Session, label: str) -> Request:
        lock = _locks.get(session)
        if lock is None:
            lock = _locks[session] = RLock(session, NAME)
        return Again(lock, label, timeout, deeper)

    return Wish(begin, may_cancel)


# --- revoked ------------------------------------------------------------------------------------


class Revocable(Ours):
    """A holder that lets go when it is asked."""

    busy = True  # it holds until then

    def __init__(self, session: Session, label: str) -> None:
        self.complaints: list[str] = []
        self._heard: list[Revocation] = []
        lock = Lock(session, NAME, label=label)
        super().__init__(lock.acquire_future(on_revoke=self._asked), (NAME,))

    def _asked(self, asked: Revocation) -> None:
        if asked in self._heard:
            self.complaints.append("order: it was asked twice for one revocation")
        self._heard.append(asked)
        if self._lease is not None and not self.finished:
            self.release()


class Revoking:
    """Somebody asks the holder to let go; it holds nothing."""

    what: Any = ()
    token = 0
    finished = True
    granted = False

    def __init__(self, promise: Promise[list[Standing]]) -> None:
        self._promise = promise

    @property
    def asked(self) -> list[str]:
        """The nodes of those who are known to have been asked."""
        if not self._promise.done() or self._promise.exception() is not None:
            return []
        return [f"{FOLDER}/{one.node}" for one in self._promise.result()]

    def settled(self) -> bool:
        return self._promise.done()

    def believed(self) -> bool:
        return False

    def release(self) -> None: ...

    def cancel(self) -> None: ...


def revocable() -> Wish:
    """A wish for a lock that is given back when somebody asks."""
    return Wish(Revocable)


def revoke() -> Wish:
    """A wish that whoever holds lets go."""

    def begin(session: Session, _label: str) -> Request:
        return Revoking(revoke_future(session, NAME, "maintenance", timeout=1e6))

    return Wish(begin)


# --- held back ----------------------------------------------------------------------------------


class Delayed(Ours):
    """A holder of a lock with a delay; one that is `busy` gives it back in the end only."""

    busy = False

    @property
    def lost(self) -> bool:
        """Whether it was granted and did not give it back."""
        return self.granted and not self.finished


def delayed(*, timeout: float | None = None, may_cancel: bool = False, keeps: bool = False) -> Wish:
    """A wish for a lock that holds the next one back when it is lost."""

    def begin(session: Session, label: str) -> Request:
        lock = Lock(session, NAME, label=label, lock_delay=DELAY_S)
        request = Delayed(lock.acquire_future(timeout), (NAME,))
        request.busy = keeps
        return request

    return Wish(begin, may_cancel)


# --- what must hold -----------------------------------------------------------------------------


class HoldWorld(ActingWorld):
    """A world that remembers which holders' nodes went without a release."""

    def __init__(self, scenario: Any) -> None:
        self._lost_at: dict[int, float] = {}
        self._seen: set[int] = set()
        super().__init__(scenario)

    def looked(self) -> None:
        standing = {node.czxid for node in self.ensemble.head.values()}
        grants = [
            request
            for client in self.clients
            for request in client.requests
            if isinstance(request, Delayed) and request.granted
        ]
        for request in grants:
            if request.token not in self._seen:
                self._seen.add(request.token)
                waited = Clock.now - max(self._lost_at.values(), default=-1e9)
                if waited < DELAY_S:
                    self.wrong.append(f"delay: granted {waited:.1f} s after an unclean end")
            if request.lost and request.token not in standing:
                self._lost_at.setdefault(request.token, Clock.now)

    def quiet(self) -> str:
        head = self.ensemble.head
        alive = {connection(client.session).session for client in self.clients}
        for client in self.clients:
            for request in client.requests:
                for path in request.asked if isinstance(request, Revoking) else ():
                    if path in head and head[path].owner in alive:
                        return "liveness: a holder was asked to let go, and holds still"
        return ""

    def _overslept(self) -> str:
        held_back = f"{FOLDER}/{MARK}" in self.ensemble.head  # a timer sees to that
        return self.quiet() if held_back and not self.forsaken() else super()._overslept()

    def _leftovers(self) -> list[str]:
        for client in self.clients:
            for request in client.requests:
                if isinstance(request, Again) and request.tenures._by_owner:
                    self.wrong.append("leftovers: an owner that holds nothing is remembered")
        mark = self.ensemble.head.get(f"{FOLDER}/{MARK}")
        if mark is not None and not any(txn.closes for txn in self.ensemble.log):
            self.wrong.append("leftovers: the mark of a hold that was given back")
        return super()._leftovers()
