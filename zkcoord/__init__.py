"""zkcoord: fair locks, elections and prioritized task streams for fleets of agents.

Everything public is importable from here; each name loads its room only when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zkcoord.core.records import Priority
    from zkcoord.errors import Discard, Retry
    from zkcoord.queue.context import TaskContext
    from zkcoord.queue.handle import Queue
    from zkcoord.queue.scheduler import Scheduler
    from zkcoord.queue.ticket import Ticket
    from zkcoord.zk import Session

_FRONT_DOOR = {
    "Discard": "zkcoord.errors",
    "Priority": "zkcoord.core.records",
    "Queue": "zkcoord.queue.handle",
    "Retry": "zkcoord.errors",
    "Scheduler": "zkcoord.queue.scheduler",
    "Session": "zkcoord.zk",
    "TaskContext": "zkcoord.queue.context",
    "Ticket": "zkcoord.queue.ticket",
}

__all__ = ["Discard", "Priority", "Queue", "Retry", "Scheduler", "Session", "TaskContext", "Ticket"]


def __getattr__(name: str) -> Any:
    room = _FRONT_DOOR.get(name)
    if room is None:
        raise AttributeError(f"module 'zkcoord' has no attribute {name!r}")
    value = getattr(importlib.import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_FRONT_DOOR})
