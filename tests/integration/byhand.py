"""A leader played by hand: writes an agent's inbox and reads what it reports."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from typing import Any

import msgspec

from zkcoord.config import KafkaConfig
from zkcoord.core.records import (
    VERSION,
    AgentInfo,
    Cancel,
    DidFail,
    DidReturn,
    DidStart,
    DidSucceed,
    Inbox,
    Report,
    Reports,
    Run,
)
from zkcoord.errors import NodeMissing
from zkcoord.kafka import BEGINNING, Admin, Producer, Reader
from zkcoord.queue.administration import QueueDescription, create_queue, inbox_path
from zkcoord.zk import Session


def wait_for(what: str, holds: Callable[[], Any], timeout: float = 30.0) -> Any:
    """Wait until `holds()` is true and return it; fail with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        time.sleep(0.01)


class Leader:
    """Plays the leader of one queue: creates it, gives orders, collects reports."""

    def __init__(self, kafka: str, zookeeper: str, queue: str, *, inboxes: int = 4) -> None:
        self.queue = queue
        self.config = KafkaConfig(bootstrap=kafka)
        self.session = Session(zookeeper, timeout=10)
        self.session.start()
        self.admin = Admin(self.config)
        self.description = create_queue(
            self.session, self.admin, QueueDescription(queue=queue, inboxes=inboxes)
        )
        self.producer = Producer(self.config, client_id="hand", record_bytes_max=1_900_000)
        self.reader = Reader(self.config, client_id="hand")
        self.reader.assign({(self.description.topics.reports, 0): BEGINNING})
        self.term = 7
        self.seq: dict[int, int] = {}
        self.fences = itertools.count(1)
        self.records: list[Reports] = []

    def close(self) -> None:
        self.producer.close()
        self.reader.close()
        self.admin.close()
        self.session.close()

    def run(
        self,
        task_id: str,
        task: str,
        *args: Any,
        attempt: int = 1,
        timeout: float = 30.0,
        expires_at: float | None = None,
        **kwargs: Any,
    ) -> Run:
        """An order to run a task."""
        value = msgspec.json.encode({"task": task, "args": args, "kwargs": kwargs})
        return Run(
            id=task_id,
            attempt=attempt,
            fence=next(self.fences),
            task=task,
            priority=2,
            value=value,
            headers=[],
            key=None,
            timeout=timeout,
            expires_at=expires_at,
            trace=None,
        )

    def send(
        self,
        inbox: int | None,
        incarnation: int | None,
        *orders: Run | Cancel,
        term: int | None = None,
        skip: int = 0,
    ) -> None:
        """Write one inbox record and wait until the broker has it."""
        assert inbox is not None
        assert incarnation is not None
        seq = self.seq.get(incarnation, 0) + skip
        self.seq[incarnation] = seq + 1
        term = self.term if term is None else term
        record = Inbox(VERSION, self.queue, term, incarnation, seq, list(orders))
        value = msgspec.msgpack.encode(record)
        self.producer.send(self.description.topics.inbox, value, partition=inbox)
        assert self.producer.flush(10) == 0

    def agents(self) -> dict[int, AgentInfo]:
        """All claims, by inbox."""
        folder = inbox_path(self.queue)
        if self.session.nodes.exists(folder) is None:
            return {}
        found = {}
        for name in self.session.nodes.children(folder):
            with contextlib.suppress(NodeMissing):  # gone since it was listed
                data, _ = self.session.nodes.get(f"{folder}/{name}")
                found[int(name)] = msgspec.json.decode(data, type=AgentInfo)
        return found

    # --- reports --------------------------------------------------------------------------------

    def read(self) -> None:
        """Collect the reports that have arrived."""
        for record in self.reader.read(100, 0.02):
            self.records.append(msgspec.msgpack.decode(record.value or b"", type=Reports))

    @property
    def reports(self) -> list[Report]:
        self.read()
        return [report for record in self.records for report in record.reports]

    def about(self, task_id: str) -> list[Report]:
        """All reports about a task."""
        return [r for r in self.reports if getattr(r, "id", None) == task_id]

    def end_of(self, task_id: str, attempt: int = 1) -> DidSucceed | DidFail | DidReturn:
        """The report of an attempt's end; waits for it."""

        def ended() -> list[Report]:
            return [
                report
                for report in self.about(task_id)
                if isinstance(report, (DidSucceed, DidFail, DidReturn))
                and report.attempt == attempt
            ]

        found = wait_for(f"the end of {task_id}; reports: {self.reports}", ended)
        assert len(found) == 1, found
        return found[0]  # type: ignore[no-any-return]

    def started(self, task_id: str) -> DidStart:
        """The report of a start; waits for it."""
        return wait_for(  # type: ignore[no-any-return]
            f"the start of {task_id}",
            lambda: next((r for r in self.about(task_id) if isinstance(r, DidStart)), None),
        )

    def all_of(self, kind: type[Any]) -> list[Any]:
        """All reports of one kind."""
        return [report for report in self.reports if isinstance(report, kind)]
