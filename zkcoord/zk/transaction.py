"""Several writes, all or none."""

from __future__ import annotations

from typing import Any

from zkcoord.errors import CoordinationError, NameRefused
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.link import Link
from zkcoord.zk.names import check_data, check_path, check_version
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Check, Create, Delete, Multi, Node, Operation, SetData, Stat
from zkcoord.zk.translate import from_code
from zkcoord.zk.verbs import Verb

_ROLLED_BACK = {0, -2}


class Transaction:
    """Collects writes and sends them as one; ZooKeeper carries out all of them or none.

    Given by ``session.nodes.transaction()``.

    Methods that add return the transaction, so that calls can be chained. Ephemeral nodes are not
    created here; recipes do that. What is no text, bytes or whole number where it should be is
    refused with TypeError when it is added.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._operations: list[Operation] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._operations)

    def check(self, path: str, version: int = -1) -> Transaction:
        """The node must be there, with this version unless it is -1."""
        return self._add(Check(self._path(path), check_version(version)))

    def create(self, path: str, data: bytes = b"") -> Transaction:
        """Create a plain node."""
        data = check_data(data, f"{path}: data")
        return self._add(Create(self._path(path), data), len(data))

    def set(self, path: str, data: bytes, version: int = -1) -> Transaction:
        """Replace a node's data, if it has this version unless it is -1."""
        data = check_data(data, f"{path}: data")
        return self._add(SetData(self._path(path), data, check_version(version)), len(data))

    def delete(self, path: str, version: int = -1) -> Transaction:
        """Delete a node, if it has this version unless it is -1."""
        return self._add(Delete(self._path(path), check_version(version)))

    def commit(self, timeout: float = 10.0) -> list[Node | Stat | None]:
        """Send it and wait.

        Returns:
            One entry for each operation: a Node for create, a Stat for set, else None.

        Raises:
            NodeMissing, NodeExists, VersionConflict, AccessDenied: nothing was changed; the
                message names the operation that failed.
            EnsembleUnavailable: no answer in time; the outcome is unknown.
            SessionLost, SessionClosed: the session is over.
            RuntimeError: called inside an event loop; use ``await transaction.commit_future()``.
        """
        refuse_in_event_loop("transaction.commit()", "await transaction.commit_future()")
        return self.commit_future(timeout).wait()

    def commit_future(self, timeout: float = 10.0) -> Promise[list[Node | Stat | None]]:
        """The same, to be awaited."""
        operations = tuple(self._operations)
        if not operations:
            raise NameRefused("a transaction without operations")
        sent = Verb[list[Any]](self._link, Multi(operations), "transaction", timeout)
        return sent.promise.then(lambda results: self._settle(operations, results))

    def _settle(
        self, operations: tuple[Operation, ...], results: list[Any]
    ) -> list[Node | Stat | None]:
        for operation, result in zip(operations, results, strict=False):
            if isinstance(result, int) and result not in _ROLLED_BACK:
                what = f"{type(operation).__name__.lower()} {self._link.relative(operation.path)}"
                raise from_code(result, f"transaction: {what}")
        if len(results) != len(operations) or any(isinstance(r, int) for r in results):
            raise CoordinationError("transaction: a reply that cannot be read")
        return [
            Node(self._link.relative(r[0]), r[1].czxid, r[1].version) if type(r) is tuple else r
            for r in results
        ]

    def _path(self, path: str) -> str:
        return self._link.absolute(check_path(path))

    def _add(self, operation: Operation, size: int = 0) -> Transaction:
        self._bytes += size
        if self._bytes > self._link.config.value_bytes_max:
            raise NameRefused(
                f"transaction: more than {self._link.config.value_bytes_max} bytes of values"
            )
        self._operations.append(operation)
        return self


def check_transaction(transaction: Transaction) -> Transaction:
    """A transaction, given back.

    Raises:
        TypeError: it is something else.
    """
    given: object = transaction
    if not isinstance(given, Transaction):
        kind = "None" if given is None else type(given).__name__
        raise TypeError(
            f"transaction: must be a Transaction, not {kind}: session.nodes.transaction() makes one"
        )
    return given
