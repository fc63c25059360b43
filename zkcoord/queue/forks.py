"""Processes that a handler forked: they end where they leave the handler.

A fork copies the thread that called it with all it holds: the agent's event loop with its epoll and
its wake-up pipe, shared with the agent, and reports that are the agent's to make. A child that came
back from a handler would take wake-ups from the agent and speak in its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import NoReturn

FLUSH_S = 2
"""How long a child may take to write its output: a lock of a stream that another thread held at the
fork is never let go."""

_watched: dict[int, asyncio.AbstractEventLoop | None] = {}  # by thread: those that run handlers


@contextlib.contextmanager
def watched(loop: asyncio.AbstractEventLoop | None = None) -> Iterator[None]:
    """Inside, this thread runs handlers, on `loop` when one is given."""
    thread = threading.get_ident()
    _watched[thread] = loop
    try:
        yield
    finally:
        _watched.pop(thread, None)


def end_child(error: BaseException | None = None) -> NoReturn:
    """End this process, a child that came back from the handler that forked it.

    The status is 0, 1 after an error, or that of a SystemExit. Nothing of the agent is cleaned up.
    """
    status = 0
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        status = 1
    with contextlib.suppress(Exception):
        signal.alarm(FLUSH_S)
    with contextlib.suppress(Exception):
        if error is not None and not isinstance(error, SystemExit):
            _say(f"ends with an error\n{''.join(traceback.format_exception(error))}")
        elif error is not None and isinstance(error.code, str):
            sys.stderr.write(f"{error.code}\n")
    _leave(status)


def end_waiting_child() -> NoReturn:
    """End this process, a child that waits for something on the agent's event loop."""
    with contextlib.suppress(Exception):
        signal.alarm(FLUSH_S)
    with contextlib.suppress(Exception):
        _say("ends: the event loop is the agent's, nothing can be awaited after a fork")
    _leave(1)


def _say(words: str) -> None:
    sys.stderr.write(f"process {os.getpid()}, forked by a handler, {words.rstrip()}\n")


def _leave(status: int) -> NoReturn:
    try:
        _flush()
    finally:
        os._exit(status & 0xFF)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, full, or not there
            stream.flush()


def _before_fork() -> None:
    if threading.get_ident() in _watched:
        _flush()  # else the child would write what the parent buffered once more


def _in_child() -> None:
    loop = _watched.get(threading.get_ident())
    if loop is not None and not loop.is_closed():
        loop.call_soon(end_waiting_child)  # before anything that the loop's epoll may bring


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
