"""Processes of one queue under test: schedulers and agents on a stack of real servers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.faults.history import History
from tests.model.logreader import check_log
from zkcoord.config import KafkaConfig, QueueConfig
from zkcoord.core.outputs import POSITION_KEY
from zkcoord.core.records import Batch, Inbox, Position, Run
from zkcoord.kafka import BEGINNING, Admin, Producer, Reader, Record, read_compacted
from zkcoord.queue.administration import QueueDescription, create_queue
from zkcoord.queue.following import read_position
from zkcoord.zk import Session

ROOT = Path(__file__).resolve().parents[2]


def wait_for(what: str, holds: Callable[[], Any], timeout: float = 30.0) -> Any:
    """Wait until `holds()` is true and return it; fail with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        time.sleep(0.02)


class Process:
    """A child process with its log file."""

    def __init__(self, name: str, arguments: list[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as out:
            self.child = subprocess.Popen(
                [sys.executable, "-m", *arguments], cwd=ROOT, stdout=out, stderr=out
            )

    @property
    def alive(self) -> bool:
        return self.child.poll() is None

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    def kill(self) -> None:
        if self.alive:
            self.send(signal.SIGKILL)
        self.child.wait(10)

    def pause(self) -> None:
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def stop(self, timeout: float = 20.0) -> int:
        if self.alive:
            self.send(signal.SIGTERM)
        return self.child.wait(timeout)


class Fleet:
    """One queue, its schedulers and agents."""

    def __init__(self, kafka: str, zookeeper: str, queue: str, folder: Path) -> None:
        self.kafka = kafka
        self.zookeeper = zookeeper
        self.queue = queue
        self.folder = folder
        self.description = QueueDescription(queue=queue)
        self.schedulers: dict[str, Process] = {}
        self.agents: dict[str, Process] = {}
        self._count = 0
        self._history: History | None = None

    # --- set-up ---------------------------------------------------------------------------------

    def create(self, config: QueueConfig | None = None) -> QueueDescription:
        self.description = QueueDescription(queue=self.queue, config=config or QueueConfig())
        with Session(self.zookeeper) as session, Admin(self.kafka_config) as admin:
            return create_queue(session, admin, self.description)

    @property
    def kafka_config(self) -> KafkaConfig:
        return KafkaConfig(bootstrap=self.kafka)

    def add_scheduler(self, name: str = "", *options: str) -> Process:
        name = name or self._name("scheduler")
        arguments = ["tests.faults.programs.scheduler", self.queue, "--name", name, *options]
        process = Process(name, [*arguments, *self._servers()], self.folder)
        self.schedulers[name] = process
        return process

    def add_agent(self, name: str = "", *options: str) -> Process:
        name = name or self._name("agent")
        arguments = ["tests.faults.programs.agent", self.queue, *options]
        if "--no-ledger" in arguments:
            arguments.remove("--no-ledger")
        else:
            arguments += ["--ledger", str(self.folder / f"{name}.ledger")]
        process = Process(name, [*arguments, *self._servers()], self.folder)
        self.agents[name] = process
        return process

    def close(self) -> None:
        for process in [*self.schedulers.values(), *self.agents.values()]:
            if process.alive:
                process.resume()
            process.kill()
        if self._history is not None:
            self._history.close()

    # --- what goes on ---------------------------------------------------------------------------

    def leader(self, timeout: float = 30.0) -> Process:
        """The scheduler that leads now, by its own word; waits for one."""

        def leading() -> Process | None:
            for process in self.schedulers.values():
                if process.alive and _last_word(process.text()) == "leading":
                    return process
            return None

        return wait_for(f"a leader of {self.queue}; {self.logs()}", leading, timeout)

    def wait_for_standby(self) -> None:
        """Wait until a scheduler that does not lead follows the log."""
        leader = self.leader()
        wait_for(
            "a standby",
            lambda: any(
                p is not leader and p.alive and "restored" in p.text()
                for p in self.schedulers.values()
            ),
        )

    def term_of(self, process: Process) -> int:
        """The last term that the scheduler led."""
        return int(re.findall(r"leading as \S+, term (\d+)", process.text())[-1])

    def submit(
        self, count: int, *, seconds: float = 0.0, priority: str = "normal", prefix: str = "t"
    ) -> list[str]:
        """Submit naps as a foreign producer does: raw JSON with an id header."""
        ids = [f"{prefix}-{n}" for n in range(count)]
        body = msgspec.json.encode({"task": "nap", "kwargs": {"seconds": seconds}})
        topic = getattr(self.description.topics, priority)
        # A broker that restarts on a busy machine may need long.
        patient = KafkaConfig(bootstrap=self.kafka, delivery_timeout_s=180)
        with Producer(patient, client_id="test", linger_s=0.005) as producer:
            for task_id in ids:
                headers = [("ce_id", task_id.encode()), ("ce_specversion", b"1.0")]
                headers += [("ce_source", b"/test"), ("ce_type", b"zkcoord.task.submit.v1")]
                producer.send(topic, body, headers=headers)
            assert producer.flush(200) == 0
            failed, why = producer.failures
        assert failed == 0, why
        return ids

    def submit_bytes(self, count: int, *, size: int, priority: str = "normal") -> None:
        """Submit tasks whose records are about `size` bytes, without ids."""
        body = msgspec.json.encode({"task": "nap", "kwargs": {"filler": "x" * (size - 60)}})
        topic = getattr(self.description.topics, priority)
        with Producer(self.kafka_config, client_id="test", linger_s=0.005) as producer:
            for n in range(count):
                producer.send(topic, body)
                if n % 1000 == 999:
                    producer.flush(30)
            assert producer.flush(60) == 0

    def ledgers(self) -> list[dict[str, Any]]:
        """All lines of all agents' ledgers."""
        lines = []
        for path in sorted(self.folder.glob("*.ledger")):
            lines += [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
        return lines

    def logs(self) -> str:
        """The tails of all processes' logs, for messages of failed tests."""
        return "\n".join(
            f"--- {p.name}\n" + "\n".join(p.text().splitlines()[-15:])
            for p in [*self.schedulers.values(), *self.agents.values()]
        )

    def _servers(self) -> list[str]:
        return ["--kafka", self.kafka, "--zookeeper", self.zookeeper]

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}-{os.getpid()}"

    # --- what happened --------------------------------------------------------------------------

    @property
    def history(self) -> History:
        """The log's story up to now."""
        if self._history is None:
            self._history = History(self.kafka_config, self.description.topics.log)
        self._history.update()
        return self._history

    def forget_history(self) -> None:
        """Read the log anew, from where it begins now."""
        if self._history is not None:
            self._history.close()
        self._history = None

    def history_if_ended(self, ids: set[str]) -> History | None:
        """The log's story once all of `ids` have ended, else None."""
        history = self.history
        return history if history.ended(ids) else None

    def depth(self) -> int:
        """Tasks that were accepted and have not ended."""
        history = self.history
        return len(history.accepted) - len(history.ends)

    def orders(self) -> set[tuple[str, int]]:
        """(id, attempt) of everything that agents were ever told to run."""
        topic = self.description.topics.inbox
        found = set()
        for record in self._all_of(topic):
            inbox = msgspec.msgpack.decode(record.value or b"", type=Inbox)
            found |= {(o.id, o.attempt) for o in inbox.orders if isinstance(o, Run)}
        return found

    def dead_letters(self, count: int) -> list[bytes | None]:
        """The values of all dead letters once there are at least `count`, else nothing."""
        letters = [record.value for record in self._all_of(self.description.topics.dead)]
        return letters if len(letters) >= count else []

    def checkpoint(self) -> tuple[Position | None, int]:
        """Where the checkpoint says that a fold may start, and how many tasks stand in it."""
        table = read_compacted(
            self.kafka_config, self.description.topics.checkpoint, client_id="test", timeout=10
        )
        position = read_position(table.pop(POSITION_KEY, None))
        return position, len(table)

    def check(self, ids: set[str]) -> None:
        """The invariants: one end per task, nothing acted on that the log does not say."""
        history = self.history
        assert history.violations == []
        assert check_log(history.records).problems == []
        assert {i: s for i, s in history.ends.items() if len(s) > 1} == {}
        assert ids - history.accepted.keys() == set(), "lost"
        assert {i: n for i, n in history.accepted.items() if n > 1 and i in ids} == {}
        assert history.states(ids) == {"succeeded": len(ids)}
        started = {(e["id"], e["attempt"]) for e in self.ledgers() if e["event"] == "start"}
        assert started - history.dispatched == set(), "started without a dispatch in the log"
        assert self.orders() - history.dispatched == set(), "sent before it was read back"

    @staticmethod
    def encode(batch: Batch) -> bytes:
        return msgspec.msgpack.encode(batch)

    @staticmethod
    def decode(value: bytes | None) -> Batch:
        return msgspec.msgpack.decode(value or b"", type=Batch)

    def _all_of(self, topic: str) -> list[Record]:
        with Admin(self.kafka_config) as admin:
            ends = {(topic, p): end for p, (_, end) in admin.offsets(topic).items()}
        records: list[Record] = []
        with Reader(self.kafka_config, client_id="test") as reader:
            reader.assign(dict.fromkeys(ends, BEGINNING))
            wanted = {place: end for place, end in ends.items() if end > 0}
            deadline = time.monotonic() + 20
            while any(reader.positions()[place] < end for place, end in wanted.items()):
                assert time.monotonic() < deadline, f"{topic} was not read to its end"
                records += reader.read(1000, 0.5)
        return records


def _last_word(text: str) -> str:
    found = re.findall(r"queue \S+: (leading) as|queue \S+: term \d+ (ended)", text)
    return "".join(found[-1]) if found else ""


@contextmanager
def fleet(kafka: str, zookeeper: str, queue: str, folder: Path) -> Iterator[Fleet]:
    """A fleet whose processes are gone at the end."""
    made = Fleet(kafka, zookeeper, queue, folder)
    try:
        yield made
    finally:
        made.close()
