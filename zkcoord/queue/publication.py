"""Publish the queue's pressure in its znode, off the leader's loop.

The leader offers a new value whenever it likes; a thread of this room writes at most one per
second, and only when something that a submitter acts on changed, or when the last write is
`REFRESH_S` old, so that watchers can tell a live leader from a dead one by ``Pressure.at``.

A deposed leader must not overwrite a newer one. Each write is a compare-and-set against a version
whose content was read: a value with a higher term ends publication for good. ZooKeeper orders the
writes, so a leader that was paused between its read and its write loses the comparison.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

import msgspec

from zkcoord.core.records import Pressure
from zkcoord.errors import CoordinationError, NodeExists, NodeMissing, VersionConflict
from zkcoord.zk import Session

log = logging.getLogger("zkcoord.queue")

INTERVAL_S = 1.0
REFRESH_S = 5.0
REQUEST_TIMEOUT_S = 5.0


@dataclass(slots=True)
class _Published:
    """What stands in the node as far as known; None when it is nothing of ours."""

    pressure: Pressure | None
    version: int


class Publication:
    """Writes one leader's pressure to one znode.

    Args:
        session: the leader's session.
        path: the znode; it is created when missing.
        term: the leader's term; stands inside every value.
    """

    def __init__(self, session: Session, path: str, term: int) -> None:
        self._session = session
        self._path = path
        self._term = term
        self._latest: Pressure | None = None
        self._known: _Published | None = None
        self._written_at = float("-inf")
        self._stop = threading.Event()
        self._failing = False
        self._thread = threading.Thread(
            target=self._run, name=f"zkcoord-pressure-{path}", daemon=True
        )

    def start(self) -> None:
        """Begin to publish what is offered."""
        self._thread.start()

    def offer(self, pressure: Pressure) -> None:
        """Replace the value that is to be published next. Never blocks."""
        self._latest = pressure

    def close(self, timeout: float = 1.0) -> None:
        """Stop; a write under way may still land, and is harmless: it carries the term."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S / 4):
            pressure = self._latest
            if pressure is None or not self._is_due(pressure):
                continue
            try:
                if not self._write(pressure):
                    return
                self._failing = False
            except CoordinationError as error:
                if not self._failing:
                    log.warning("pressure of %s not published: %s", self._path, error)
                self._failing = True
                self._known = None

    def _is_due(self, pressure: Pressure) -> bool:
        age = time.monotonic() - self._written_at
        if age < INTERVAL_S:
            return False
        known = self._known
        return (
            known is None
            or known.pressure is None
            or age >= REFRESH_S
            or differs(known.pressure, pressure)
        )

    def _write(self, pressure: Pressure) -> bool:
        """Compare and set; False when a newer term stands there."""
        data = msgspec.json.encode(pressure)
        nodes = self._session.nodes
        for _ in range(3):
            if self._known is None and not self._read():
                return False
            try:
                if self._known is None:
                    node = nodes.create(self._path, data, makepath=True, timeout=REQUEST_TIMEOUT_S)
                    version = node.version
                else:
                    stat = nodes.set(
                        self._path, data, version=self._known.version, timeout=REQUEST_TIMEOUT_S
                    )
                    version = stat.version
            except (VersionConflict, NodeExists, NodeMissing):
                self._known = None
                continue
            self._known = _Published(pressure, version)
            self._written_at = time.monotonic()
            return True
        return True  # somebody else writes too; look again at the next tick

    def _read(self) -> bool:
        """Learn the node's version; False when its content is a newer leader's."""
        try:
            data, stat = self._session.nodes.get(self._path, timeout=REQUEST_TIMEOUT_S)
        except NodeMissing:
            return True
        try:
            standing: Pressure | None = msgspec.json.decode(data, type=Pressure)
        except msgspec.DecodeError:
            standing = None  # nothing of ours: overwrite it
        if standing is not None and standing.term > self._term:
            log.info("pressure of %s belongs to term %d now", self._path, standing.term)
            return False
        self._known = _Published(standing, stat.version)
        return True


def differs(old: Pressure, new: Pressure) -> bool:
    """Whether anything but the time changed."""
    return msgspec.structs.replace(old, at=0.0) != msgspec.structs.replace(new, at=0.0)
