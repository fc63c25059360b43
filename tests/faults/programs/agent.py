"""An agent process for the fault tests: ``python -m tests.faults.programs.agent``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from zkcoord import Agent, Queue
from zkcoord.config import AgentConfig, SessionConfig


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("queue")
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--ledger")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--session-timeout", type=float, default=4.0)
    args = parser.parse_args()
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

    Agent(
        queue,
        config=AgentConfig(slots=args.slots, ledger=args.ledger, drain_s=5.0),
        session=SessionConfig(timeout_s=args.session_timeout),
    ).run()


if __name__ == "__main__":
    main()
