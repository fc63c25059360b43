"""A program: an agent's executor with one slot, whose first handler forks. See test_forks.py.

python -m tests.unit.forking HANDLER

Prints how the child ended (its status, or "alive") and what the next task of the agent returned.
A child that goes on as if it were the agent prints a line too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

from tests.unit.agentbench import Bench
from zkcoord.queue import forks

CHILD_S = 5.0


def fork() -> int:
    print("before the fork")
    return os.fork()


def sync_returns() -> int:
    return fork()


def sync_raises() -> int:
    if not (pid := fork()):
        raise ValueError("the child's")
    return pid


def sync_exits() -> int:
    if not (pid := fork()):
        print("said by the child")
        sys.exit(3)
    return pid


async def async_returns() -> int:
    return fork()


async def async_returns_late() -> int:
    await asyncio.sleep(0.001)
    return fork()


async def async_raises() -> int:
    return sync_raises()


async def async_exits() -> int:
    return sync_exits()


async def async_waits() -> int:
    if not (pid := fork()):
        await asyncio.sleep(0)
        os._exit(77)
    return pid


async def async_waits_late() -> int:
    await asyncio.sleep(0.001)
    return await async_waits()


async def async_subtask_returns() -> int:
    return await asyncio.create_task(async_returns())


async def second() -> str:
    await asyncio.sleep(0.01)
    return "second"


def ended(pid: int) -> int | str:
    """The status of the child, or "alive" after a while."""
    deadline = time.monotonic() + CHILD_S
    while not (found := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "alive"
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(found[1])


async def main(name: str) -> None:
    handlers: dict[str, Any] = {"work": globals()[name], "second": second}
    bench = Bench(handlers, slots=1)
    with forks.watched(asyncio.get_running_loop()):
        bench.take(bench.run("first"))
        report: Any = await bench.end_of("first")
        pid = int(report.result)
        status = await asyncio.to_thread(ended, pid) if pid else "went on"
        bench.take(bench.run("next", "second"))
        report = await bench.end_of("next")
        print(status, report.result.decode())
        await bench.executor.close(5.0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
