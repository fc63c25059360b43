"""A working queue as a stranger sees it: its topics, and nothing else.

Records are written with a plain producer or with kcat, from Debian; what became of them is read
from the dead letters and from the log.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.faults.fleet import Fleet, wait_for
from tests.model.logreader import Findings, Life, check_log
from zkcoord.config import QueueConfig
from zkcoord.core import deadletters
from zkcoord.core.deadletters import DeadLetter
from zkcoord.core.records import Headers
from zkcoord.errors import DecodeError, StreamError
from zkcoord.kafka import BEGINNING, Producer, Reader

KCAT = shutil.which("kcat") or ""
needs_kcat = pytest.mark.skipif(
    not KCAT and not os.environ.get("CI"),
    reason="kcat is not installed (Debian: apt-get install kcat)",
)

RECORD_BYTES_MAX = 8_000_000  # of our producer: the limits under test are the broker's and ours


class FrontDoor(Fleet):
    """A fleet whose topics are written by hand."""

    def __init__(self, kafka: str, zookeeper: str, queue: str, folder: Path) -> None:
        super().__init__(kafka, zookeeper, queue, folder)
        self._producer: Producer | None = None
        self._dead: Reader | None = None
        self._letters: dict[str, DeadLetter] = {}
        self._count_of_good = 0

    def open(self, config: QueueConfig) -> None:
        """Create the queue with one partition per topic."""
        self.create(config)
        self._producer = Producer(
            self.kafka_config, client_id="stranger", record_bytes_max=RECORD_BYTES_MAX
        )
        self._dead = Reader(self.kafka_config, client_id="mourner")
        self._dead.assign({(self.description.topics.dead, 0): BEGINNING})

    def close(self) -> None:
        super().close()
        if self._producer is not None:
            self._producer.close()
        if self._dead is not None:
            self._dead.close()

    # --- writing --------------------------------------------------------------------------------

    def send(
        self,
        value: bytes | None,
        headers: Headers | None = None,
        key: bytes | None = None,
        *,
        kind: str = "normal",
        partition: int = 0,
    ) -> str:
        """Write one record; where it stands: ``<kind>/<partition>/<offset>``.

        Raises what the broker said when it refused the record.
        """
        heard: list[int | StreamError] = []
        assert self._producer is not None
        self._producer.send(
            getattr(self.description.topics, kind),
            value,
            key=key,
            headers=headers,
            partition=partition,
            on_ack=lambda offset, error: heard.append(error if offset is None else offset),  # type: ignore[arg-type]
        )
        assert self._producer.flush(30) == 0
        [outcome] = heard
        if isinstance(outcome, StreamError):
            raise outcome
        return f"{kind}/{partition}/{outcome}"

    def kcat(self, value: bytes, *options: str | bytes, kind: str = "normal") -> str:
        """Write the lines of `value` with kcat; where the last one stands."""
        topic = getattr(self.description.topics, kind)
        arguments = [KCAT, "-P", "-b", self.kafka, "-t", topic, "-p", "0", *options]
        subprocess.run(arguments, input=value, check=True, timeout=60, capture_output=True)
        assert self._dead is not None
        with Reader(self.kafka_config, client_id="look") as reader:
            reader.assign({(topic, 0): BEGINNING})
            return f"{kind}/0/{reader.ends(10)[topic, 0] - 1}"

    # --- reading --------------------------------------------------------------------------------

    def letter(self, source: str) -> DeadLetter:
        """The dead letter of the record that stood at `source`; waits for it."""
        return wait_for(  # type: ignore[no-any-return]
            f"the dead letter of {source}; {self.logs()}", lambda: self.letters().get(source)
        )

    def letters(self) -> dict[str, DeadLetter]:
        """All dead letters so far, by where their records stood."""
        assert self._dead is not None
        while records := self._dead.read(500, 0.01):
            for record in records:
                try:
                    letter = deadletters.decode(record.key, record.value, record.headers)
                except DecodeError:
                    continue  # written by a test, not by the leader
                self._letters[deadletters.source(letter.origin)] = letter
        return self._letters

    def findings(self) -> Findings:
        """The log, read by a reader that shares nothing with the product."""
        return check_log(self.history.records)

    def life(self, task_id: str) -> Life:
        """The life of the task with this id, once it has ended; waits for it."""

        def ended() -> Life | None:
            lives = [x for (id_, _), x in self.findings().lives.items() if id_ == task_id]
            return lives[-1] if lives and lives[-1].ends else None

        return wait_for(f"the end of {task_id}; {self.logs()}", ended)  # type: ignore[no-any-return]

    def end_of(self, task_id: str) -> str:
        """How the task ended."""
        return self.life(task_id).ends[0][0]

    def still_works(self) -> None:
        """A good task of every class that is submitted now is run to its end, by the same term."""
        self._count_of_good += 1
        ids = set()
        for kind in ("critical", "high", "normal", "low"):
            task_id = f"good-{self._count_of_good}-{kind}"
            self.send(
                msgspec.json.encode({"task": "noop"}), [("ce_id", task_id.encode())], kind=kind
            )
            ids.add(task_id)
        history = wait_for(
            f"good tasks to be answered; {self.logs()}", lambda: self.history_if_ended(ids)
        )
        assert history.states(ids) == {"succeeded": 4}
        assert len(history.terms) == 1, self.logs()
