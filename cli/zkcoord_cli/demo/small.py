"""Tasks for trying things out: what the agents of the compose file run.

Load it with ``zkcoord agent run demo --handlers zkcoord_cli.demo.small:queue``.
"""

from __future__ import annotations

import time

from zkcoord import Lock, Queue, TaskContext
from zkcoord.settings import load_settings

_settings = load_settings()
queue = Queue(
    "demo",
    kafka=_settings.need_kafka(),
    zookeeper=_settings.need_zookeeper(),
    namespace=_settings.namespace,
)


@queue.task(name="echo")
async def echo(text: str) -> str:
    """Give `text` back."""
    return text


@queue.task(name="locked")
def locked(ctx: TaskContext, name: str, seconds: float = 0.05) -> int:
    """Hold the lock `name` for a moment; return its fencing token."""
    if ctx.session is None:
        raise RuntimeError("this task needs the agent's session for its lock")
    with Lock(ctx.session, name).hold(timeout=30) as lease:
        time.sleep(seconds)
        lease.check()
        return lease.token
