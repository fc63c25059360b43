"""One queue with a scheduler, whose agents come and go with the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.faults.fleet import Process, wait_for
from tests.integration.front_door import FrontDoor
from zkcoord.config import QueueConfig
from zkcoord.local import Stack

SESSION_S = 2.0


class Ward(FrontDoor):
    """One queue whose agents come and go with the tests."""

    @contextmanager
    def nurses(self, *options: str, count: int = 1) -> Iterator[list[Process]]:
        """So many agents, all joined; they are gone afterwards."""
        made = [self.nurse(*options) for _ in range(count)]
        try:
            wait_for("agents to join", lambda: all("joined" in p.text() for p in made))
            yield made
        finally:
            for process in made:
                if process.alive:
                    process.resume()
                    process.stop()

    def nurse(self, *options: str) -> Process:
        return self.add_agent(
            "", "--session-timeout", str(SESSION_S), "--drain", "0", "--grace", "0.5", *options
        )

    def submit_one(
        self, task_id: str, task: str, /, *, refine: dict[str, str], **kw: object
    ) -> str:
        """Submit; where the record stands."""
        headers = [("ce_id", task_id.encode())]
        headers += [(f"ce_{name}", value.encode()) for name, value in refine.items()]
        return self.send(msgspec.json.encode({"task": task, "kwargs": kw}), headers)

    def runs(self, task_id: str, attempt: int = 1) -> dict[str, object]:
        """The agents' word that the attempt has started; waits for it."""

        def started() -> dict[str, object] | None:
            for line in self.ledgers():
                if (line["id"], line["attempt"], line["event"]) == (task_id, attempt, "start"):
                    return line
            return None

        return wait_for(f"{task_id} to run; {self.logs()}", started)  # type: ignore[no-any-return]

    def holder(self, task_id: str) -> Process:
        """The agent that runs the first attempt; waits until one does."""
        incarnation = self.runs(task_id)["incarnation"]
        [found] = [p for p in self.agents.values() if f"incarnation {incarnation}" in p.text()]
        return found

    def ends(self, task_id: str) -> list[str]:
        """Outcomes of the task's attempts by the agents' own books."""
        return [
            line["outcome"]
            for line in self.ledgers()
            if line["id"] == task_id and line["event"] == "end"
        ]

    def cancel(self, task_id: str) -> None:
        self.send(msgspec.json.encode({"action": "cancel", "id": task_id}), kind="control")

    def first_dispatch(self, task_id: str) -> tuple[int, int, int, int, float]:
        """Attempt, partition, incarnation, log offset, time; waits for it."""

        def dispatched() -> tuple[int, int, int, int, float] | None:
            lives = [x for (id_, _), x in self.findings().lives.items() if id_ == task_id]
            return lives[0].dispatches[0] if lives and lives[0].dispatches else None

        return wait_for(f"a dispatch of {task_id}", dispatched)  # type: ignore[no-any-return]

    def attempts(self, task_id: str) -> list[int]:
        """The numbers of its attempts, once it has ended."""
        return [dispatch[0] for dispatch in self.life(task_id).dispatches]


@contextmanager
def opened(stack: Stack, kind: str, folder: Path) -> Iterator[Ward]:
    """A ward with its scheduler; in the end the log must be in order and nothing lost."""
    name = f"{kind}-{os.getpid()}"
    ward = Ward(stack.kafka, f"{stack.zookeeper}/{name}", name, folder)
    try:
        ward.open(QueueConfig(crashes_max=2, unknown_task_s=1.0))
        scheduler = ward.add_scheduler("", "--cancel-after", "1")
        ward.leader()
        yield ward
        assert scheduler.alive
        found = ward.findings()
        assert (found.problems, found.lost, found.doubled) == ([], [], [])
        assert len(found.terms) == 1
        started = {(line["id"], line["attempt"]) for line in ward.ledgers()}
        assert started <= ward.history.dispatched
    finally:
        ward.close()
