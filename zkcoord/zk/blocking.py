"""Blocking calls say so when they would freeze an event loop."""

from __future__ import annotations

import asyncio


def refuse_in_event_loop(call: str, instead: str) -> None:
    """Raise RuntimeError when the calling thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{call} would block the event loop; use: {instead}")
