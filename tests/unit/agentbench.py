"""An executor without servers: the inbox is a list of records, the reporter a list."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from zkcoord.config import AgentConfig
from zkcoord.core.inbox import InboxRules
from zkcoord.core.records import (
    VERSION,
    Cancel,
    DidFail,
    DidReturn,
    DidSucceed,
    Inbox,
    Report,
    Run,
)
from zkcoord.queue.attempt import Attempt
from zkcoord.queue.executor import Executor
from zkcoord.queue.handlers import handlers_from
from zkcoord.queue.tenure import Tenure

ENDS = (DidSucceed, DidFail, DidReturn)


class Said:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.notes: list[tuple[str, bool]] = []
        self.unacknowledged = 0
        self.unacknowledged_bytes = 0
        self.term = -1

    def note(self, attempt: Attempt) -> None:
        self.notes.append((attempt.order.id, attempt.started > 0))

    def add(self, report: Report) -> None:
        self.reports.append(report)

    def heard(self, term: int) -> None:
        self.term = term

    def ends(self) -> dict[str, Report]:
        return {r.id: r for r in self.reports if isinstance(r, ENDS)}


class Bench:
    """An executor, its inbox and its reports."""

    def __init__(self, handlers: dict[str, Callable[..., Any]], **config: Any) -> None:
        self.said = Said()
        self.valid = True
        self.invalid: list[str] = []
        self.changes: list[int] = []
        self.numbers = itertools.count(1)
        self.seq = itertools.count()
        settings = AgentConfig(**{"slots": 4, "grace_s": 0.05, **config})
        self.executor = Executor(
            asyncio.get_running_loop(),
            handlers_from(handlers),
            settings,
            self.said,
            on_change=lambda: self.changes.append(self.executor.capacity),
            on_invalid=self.invalid.append,
        )
        self.begin(1)

    def begin(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.seq = itertools.count()
        rules = InboxRules("q", incarnation)
        self.executor.begin(Tenure(rules, valid=lambda: self.valid))

    def run(self, task_id: str, task: str = "work", *args: Any, **changes: Any) -> Run:
        value = msgspec.json.encode({"task": task, "args": args})
        order = Run(task_id, 1, next(self.numbers), task, 2, value, [], None, 30.0, None, None)
        return msgspec.structs.replace(order, **changes)

    def take(self, *orders: Run | Cancel) -> None:
        record = Inbox(VERSION, "q", 1, self.incarnation, next(self.seq), list(orders))
        self.executor.take([msgspec.msgpack.encode(record)])

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(10):
            while not holds():  # noqa: ASYNC110 - any condition
                await asyncio.sleep(0.001)

    async def end_of(self, task_id: str) -> Report:
        await self.until(lambda: task_id in self.said.ends())
        return self.said.ends()[task_id]


async def nothing() -> None:
    return None


async def sleeper() -> None:
    await asyncio.sleep(60)
