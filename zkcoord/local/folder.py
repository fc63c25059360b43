"""A stack's data folder: what made it, and that only one stack uses it at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from zkcoord.errors import StackError
from zkcoord.local import jars, ports
from zkcoord.local.broker import new_id

FORMAT = 1
MARKER = "stack.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """What a data folder holds: how many servers, on which ports, of which Kafka cluster.

    The ports are three for each server, the ZooKeeper servers first.
    """

    zookeepers: int
    brokers: int
    ports: tuple[int, ...]
    cluster_id: str
    zookeeper_version: str
    kafka_version: str
    format: int = FORMAT


class DataFolder:
    """A folder that is locked for us until :meth:`close`; the kernel unlocks it if we die."""

    def __init__(self, path: Path) -> None:
        """Make the folder if need be and lock it.

        Raises:
            StackError: another stack uses it, or it cannot be written.
        """
        self.path = path.absolute()
        self._lock: IO[str] | None = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a+")
        except OSError as error:
            raise StackError(f"data folder {self.path} cannot be used: {error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise StackError(
                f"data folder {self.path} is in use by a running stack (process {owner})",
                hint="name another folder, or stop that stack first",
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._lock = lock

    def close(self) -> None:
        """Unlock; the files stay."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def layout(
        self, zookeepers: int, brokers: int, *, wanted: dict[int, int] | None = None
    ) -> Layout:
        """Read what the folder holds, or decide it for a new folder.

        A new folder is marked as ours; `wanted` ports are not written down before `remember`.

        Args:
            zookeepers: how many there must be.
            brokers: likewise.
            wanted: ports that were asked for, by place in the layout's ports.

        Raises:
            StackError: the folder holds something else; the message says what.
        """
        marker = self.path / MARKER
        known: Layout | None = None
        if marker.exists():
            known = self._read(marker, zookeepers, brokers)
        else:
            foreign = sorted(p.name for p in self.path.iterdir() if p.name != ".lock")
            if foreign:
                raise StackError(
                    f"data folder {self.path} holds other files, such as {foreign[0]}, and no "
                    f"{MARKER}: a stack was not made here, or was half deleted",
                    hint="name an empty folder, or empty this one",
                )
        own = self._decide(known, zookeepers, brokers, wanted or {})
        if known is None:
            self.remember(own)
        ports_now = list(own.ports)
        for place, port in (wanted or {}).items():
            ports_now[place] = port
        return replace(own, ports=tuple(ports_now))

    def remember(self, layout: Layout) -> None:
        """Write down what the next start shall use: ports that servers did start on."""
        marker = self.path / MARKER
        partial = marker.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(layout), indent=1) + "\n")
        partial.replace(marker)

    def _read(self, marker: Path, zookeepers: int, brokers: int) -> Layout:
        advice = f"name another folder, or delete {self.path} and its data"
        try:
            fields = json.loads(marker.read_text())
            if fields["format"] != FORMAT:
                raise StackError(
                    f"{marker} has format {fields['format']}, this version reads {FORMAT}",
                    hint=advice,
                )
            layout = Layout(**(fields | {"ports": tuple(fields["ports"])}))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StackError(f"{marker} cannot be read: {error}", hint=advice) from error
        if (layout.zookeepers, layout.brokers) != (zookeepers, brokers):
            raise StackError(
                f"data folder {self.path} was made for {layout.zookeepers} ZooKeeper and "
                f"{layout.brokers} Kafka servers, not {zookeepers} and {brokers}",
                hint=advice,
            )
        running = (_zookeeper_version(), _kafka_version())
        if _later((layout.zookeeper_version, layout.kafka_version), running):
            raise StackError(
                f"data folder {self.path} was written by ZooKeeper {layout.zookeeper_version} and "
                f"Kafka {layout.kafka_version}, later than {running[0]} and {running[1]} here",
                hint=advice,
            )
        return layout

    def _decide(
        self, known: Layout | None, zookeepers: int, brokers: int, wanted: dict[int, int]
    ) -> Layout:
        count = 3 * (zookeepers + brokers)
        chosen = list(known.ports) if known else ports.choose(count, avoid=wanted.values())
        for place, port in enumerate(chosen):
            # Clients may have written down the first port of each server: that one stays, and an
            # error names it when it is taken. The servers' ports among themselves may move.
            if known and place % 3 and not ports.is_free(port):
                chosen[place] = ports.choose(1, avoid=[*chosen, *wanted.values()])[0]
        return Layout(
            zookeepers=zookeepers,
            brokers=brokers,
            ports=tuple(chosen),
            cluster_id=known.cluster_id if known else new_id(),
            zookeeper_version=_zookeeper_version(),
            kafka_version=_kafka_version(),
        )


def _zookeeper_version() -> str:
    return jars.version("zookeeper", "zookeeper")


def _kafka_version() -> str:
    return jars.version("kafka", "kafka-clients")


def _later(written: tuple[str, str], running: tuple[str, str]) -> bool:
    def numbers(text: str) -> list[int]:
        with contextlib.suppress(ValueError):
            return [int(part) for part in text.split(".")]
        return []

    return any(numbers(a) > numbers(b) for a, b in zip(written, running, strict=True))
