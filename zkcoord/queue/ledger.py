"""The agent's own record of what it ran: one JSON line per start and end of an attempt."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Self

import msgspec

from zkcoord.core.records import DidFail, DidSucceed, Report
from zkcoord.queue.attempt import Attempt, Verdict

_encode = msgspec.json.Encoder().encode


class Entry(msgspec.Struct, omit_defaults=True, gc=False):
    """One line.

    Attributes:
        at: wall-clock seconds.
        agent, incarnation: who.
        id, attempt, fence, task: what.
        event: ``start`` or ``end``.
        outcome: of an end: ``succeeded``, or the kind of the failure, or ``returned``, or
            ``lost`` when it was not reported, or ``superseded``.
    """

    at: float
    agent: str
    incarnation: int
    id: str
    attempt: int
    fence: int
    task: str
    event: str
    outcome: str = ""

    @classmethod
    def of(cls, attempt: Attempt, agent: str, event: str, outcome: str = "") -> Entry:
        """A line about an attempt, now."""
        order = attempt.order
        return cls(
            at=time.time(),
            agent=agent,
            incarnation=attempt.incarnation,
            id=order.id,
            attempt=order.attempt,
            fence=order.fence,
            task=order.task,
            event=event,
            outcome=outcome,
        )


class Ledger:
    """Appends to a file. Several agents may share it: each line is one write at the file's end.

    A line that was written survives SIGKILL of the agent (not a crash of the machine).

    Raises:
        OSError: the file cannot be opened or written.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, entry: Entry) -> None:
        """Append one line."""
        os.write(self._file, _encode(entry) + b"\n")

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read(path: str) -> list[Entry]:
    """All whole lines of a ledger; a torn last line is left out."""
    with open(path, "rb") as file:  # noqa: PTH123 - bytes, line by line
        lines = file.read().split(b"\n")
    return [msgspec.json.decode(line, type=Entry) for line in lines[:-1]]


def outcome_of(attempt: Attempt, report: Report) -> str:
    """The outcome that a ledger shows for an attempt that ended with this report."""
    if attempt.verdict in (Verdict.LOST, Verdict.SUPERSEDED):
        return str(attempt.verdict.value)
    if isinstance(report, DidSucceed):
        return "succeeded"
    return report.kind if isinstance(report, DidFail) else "returned"
