"""The fair read-write lock.

Readers and writers queue in one folder: a writer waits for everybody in front of it, a reader for
the writers in front of it. So nobody overtakes, a reader that comes behind a waiting writer waits
for that writer, and readers next to each other share. A plain :class:`Lock` of the same name is a
writer to them, and they exclude each other.

*Downgrade.* A writer's node stays where it is, at the head, while its owner holds either lease of
it; when the write lease goes first the node's value says that it is shared from now on. No other
writer can come in between, because nothing in front of it ever ends. Readers who watch it see the
change and come in. (With a second node for the reader, as in other libraries, that node stands
behind writers that wait already: they would have to be let in, or told to look the other way.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from zkcoord.core import ordering
from zkcoord.core.ordering import Contender
from zkcoord.errors import (
    CoordinationError,
    EnsembleUnavailable,
    NodeMissing,
    SessionClosed,
    SessionLost,
    VersionConflict,
)
from zkcoord.recipes.acquisition import Acquisition
from zkcoord.recipes.contenders import amended, describe
from zkcoord.recipes.hold import Hold
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.line import Line
from zkcoord.recipes.position import OnPosition
from zkcoord.recipes.reentry import DEPTH_MAX, ReentrantLease, Tenure, Tenures
from zkcoord.recipes.revocation import OnRevoke, listening
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.callbacks import check_callback
from zkcoord.zk.condition import shown
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link, log
from zkcoord.zk.names import check_label, check_name, check_path, join
from zkcoord.zk.promise import Promise, ask_and_wait
from zkcoord.zk.requests import GetData, SetData
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.translate import LinkDropped
from zkcoord.zk.verbs import check_timeout

_PAUSE_S = 0.2


def _is_writer(contender: Contender) -> bool:
    return contender.kind != ordering.SHARED


def _anybody(_: Contender) -> bool:
    return True


class ReadWriteLock:
    """Many readers or one writer, granted in the order of request across all processes.

    ::

        lock = ReadWriteLock(session, "catalogue")

        with lock.read.hold(timeout=10):
            look_up()

        with lock.write.hold(timeout=10) as lease:
            change(fence=lease.token)

    Both faces are reentrant; the owner is the asyncio task that acquires, or else the thread, and
    finds its hold again through this object. Each face counts its holds, and a release undoes one
    of them, as for :class:`RLock`. On top of that:

    - the writer may read: it gets a read lease on its own node, without a request;
    - a writer that read may release the write lease first: it goes on as a reader, without a gap
      in which another writer could come in, and waiting readers join it (*downgrade*);
    - a reader that wants to write gets ReentryRefused at once (*upgrade*): two readers who wait
      to become the writer wait for each other.

    A read and a write lease of one owner have the same token. Tokens of writers rise.
    When the session is lost, held leases are lost and waiting requests fail with SessionLost.

    Args:
        session: it lives and dies with this.
        name: the same for all who share; a :class:`Lock` of this name is one more writer.
        root: folder of locks below the session's chroot.
        label: what this process calls itself in `contenders`; the session's name when empty.
        depth_max: how often one owner may hold each face, 1 to 1000000.

    Attributes:
        read, write: the two faces.

    Raises:
        NameRefused, ConfigError: the name, the label or the bound cannot be.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        root: str = "/locks",
        label: str = "",
        depth_max: int = DEPTH_MAX,
    ) -> None:
        self.name = check_name(name, "lock name")
        self.session = check_session(session)
        self._what = f"lock {name}"
        self._label = check_label(label) or session.name
        self._folder = session.link.absolute(join(check_path(root), name))
        self._tenures = Tenures(self._what, depth_max)
        self.read = LockFace(self, shared=True)
        self.write = LockFace(self, shared=False)

    def _ask(
        self,
        timeout: float | None,
        on_position: OnPosition | None,
        on_revoke: OnRevoke | None,
        *,
        shared: bool,
    ) -> Promise[Lease]:
        if timeout is not None:
            check_timeout(timeout)
        check_callback(on_position, "on_position")
        check_callback(on_revoke, "on_revoke")
        link = self.session.link

        def start(tenure: Tenure) -> Promise[Lease]:
            line = Line(
                self._folder,
                self._what,
                describe(self._label, revocable=on_revoke is not None),
                ordering.SHARED if shared else ordering.EXCLUSIVE,
                _is_writer if shared else _anybody,
            )
            made = partial(self._read_lease if shared else self._write_lease, tenure)
            make = listening(link, made, on_revoke)
            return Acquisition[Lease](link, line, timeout, make, on_position=on_position).begin()

        return self._tenures.ask(start, link.dispatcher, shared=shared)

    def _read_lease(self, tenure: Tenure, epoch: Epoch, path: str, token: int) -> Lease:
        tenure.shared = ReentrantLease(
            tenure, self.session.link, epoch, path=path, name=self._what, token=token
        )
        return tenure.shared

    def _write_lease(self, tenure: Tenure, epoch: Epoch, path: str, token: int) -> Lease:
        link = self.session.link
        node = _Node(link)
        tenure.exclusive = writer = ReentrantLease(
            tenure,
            link,
            epoch,
            path=path,
            name=self._what,
            token=token,
            give_back=node.write_given_back,
        )

        def beside() -> ReentrantLease:
            node.reader_joins()
            return writer.beside(node.read_given_back)

        tenure.beside = beside
        return writer

    def __repr__(self) -> str:
        return shown(self, self.name, self.session.link)

    def _depth(self, *, shared: bool) -> int:
        mine = self._tenures.mine()
        lease = None if mine is None else (mine.shared if shared else mine.exclusive)
        return 0 if lease is None else lease.depth


