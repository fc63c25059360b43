"""Blocking calls say so when they would freeze an event loop."""

from __future__ import annotations

import asyncio


def in_event_loop() -> bool:
    """Whether the calling thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_in_event_loop(call: str, instead: str, timeout: float | None = None) -> None:
    """Raise RuntimeError when the calling thread runs an event loop.

    A call with a timeout of 0 does not wait, so it is not refused.
    """
    if timeout != 0 and in_event_loop():
        raise RuntimeError(f"{call} would block the event loop; use: {instead}")
