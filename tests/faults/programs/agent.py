"""An agent process for the fault tests: ``python -m tests.faults.programs.agent``.

``--crash`` arms a point at which the process kills itself, by replacing a part of the shell here,
in the test's program: the product has no such switches.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from typing import Any

from zkcoord import Agent, Queue, TaskContext
from zkcoord.config import AgentConfig, SessionConfig
from zkcoord.core.records import DidSucceed
from zkcoord.queue.reporter import Reporter


def die() -> None:
    sys.stderr.write("crash point reached\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def die_before_reporting() -> None:
    """Die when a handler has finished, before anybody is told."""
    add = Reporter.add

    def deadly(self: Reporter, report: Any) -> None:
        if isinstance(report, DidSucceed):
            die()
        add(self, report)

    Reporter.add = deadly  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("queue")
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--ledger")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--session-timeout", type=float, default=4.0)
    parser.add_argument("--drain", type=float, default=5.0)
    parser.add_argument("--grace", type=float, default=5.0)
    parser.add_argument("--crash", choices=("before-report",))
    args = parser.parse_args()
    if args.crash:
        die_before_reporting()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    queue = Queue(args.queue, kafka=args.kafka, zookeeper=args.zookeeper)

    @queue.task(attempts=20, timeout=60)
    async def nap(seconds: float = 0.0, answer: int = 0) -> int:
        await asyncio.sleep(seconds)
        return answer

    @queue.task()
    async def noop() -> None: ...

    @queue.task(attempts=2, timeout=60, retry=0.05)
    async def fail() -> None:
        raise ValueError("on purpose")

    @queue.task()
    async def hang_first(ctx: TaskContext, times: int = 1, seconds: float = 0.0) -> int:
        if ctx.attempt <= times:
            await asyncio.sleep(3600)
        await asyncio.sleep(seconds)
        return ctx.attempt

    @queue.task()
    def stubborn(seconds: float) -> None:
        time.sleep(seconds)  # and does not hear that it should stop

    @queue.task()
    def deadly() -> None:
        die()

    Agent(
        queue,
        config=AgentConfig(
            slots=args.slots, ledger=args.ledger, drain_s=args.drain, grace_s=args.grace
        ),
        session=SessionConfig(timeout_s=args.session_timeout),
    ).run()


if __name__ == "__main__":
    main()