class LockFace:
    """One side of a read-write lock, with the methods of a :class:`Lock`.

    Given by ``lock.read`` and ``lock.write``.
    """

    def __init__(self, lock: ReadWriteLock, *, shared: bool) -> None:
        self._lock = lock
        self._shared = shared

    def __repr__(self) -> str:
        return shown(
            self, self._lock.name, self._lock.session.link, "read" if self._shared else "write"
        )

    @property
    def depth(self) -> int:
        """How often the calling task or thread holds it."""
        return self._lock._depth(shared=self._shared)  # noqa: SLF001

    def acquire(
        self,
        timeout: float | None = None,
        *,
        on_position: OnPosition | None = None,
        on_revoke: OnRevoke | None = None,
    ) -> Lease:
        """Wait for it, with the arguments and errors of :meth:`Lock.acquire`.

        Raises:
            ReentryRefused: a reader wants to write, or still waits for an earlier request, or
                holds it `depth_max` times.
            LeaseLost: the owner's hold is lost and not released yet.
        """
        refuse_in_event_loop(
            "acquire()", "async with lock.read.hold(), or await lock.read.acquire_future()"
        )
        return ask_and_wait(
            lambda: self.acquire_future(timeout, on_position=on_position, on_revoke=on_revoke)
        )

    def acquire_future(
        self,
        timeout: float | None = None,
        *,
        on_position: OnPosition | None = None,
        on_revoke: OnRevoke | None = None,
    ) -> Promise[Lease]:
        """The same, to be awaited or composed. Cancelling it gives up the request."""
        return self._lock._ask(  # noqa: SLF001
            timeout, on_position, on_revoke, shared=self._shared
        )

    def hold(
        self,
        timeout: float | None = None,
        *,
        on_position: OnPosition | None = None,
        on_revoke: OnRevoke | None = None,
    ) -> Hold[Lease]:
        """Acquire on entering ``with`` or ``async with``, release on leaving.

        Leaving raises LeaseLost when the lease was lost inside, unless another error is on its way.
        """
        return Hold(
            lambda: self.acquire_future(timeout, on_position=on_position, on_revoke=on_revoke)
        )


class _Node:
    """A writer's node, on which its owner's read lease may outlive the write lease."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._write = True
        self._read = False

    def reader_joins(self) -> None:
        """The writer reads as well."""
        with self._lock:
            self._read = True

    def write_given_back(self, path: str, epoch: Epoch, done: Callable[[bool], object]) -> None:
        """The last write lease is released."""
        with self._lock:
            self._write = False
            last = not self._read
        if last:
            self._link.discard(path, epoch, done)
        else:
            _Downgrade(self._link, path, epoch, done).read()

    def read_given_back(self, path: str, epoch: Epoch, done: Callable[[bool], object]) -> None:
        """The last read lease is released."""
        with self._lock:
            self._read = False
            last = not self._write
        if last:
            self._link.discard(path, epoch, done)
        else:
            self._link.loop.post(done, True)


class _Downgrade:
    """Says in a writer's node that it is shared from now on; repeated until it is known.

    As long as it is not, others wait a little longer, and that is all.
    """

    def __init__(self, link: Link, path: str, epoch: Epoch, done: Callable[[bool], object]) -> None:
        self._link = link
        self._path = path
        self._epoch = epoch
        self._done = done

    def read(self) -> None:
        """What stands there now? Somebody may have asked for it, see `revoke`."""
        self._link.call(GetData(self._path), self._write, epoch=self._epoch, verb="get")

    def _write(self, result: Any, error: CoordinationError | None) -> None:
        if error is not None:
            self._trouble(error)
            return
        value, stat = result
        request = SetData(self._path, amended(value, shared=True), stat.version)
        self._link.call(request, self._written, epoch=self._epoch, verb="downgrade")

    def _written(self, _result: object, error: CoordinationError | None) -> None:
        if error is None:
            self._done(True)
        else:
            self._trouble(error)

    def _trouble(self, error: CoordinationError) -> None:
        if isinstance(error, NodeMissing):  # the read lease was released as well
            self._done(True)
        elif isinstance(error, (LinkDropped, VersionConflict)):
            self.read()
        elif isinstance(error, EnsembleUnavailable):
            self._link.timer(_PAUSE_S, self.read)
        else:
            if not isinstance(error, (SessionLost, SessionClosed)):
                log.warning("%s", error)
            self._done(False)
