"""A barrier: many wait until it is lifted."""

from __future__ import annotations

from typing import TypeVar

from zkcoord.errors import (
    EnsembleUnavailable,
    NodeExists,
    NodeForeign,
    NodeMissing,
    SessionLost,
    VersionConflict,
    WaitTimeout,
)
from zkcoord.recipes.contenders import describe
from zkcoord.recipes.register import folder
from zkcoord.recipes.steps import PAUSE_S, Course, News, Pause, Steps, Watched, read
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.condition import shown
from zkcoord.zk.names import check_name, check_path, join, parent
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import NODE_DELETED, Create, Delete, Exists, Stat, Sync
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.translate import LinkDropped
from zkcoord.zk.verbs import check_timeout

_TIMEOUT_S = 10.0

T = TypeVar("T")


class Barrier:
    """While it is up, whoever comes to it waits; anybody can put it up and lift it.

    ::

        gate = Barrier(session, "migration")
        gate.create()  # here
        gate.wait(timeout=600)  # in the others
        gate.lift()  # here, when it is done

    It belongs to nobody: it stays up when the session that created it ends. Waiting writes nothing
    and goes on in the session's next life when it is lost.

    Args:
        session: whose link is used.
        name: the same for all; one part of a path.
        root: folder of barriers below the session's chroot.

    Raises:
        NameRefused: the name cannot be part of a path.
    """

    def __init__(self, session: Session, name: str, *, root: str = "/barriers") -> None:
        self.name = check_name(name, "barrier name")
        self.session = check_session(session)
        self._path = session.link.absolute(join(check_path(root), name))

    def __repr__(self) -> str:
        return shown(self, self.name, self.session.link)

    def create(self, timeout: float = _TIMEOUT_S) -> None:
        """Put it up. When it is up already: no effect.

        Raises:
            EnsembleUnavailable: no answer in time; it may be up.
            SessionClosed, AccessDenied.
            RuntimeError: called inside an event loop; use ``await barrier.create_future()``.
        """
        refuse_in_event_loop("barrier.create()", "await barrier.create_future()")
        self.create_future(timeout).wait()

    def create_future(self, timeout: float = _TIMEOUT_S) -> Promise[None]:
        """The same, to be awaited."""
        return self._run(self._create(), "create", timeout)

    def lift(self, timeout: float = _TIMEOUT_S) -> None:
        """Let everybody go who waits. When it is not up: no effect.

        Raises:
            NodeForeign: the node has children, so it is no barrier's.
            EnsembleUnavailable: no answer in time; it may be lifted.
            SessionClosed, AccessDenied.
            RuntimeError: called inside an event loop; use ``await barrier.lift_future()``.
        """
        refuse_in_event_loop("barrier.lift()", "await barrier.lift_future()")
        self.lift_future(timeout).wait()

    def lift_future(self, timeout: float = _TIMEOUT_S) -> Promise[None]:
        """The same, to be awaited."""
        return self._run(self._lift(), "lift", timeout)

    def is_up(self, timeout: float = _TIMEOUT_S) -> bool:
        """Whether it is up now; what anybody did before is seen."""
        refuse_in_event_loop("barrier.is_up()", "await barrier.is_up_future()")
        return self.is_up_future(timeout).wait()

    def is_up_future(self, timeout: float = _TIMEOUT_S) -> Promise[bool]:
        """The same, to be awaited."""
        return self._run(self._look(), "look at", timeout)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it is lifted; at once when it is not up.

        A barrier that was created before the call is seen. One that is lifted and put up again
        while this waits has been lifted: it goes on, also when the link was down meanwhile.

        Args:
            timeout: seconds, over everything; None for as long as it takes.

        Raises:
            WaitTimeout: it was not lifted in time.
            SessionClosed, AccessDenied, ConfigError.
            RuntimeError: called inside an event loop; use ``await barrier.wait_future()``.
        """
        refuse_in_event_loop("barrier.wait()", "await barrier.wait_future()")
        self.wait_future(timeout).wait()

    def wait_future(self, timeout: float | None = None) -> Promise[None]:
        """The same, to be awaited. Cancelling it gives up the waiting."""
        link = self.session.link
        if timeout is not None:
            check_timeout(timeout)

        def late() -> WaitTimeout:
            why = "" if link.connected else f"; no link to ZooKeeper: {link.why_down}"
            return WaitTimeout(f"barrier {self.name}: not lifted within {timeout:g} s{why}")

        what = f"wait at barrier {self.name}"
        return Steps(link, self._wait(), what, timeout, late=late).begin()

    def _run(self, course: Course[T], verb: str, timeout: float) -> Promise[T]:
        check_timeout(timeout)
        return Steps(self.session.link, course, f"{verb} barrier {self.name}", timeout).begin()

    def _create(self) -> Course[None]:
        while True:
            try:
                yield from read(Create(self._path, describe(self.session.name)))
            except NodeMissing:
                yield from folder(parent(self._path))
            except NodeExists:
                self._check((yield from read(Exists(self._path))))
                return
            else:
                return

    def _lift(self) -> Course[None]:
        try:
            yield from read(Delete(self._path))
        except NodeMissing:
            return
        except VersionConflict as error:
            raise self._foreign() from error

    def _check(self, stat: Stat | None) -> None:
        if stat is not None and stat.children:
            raise self._foreign()

    def _foreign(self) -> NodeForeign:
        return NodeForeign(
            f"barrier {self.name}: its node has children",
            hint="another recipe uses this name: choose another one, or another root",
        )

    def _look(self) -> Course[bool]:
        yield from read(Sync(self._path))
        stat = yield from read(Exists(self._path))
        self._check(stat)
        return stat is not None

    def _wait(self) -> Course[None]:
        yield from read(Sync(self._path))
        first = 0
        while True:
            try:
                stat = yield Watched(Exists(self._path, watch=True))
            except (LinkDropped, SessionLost):
                continue
            except EnsembleUnavailable:
                yield Pause(PAUSE_S)
                continue
            self._check(stat)
            if stat is None or (first and stat.czxid != first):
                return
            first = stat.czxid
            event = yield News()
            if event is not None and event.kind == NODE_DELETED:
                return
