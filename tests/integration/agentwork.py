"""The tasks of the agent tests, and what became of them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from tests.integration.byhand import Leader
from zkcoord import Agent, Discard, Queue, Retry, TaskContext
from zkcoord.config import AgentConfig, SessionConfig


class Work:
    """The tasks of these tests, and what became of them."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.gate = threading.Event()
        self.stopped = threading.Event()
        self.contexts: list[TaskContext] = []


def queue_of(leader: Leader, work: Work) -> Queue:
    queue = Queue(leader.queue, kafka=leader.config.bootstrap, zookeeper=leader.session.hosts)

    @queue.task()
    async def add(a: int, b: int) -> int:
        work.runs.append("add")
        return a + b

    @queue.task()
    def multiply(a: int, b: int) -> int:
        work.runs.append("multiply")
        return a * b

    @queue.task()
    async def nap(seconds: float) -> str:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            work.stopped.set()
            raise
        return "rested"

    @queue.task()
    def hold(ctx: TaskContext) -> str:
        work.contexts.append(ctx)
        while not work.gate.is_set():
            if ctx.cancelled.wait(0.005):
                work.stopped.set()
                ctx.check()
        return "released"

    @queue.task()
    def stubborn() -> str:
        work.gate.wait(30)
        return "at last"

    @queue.task()
    async def odd() -> Any:
        return object()

    @queue.task()
    async def fail(how: str) -> None:
        if how == "retry":
            raise Retry("later", delay=3.5)
        if how == "discard":
            raise Discard("never")
        raise ValueError(f"about {how}")

    return queue


def give(leader: Leader, agent: Agent, *orders: Any, **options: Any) -> None:
    leader.send(agent.inbox, agent.incarnation, *orders, **options)


CONFIG = AgentConfig(slots=4, drain_s=5.0, grace_s=0.2)
SESSION = SessionConfig(timeout_s=6.0)
