"""The state of a queue: what folding its log gives."""

from __future__ import annotations

import msgspec

from zkcoord.core.records import VERSION, Position, Priority
from zkcoord.core.tasks import READY, Task

TOTALS = 32
"""Length of `State.totals`: one count per tag of a fact, with room for tags to come."""


class State:
    """What is live, what was consumed, and how much happened.

    Attributes:
        at: time of the last batch.
        sent: the watermark: every output of batches below this log offset is acknowledged.
        paused: whether dispatch is stopped.
        inputs: next offset per (source, partition).
        tasks: all live tasks by id.
        young: those of them whose checkpoint record is missing or stale, longest first.
        ended: tasks that stand in the checkpoint but ended, with the log offset of their end;
            their tombstones are written once the outputs of that batch are acknowledged.
        totals: how many facts of each tag there were.
        ready: per class, how many tasks wait for a slot or for their time.
        running: how many attempts are with agents; `running_of` per class.
        bytes: memory that the live tasks take, roughly; `live_of` is their number per class.
    """

    __slots__ = (
        "at",
        "bytes",
        "ended",
        "inputs",
        "paused",
        "ready",
        "running",
        "running_of",
        "sent",
        "tasks",
        "totals",
        "young",
    )

    def __init__(self) -> None:
        self.at = 0.0
        self.sent = 0
        self.paused = False
        self.inputs: dict[tuple[int, int], int] = {}
        self.tasks: dict[str, Task] = {}
        self.young: dict[str, Task] = {}
        self.ended: dict[str, int] = {}
        self.totals = [0] * TOTALS
        self.ready = [0] * len(Priority)
        self.running_of = [0] * len(Priority)
        self.running = 0
        self.bytes = 0

    def add(self, task: Task) -> None:
        """A task becomes live."""
        self.tasks[task.sub.id] = task
        self.bytes += task.size
        if task.phase == READY:
            self.ready[task.priority] += 1
        else:
            self.running += 1
            self.running_of[task.priority] += 1

    def position(
        self, offset: int, term: int, n: int, inputs: dict[tuple[int, int], int]
    ) -> Position:
        """Where a fold that starts at `offset` must begin; tasks are not in it."""
        return Position(
            version=VERSION,
            offset=offset,
            term=term,
            n=n,
            at=self.at,
            inputs=[(source, part, next_) for (source, part), next_ in inputs.items()],
            sent=self.sent,
            paused=self.paused,
            ended=list(self.ended.items()),
            totals=list(self.totals),
        )

    def image(self) -> dict[str, object]:
        """All that must be equal between two folds of one log, as plain values."""
        soft = {"stale", "as_of", "ticket", "estimate", "kept"}
        return {
            "at": self.at,
            "sent": self.sent,
            "paused": self.paused,
            "inputs": dict(self.inputs),
            "tasks": {
                id_: {
                    name: msgspec.to_builtins(value)
                    for name, value in msgspec.structs.asdict(task).items()
                    if name not in soft
                }
                for id_, task in self.tasks.items()
            },
            "kept": sorted(id_ for id_, task in self.tasks.items() if task.kept),
            "ended": dict(self.ended),
            "totals": list(self.totals),
            "ready": list(self.ready),
            "running": self.running,
            "running_of": list(self.running_of),
            "bytes": self.bytes,
        }
