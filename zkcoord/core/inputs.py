"""What a leader decides from: records of the input topics, read but not yet consumed.

The shell hands raw records to :meth:`Inputs.take`, which reads them; hostile bytes become a
:class:`Misread`, never an exception. :meth:`~.leader.Leader.decide` consumes from the left as much
as fits into one batch and leaves the rest for the next, so the shell bounds what it polls by
:attr:`Inputs.size` and :meth:`~.leader.Leader.room`.
"""

from __future__ import annotations

from collections import deque

import msgspec

from zkcoord.core import wire
from zkcoord.core.records import VERSION, Control, Headers, Origin, Reports, Source, Submission

REPORTS_BYTES_MAX = 1_700_000
"""Of one reports record: what it says must fit into one record of the log. Agents stay below."""

_decode_reports = msgspec.msgpack.Decoder(Reports).decode
_decode_control = msgspec.json.Decoder(Control).decode
_HOSTILE = (msgspec.MsgspecError, RecursionError, ValueError, OverflowError)


class Misread(msgspec.Struct, gc=False):
    """A record that is not what its topic holds, with its original bytes.

    Attributes:
        reason: one word for the dead letter, such as ``malformed`` or ``too_large``.
        detail: one sentence that names the part at fault.
        id, reply: as far as they could be read.
    """

    origin: Origin
    key: bytes | None
    value: bytes | None
    headers: Headers
    reason: str
    detail: str
    id: str | None = None
    reply: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return len(self.value or b"")


class ControlRecord(msgspec.Struct, gc=False):
    """A control record that could be read, and its bytes."""

    origin: Origin
    control: Control
    value: bytes


class ReportRecord(msgspec.Struct, gc=False):
    """A reports record that could be read.

    A record may hold more than fits into one batch: `done` says how many of its reports were
    decided. It is consumed with the last; if that never comes, those that were decided are late
    when they are read again, and change nothing.
    """

    origin: Origin
    reports: Reports
    size: int
    done: int = 0


class Inputs:
    """Records read and not yet consumed, in the order of their topics.

    Attributes:
        tasks: per priority.
        controls, reports: of the two other sources.
    """

    __slots__ = ("controls", "reports", "tasks")

    def __init__(self) -> None:
        self.tasks: tuple[deque[Submission | Misread], ...] = (deque(), deque(), deque(), deque())
        self.controls: deque[ControlRecord | Misread] = deque()
        self.reports: deque[ReportRecord | Misread] = deque()

    @property
    def size(self) -> int:
        """How many records wait."""
        return sum(map(len, self.tasks)) + len(self.controls) + len(self.reports)

    def take(
        self,
        origin: Origin,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        *,
        limits: wire.Limits = wire.LIMITS,
    ) -> None:
        """Read one record. Never raises, whatever the bytes.

        Records of one partition must come in the order of their offsets. What was consumed before
        (a re-read after a restart) is dropped when decided.
        """
        source = origin.source
        if source <= Source.LOW:
            task = wire.parse(origin, key, value, headers, limits)
            self.tasks[source].append(
                task
                if isinstance(task, Submission)
                else Misread(
                    origin, key, value, headers, task.reason, task.detail, task.id, task.reply
                )
            )
        elif source == Source.CONTROL:
            self.controls.append(_control(origin, key, value, headers))
        else:
            self.reports.append(_reports(origin, key, value, headers))


def _control(
    origin: Origin, key: bytes | None, value: bytes | None, headers: Headers
) -> ControlRecord | Misread:
    try:
        return ControlRecord(origin, _decode_control(value or b""), value or b"")
    except _HOSTILE as error:
        return Misread(origin, key, value, headers, "malformed", f"control: {error}")


def _reports(
    origin: Origin, key: bytes | None, value: bytes | None, headers: Headers
) -> ReportRecord | Misread:
    if value is not None and len(value) > REPORTS_BYTES_MAX:
        detail = f"reports: {len(value)} bytes, more than {REPORTS_BYTES_MAX}"
        return Misread(origin, key, value, headers, "too_large", detail)
    try:
        reports = _decode_reports(value or b"")
    except _HOSTILE as error:
        return Misread(origin, key, value, headers, "malformed", f"reports: {error}")
    if reports.version != VERSION:
        detail = f"reports: version {reports.version} is not known"
        return Misread(origin, key, value, headers, "malformed", detail)
    return ReportRecord(origin, reports, len(value or b""))
