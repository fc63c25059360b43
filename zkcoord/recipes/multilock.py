"""Several locks at once, all or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zkcoord.errors import ConfigError, NameRefused
from zkcoord.recipes.contenders import describe
from zkcoord.recipes.hold import Hold
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.line import Line
from zkcoord.recipes.multi_acquisition import MultiAcquisition
from zkcoord.recipes.vigil import Vigil
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.condition import shown, some_of
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.errands import discard_all
from zkcoord.zk.link import Link
from zkcoord.zk.names import check_label, check_name, check_path, join
from zkcoord.zk.promise import Promise, ask_and_wait
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.transaction import Transaction, check_transaction
from zkcoord.zk.verbs import check_timeout

NAMES_MAX = 100
"""Locks in one MultiLock: they are all created in one transaction."""

_OVERHEAD = 64  # bytes of a create beside path and value


class MultiLease(Lease):
    """A grant of several locks, which lives and ends as one. Given by ``lock.acquire``.

    When the node of any of them is removed the whole lease is lost, and the other nodes are
    deleted.

    Attributes:
        token: fencing token, one number for all: it is above that of every grant before, of each
            of the locks.
        paths: the nodes, below the session's chroot.
    """

    def __init__(
        self, link: Link, epoch: Epoch, *, paths: list[str], name: str, token: int
    ) -> None:
        def give_back(_path: str, epoch: Epoch, done: Callable[[bool], object]) -> None:
            epoch.leaving.update(paths)  # who comes behind need not ask why they go
            discard_all(link, paths, epoch, done)

        self._paths = tuple(paths)
        super().__init__(link, epoch, path=paths[0], name=name, token=token, give_back=give_back)
        self.paths = tuple(link.relative(path) for path in paths)

    @property
    def _nodes(self) -> tuple[str, ...]:
        return self._paths

    def _watch_over(self) -> None:
        Vigil.of(self._link, self._epoch).add(self, self._paths, eager=True)

    def guard(self, transaction: Transaction) -> Transaction:
        """Let the transaction succeed only while all nodes of this lease are there.

        Raises:
            LeaseLost: it was released.
        """
        self._refuse_released()
        check_transaction(transaction)
        for path in self.paths:
            transaction.check(path)
        return transaction

    def removed(self) -> None:
        """Internal: one of its nodes was found to be gone. On the loop."""
        self._lose("removed")
        self._epoch.leave(self)
        discard_all(self._link, list(self._paths), self._epoch, _ignore)


class MultiLock:
    """Several exclusive locks, acquired as one: all of them or none.

    ::

        with MultiLock(session, ["account-7", "account-9"]).hold(timeout=10) as lease:
            transfer(fence=lease.token)

    One transaction queues for all of them at one moment, so any two requests meet in the same order
    in every queue, and programs that only use MultiLock cannot deadlock, in whatever order they
    name the locks. (Those that hold one lease while they wait for another still can.) It takes
    turns with :class:`Lock` on the same names.

    A waiting request keeps those behind it waiting in every queue, as they came later. An
    uncontended acquire is one round trip, a release none that is waited for. Failed, cancelled and
    timed-out requests leave nothing behind. One object may be used by many threads and tasks.

    When the session is lost, held leases are lost and waiting requests fail with SessionLost.

    Args:
        session: it lives and dies with this.
        names: names of locks, at most 100. One that begins with a slash is a lock's whole path,
            below the session's chroot. Repeated names count once.
        root: folder of the names that are no paths.
        label: what this process calls itself in `contenders`; the session's name when empty.

    Attributes:
        names: sorted, each once.

    Raises:
        NameRefused: a name cannot be part of a path, or a label is longer than 1000 bytes.
        ConfigError: no name, or more than 100.
    """

    def __init__(
        self, session: Session, names: Iterable[str], *, root: str = "/locks", label: str = ""
    ) -> None:
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise TypeError(f"names {names!r}: must be several, such as a list of texts")
        check_path(root)
        folders = {_folder(root, name): name for name in names}
        if not 1 <= len(folders) <= NAMES_MAX:
            raise ConfigError(f"names: {len(folders)} locks at once, 1 to {NAMES_MAX} are possible")
        self.session = check_session(session)
        self.names = tuple(sorted(folders.values()))
        self._folders = [session.link.absolute(folder) for folder in sorted(folders)]
        self._label = check_label(label) or session.name
        self._title = f"locks {', '.join(self.names)}"
        if len(self._title) > 100:
            self._title = f"locks {', '.join(self.names)[:90]}… ({len(self.names)})"

    def __repr__(self) -> str:
        return shown(self, some_of(self.names), self.session.link)

    def acquire(self, timeout: float | None = None) -> MultiLease:
        """Wait for all of them.

        Args:
            timeout: seconds, over everything. None waits until they are granted or the session is
                lost. 0 tries: it writes nothing unless it can win, waits for no holder, and at
                most a second for the network.

        Returns:
            The lease of all, which must be released.

        Raises:
            AcquireTimeout: not all granted in time; names a holder where it is known.
            SessionLost: the session was lost while waiting.
            LeaseLost: one of its nodes was removed while it waited.
            SessionClosed: the session is not started, closed, or the parent process's.
            SessionFull: the session holds too many bytes of ephemeral paths.
            AccessDenied: a folder's ACL refuses.
            NodeForeign: a recipe of another kind uses the folder.
            ConfigError: a negative or infinite timeout.
            RuntimeError: called inside an event loop; use ``async with locks.hold()``, or
                ``await locks.acquire_future()``.
        """
        refuse_in_event_loop(
            "locks.acquire()", "async with locks.hold(), or await locks.acquire_future()"
        )
        return ask_and_wait(lambda: self.acquire_future(timeout))

    def acquire_future(self, timeout: float | None = None) -> Promise[MultiLease]:
        """The same, to be awaited or composed. Cancelling it gives up the request."""
        if timeout is not None:
            check_timeout(timeout)
        link = self.session.link
        data = describe(self._label)
        size = sum(len(folder.encode()) + len(data) + _OVERHEAD for folder in self._folders)
        if size > link.config.value_bytes_max:
            raise NameRefused(
                f"{self._title}: {size} bytes in one transaction, "
                f"the bound is {link.config.value_bytes_max}"
            )
        lines = tuple(
            Line(folder, f"lock {link.relative(folder)}", data) for folder in self._folders
        )
        return MultiAcquisition(link, lines, self._title, timeout, self._grant).begin()

    def hold(self, timeout: float | None = None) -> Hold[MultiLease]:
        """Acquire on entering ``with`` or ``async with``, release on leaving.

        Leaving raises LeaseLost when the lease was lost inside, unless another error is on its way.
        Inside an event loop only ``async with`` will do; ``with`` raises RuntimeError there.
        """
        return Hold(lambda: self.acquire_future(timeout))

    def _grant(self, epoch: Epoch, paths: list[str], token: int) -> MultiLease:
        link = self.session.link
        return MultiLease(link, epoch, paths=paths, name=self._title, token=token)


def _folder(root: str, name: str) -> str:
    if isinstance(name, str) and name.startswith("/"):
        return check_path(name)
    return join(root, check_name(name, "lock name"))


def _ignore(_gone: bool) -> None:
    """Whether they went at once or with the session, they are gone."""
