"""Our recipes as clients of a model world, and the rules that their grants must obey."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from lock_scenario import Request, Wish

from zkcoord.recipes import Lock, MultiLock, ReadWriteLock, Semaphore
from zkcoord.recipes.lease import Lease
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise


class Ours:
    """A promise of a lease."""

    def __init__(self, promise: Promise[Any], what: Any) -> None:
        self.what = what
        self.token = 0
        self.finished = False
        self.error: BaseException | None = None
        self._promise = promise
        self._lease: Lease | None = None
        self._settled = False
        promise.on_done(self._done)

    def _done(self) -> None:
        self._settled = True
        if self._promise.cancelled():
            return
        self.error = self._promise.exception()
        if self.error is None:
            lease: Lease = self._promise.result()
            self._lease, self.token = lease, lease.token

    @property
    def granted(self) -> bool:
        return self._lease is not None

    def settled(self) -> bool:
        return self._settled

    def believed(self) -> bool:
        return self._lease is not None and is_believed(self._lease)

    def release(self) -> None:
        assert self._lease is not None
        self.finished = True
        self._lease.leave(quiet=True)

    def cancel(self) -> None:
        self._promise.cancel()


class Downgraded(Ours):
    """A write lease that becomes a read lease before it is given back."""

    def __init__(self, lock: ReadWriteLock, name: str) -> None:
        self._lock = lock
        self._reading: Lease | None = None
        super().__init__(lock.write.acquire_future(), ("write", name))

    def believed(self) -> bool:
        if self._reading is not None:
            return is_believed(self._reading)
        return super().believed()

    def release(self) -> None:
        assert self._lease is not None
        if self._reading is not None:
            self.finished = True
            self._reading.leave(quiet=True)
        elif not super().believed():
            super().release()
        else:
            self._reading = self._lock.read.acquire_future().result(0)
            self.what = ("read", self.what[1])
            self._lease.leave(quiet=True)


def is_believed(lease: Lease) -> bool:
    """Whether `check` would return quietly; to look changes nothing."""
    if lease._reason:
        return False
    belief = lease._epoch.belief
    ended = belief._ended
    over = lease._over()
    belief._ended = ended
    return not over


def _wish(
    ask: Callable[[Session, str], Promise[Any]], what: Any, *, may_cancel: bool = False
) -> Wish:
    def begin(session: Session, label: str) -> Request:
        return Ours(ask(session, label), what)

    return Wish(begin, may_cancel)


def lock(name: str = "gpu", *, timeout: float | None = None, may_cancel: bool = False) -> Wish:
    """A wish for a lock."""
    return _wish(
        lambda session, label: Lock(session, name, label=label).acquire_future(timeout),
        (name,),
        may_cancel=may_cancel,
    )


def locks(*names: str, timeout: float | None = None, may_cancel: bool = False) -> Wish:
    """A wish for several locks at once."""
    return _wish(
        lambda session, label: MultiLock(session, names, label=label).acquire_future(timeout),
        names,
        may_cancel=may_cancel,
    )


def read(name: str = "gpu", *, timeout: float | None = None, may_cancel: bool = False) -> Wish:
    """A wish to read."""
    return _wish(
        lambda session, label: ReadWriteLock(session, name, label=label).read.acquire_future(
            timeout
        ),
        ("read", name),
        may_cancel=may_cancel,
    )


def write(name: str = "gpu", *, timeout: float | None = None, may_cancel: bool = False) -> Wish:
    """A wish to write."""
    return _wish(
        lambda session, label: ReadWriteLock(session, name, label=label).write.acquire_future(
            timeout
        ),
        ("write", name),
        may_cancel=may_cancel,
    )


def downgrade(name: str = "gpu") -> Wish:
    """A wish to write, and then to read on."""

    def begin(session: Session, label: str) -> Request:
        return Downgraded(ReadWriteLock(session, name, label=label), name)

    return Wish(begin)


def permits(
    weight: int = 1, limit: int = 2, *, timeout: float | None = None, may_cancel: bool = False
) -> Wish:
    """A wish for permits of a semaphore."""

    def ask(session: Session, label: str) -> Promise[Any]:
        semaphore = Semaphore(session, "gpu", permits=limit, root="/locks", label=label)
        return semaphore.acquire_future(weight, timeout)

    return _wish(ask, (weight, limit), may_cancel=may_cancel)


class OneByOne(Ours):
    """Several locks, one after the other in the order given: what a MultiLock saves from."""

    def __init__(self, session: Session, label: str, *names: str) -> None:
        self._session, self._label, self._names = session, label, names
        self._got: list[Lease] = []
        self.what: Any = ()
        self.token = 0
        self.finished = False
        self.error = None
        self._next()

    def _next(self) -> None:
        name = self._names[len(self._got)]
        lock = Lock(self._session, name, label=self._label)
        promise = lock.acquire_future()
        promise.on_done(lambda: self._one(promise))

    def _one(self, promise: Promise[Lease]) -> None:
        self.error = promise.exception()
        if self.error is None:
            self._got.append(promise.result())
            self.what = self._names[: len(self._got)]
            if len(self._got) < len(self._names):
                self._next()

    @property
    def granted(self) -> bool:
        return len(self._got) == len(self._names)

    def settled(self) -> bool:
        return self.granted or self.error is not None

    def believed(self) -> bool:
        return self.granted and all(map(is_believed, self._got))

    def release(self) -> None:
        self.finished = True
        for lease in self._got:
            lease.leave(quiet=True)

    def cancel(self) -> None:
        raise NotImplementedError


def one_by_one(*names: str) -> Wish:
    """A wish for several locks, one after the other."""
    return Wish(lambda session, label: OneByOne(session, label, *names))


# --- rules: what may be held at once ----------------------------------------------------------


def alone(held: Sequence[Any]) -> str:
    """One holder for each name."""
    names = Counter(name for names in held for name in names)
    twice = [name for name, count in names.items() if count > 1]
    return f"{twice[0]} is held twice" if twice else ""


def one_writer_or_readers(held: Sequence[Any]) -> str:
    """A writer has the name to itself; a plain lock is one."""
    for name in {what[-1] for what in held}:
        kinds = [what[0] if what[1:] else "write" for what in held if what[-1] == name]
        if "write" in kinds and len(kinds) > 1:
            return f"{name} is held by {kinds}"
    return ""


def within_the_limit(held: Sequence[Any]) -> str:
    """The weights of a semaphore's holders fit into its limit."""
    weight = sum(weight for weight, _ in held)
    limit = max((limit for _, limit in held), default=0)
    return f"{weight} of {limit} permits are held" if weight > limit else ""
