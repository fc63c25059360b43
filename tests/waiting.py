"""Waiting for what must come true, without sleeping to be right."""

import threading
from collections.abc import Callable

from zkcoord.zk.clock import now


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for a condition, with a deadline."""
    pause = threading.Event()
    deadline = now() + seconds
    while not condition():
        assert now() < deadline, "the condition did not come true"
        pause.wait(0.01)
