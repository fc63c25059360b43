"""What is said of a failed attempt: where it failed, and a line in the agent's log.

No values of arguments or variables are in either, only places in the code. (The message of an
exception is its raiser's, and may hold what it likes.)
"""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from types import TracebackType

from zkcoord.core.records import DidFail, Run

log = logging.getLogger("zkcoord.task")

FRAMES_MAX = 4
"""Places in an error's text: the innermost ones, and where it entered the handler."""

LOGGED_FRAMES_MAX = 30
"""Innermost frames of a traceback in the log."""

NAME_CHARS = 60

_HERE = str(Path(__file__).parent)


def where(error: BaseException) -> str:
    """Where it was raised: ``at bank.py:12 in pay, from app.py:40 in send``; "" when unknown.

    Innermost first; frames of the agent itself are left out.
    """
    trace = _of_handler(error.__traceback__)
    if trace is None:
        return ""
    entry, length = _place(trace), 0
    inner: deque[str] = deque(maxlen=FRAMES_MAX)
    while trace is not None:
        length += 1
        inner.appendleft(_place(trace))
        trace = trace.tb_next
    places = list(inner)
    if length > FRAMES_MAX:
        places[-1:] = ["…", entry]
    return "at " + ", from ".join(places)


def tell(order: Run, failed: DidFail, error: BaseException | None) -> None:
    """One line in the log; with the traceback when the handler raised what it should not."""
    expected = failed.kind == "cancelled"  # somebody asked for it
    log.log(
        logging.INFO if expected else logging.WARNING,
        "task %s (%s) attempt %d: %s: %s",
        failed.id,
        order.task,
        failed.attempt,
        failed.kind,
        failed.error,
        exc_info=None if error is None else (type(error), error, _end_of(error.__traceback__)),
        extra={"task": order.task, "task_id": failed.id, "attempt": failed.attempt},
    )


def _of_handler(trace: TracebackType | None) -> TracebackType | None:
    """Without the agent's own frames at its beginning."""
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    return trace


def _is_ours(trace: TracebackType) -> bool:
    return str(Path(trace.tb_frame.f_code.co_filename).parent) == _HERE


def _end_of(trace: TracebackType | None) -> TracebackType | None:
    trace = end = _of_handler(trace)
    length = 0
    while trace is not None:
        length += 1
        if length > LOGGED_FRAMES_MAX and end is not None:
            end = end.tb_next
        trace = trace.tb_next
    return end


def _place(trace: TracebackType) -> str:
    code = trace.tb_frame.f_code
    file = Path(code.co_filename).name[-NAME_CHARS:]
    return f"{file}:{trace.tb_lineno} in {code.co_name[:NAME_CHARS]}"
