"""What stands in the internal topics: log, inbox, reports, checkpoint.

All records are msgpack arrays, versioned by their first element; many facts stand in one record,
so that cost goes with batches, not tasks. A reader refuses a version it does not know. Times are
wall-clock seconds that the writer resolved, so that folding a log never needs a clock.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import msgspec

from zkcoord.core.messages import (
    AgentInfo,
    Cancel,
    ClassPressure,
    Control,
    DidFail,
    DidHave,
    DidReceive,
    DidReturn,
    DidStart,
    DidSucceed,
    Headers,
    Inbox,
    Pressure,
    Report,
    Reports,
    Run,
)

__all__ = [
    "VERSION",
    "Accepted",
    "AgentInfo",
    "Batch",
    "Cancel",
    "CancelAsked",
    "Cancelled",
    "Checkpointed",
    "ClassPressure",
    "Control",
    "DidFail",
    "DidHave",
    "DidReceive",
    "DidReturn",
    "DidStart",
    "DidSucceed",
    "Died",
    "Discarded",
    "Dispatched",
    "Duplicate",
    "Fact",
    "Headers",
    "Inbox",
    "KeptTask",
    "Origin",
    "Paused",
    "Position",
    "Positioned",
    "Pressure",
    "Priority",
    "Refused",
    "Rejected",
    "Released",
    "Report",
    "Reports",
    "Reprioritized",
    "Retrying",
    "Run",
    "Source",
    "Started",
    "Submission",
    "Succeeded",
    "Superseded",
    "TermOpened",
]

VERSION = 1


class Priority(IntEnum):
    """A task's class. The topic a record stands in is its priority."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3


class Source(IntEnum):
    """An input topic of the leader; the first four equal the priorities."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    CONTROL = 4
    REPORTS = 5


class Origin(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a record stood: its source, partition, offset, and the broker's timestamp."""

    source: int
    partition: int
    offset: int
    timestamp: float


class Submission(msgspec.Struct, array_like=True, gc=False):
    """A task as intake resolved it. `value`, `key` and `headers` are the original bytes."""

    id: str
    task: str
    priority: int
    origin: Origin
    value: bytes
    key: bytes | None = None
    headers: Headers = []
    expires_at: float | None = None  # the task is dead when it has not ended by then
    not_before: float | None = None
    timeout: float | None = None  # one attempt, seconds
    attempts: int | None = None
    delay: float | None = None  # first retry delay, seconds
    tenant: str | None = None
    requires: tuple[str, ...] = ()
    reply: int | None = None  # partition of `results` on which the submitter listens
    trace: str | None = None


class Position(msgspec.Struct, array_like=True, gc=False):
    """Where a cold fold starts, and everything that stood there but the tasks.

    Attributes:
        version: of this format.
        offset: the first log offset to fold.
        term, n, at: of the last batch before it.
        inputs: (source, partition, next offset) consumed before it.
        sent: the watermark there.
        paused: whether dispatch was stopped.
        ended: (task, log offset of its end) that stand in the checkpoint but ended before `offset`,
            and their tombstones were not yet due.
        totals: count of facts per tag before it, for :class:`~.state.State` ``.totals``.
    """

    version: int
    offset: int
    term: int
    n: int
    at: float
    inputs: list[tuple[int, int, int]]
    sent: int
    paused: bool
    ended: list[tuple[str, int]]
    totals: list[int]


class KeptTask(msgspec.Struct, array_like=True, gc=False):
    """One task in the checkpoint topic, as it was after the batch at log offset `as_of`."""

    version: int
    as_of: int
    task: Submission
    order: float
    priority: int
    offset: int  # of the batch that accepted it
    accepted: float  # that batch's time
    phase: int
    due: float
    attempt: int
    failures: int
    crashes: int
    partition: int
    incarnation: int
    fence: int
    dispatched: float
    started: float
    cancel: str | None
    asked: float  # when the cancellation was asked for


class Batch(msgspec.Struct, array_like=True, gc=False):
    """One record of the log: what a leader decided at once.

    Attributes:
        term: the election's term, the czxid of the leader's node.
        n: rises by one within a term, from 0. Anything else is void.
        at: time of the decision; never falls, across batches and terms.
        inputs: (source, partition, next offset) consumed up to here.
        sent: every output of batches at log offsets below this is acknowledged; -1 says nothing.
    """

    version: int
    term: int
    n: int
    at: float
    inputs: list[tuple[int, int, int]]
    sent: int
    facts: list[Fact]


# --- facts ------------------------------------------------------------------------------------
# One struct per thing that can happen. The tags are part of the format: never reuse a number.


class TermOpened(msgspec.Struct, array_like=True, tag=1, gc=False):
    """A leader begins. Its batch carries neither inputs nor a watermark."""

    leader: str


class Accepted(msgspec.Struct, array_like=True, tag=2, gc=False):
    """A task is in the queue. `order` is its fixed key within its class; `due` if it must wait."""

    task: Submission
    order: float
    due: float = 0.0


class Rejected(msgspec.Struct, array_like=True, tag=3, gc=False):
    """Intake refused a record; it goes to the dead letters with its original bytes."""

    origin: Origin
    value: bytes | None
    key: bytes | None
    headers: Headers
    reason: str
    detail: str
    id: str | None = None
    reply: int | None = None
    size: int = 0  # original bytes of the value when it was too large to keep whole
    retry_after: float = 0.0
    sha256: str = (
        ""  # of the original value when something was cut off, as deadletters.curtail says
    )


class Duplicate(msgspec.Struct, array_like=True, tag=4, gc=False):
    """A record whose id belongs to a live task; dropped."""

    id: str
    origin: Origin


class Dispatched(msgspec.Struct, array_like=True, tag=5, gc=False):
    """Attempt `attempt` belongs to the agent that claimed `partition` in `incarnation`."""

    id: str
    attempt: int
    partition: int
    incarnation: int


class Started(msgspec.Struct, array_like=True, tag=6, gc=False):
    """The agent reported that the attempt runs (left out for attempts that end at once)."""

    id: str
    attempt: int
    started: float


class Succeeded(msgspec.Struct, array_like=True, tag=7, gc=False):
    """Terminal. `result` is JSON."""

    id: str
    attempt: int
    result: bytes
    started: float
    finished: float


class Retrying(msgspec.Struct, array_like=True, tag=8, gc=False):
    """The attempt failed; the next may start at `due`."""

    id: str
    attempt: int
    due: float
    error: str
    started: float
    finished: float


class Released(msgspec.Struct, array_like=True, tag=9, gc=False):
    """The attempt ended without a verdict: its agent died or gave it back. Pending again."""

    id: str
    attempt: int
    reason: str  # "agent lost" | "agent left" | "returned" | "drained"
    crash: bool


class Died(msgspec.Struct, array_like=True, tag=10, gc=False):
    """Terminal, with a dead letter: exhausted, expired, unknown_task, crashes, not_retriable."""

    id: str
    attempt: int
    reason: str
    error: str


class Discarded(msgspec.Struct, array_like=True, tag=11, gc=False):
    """Terminal: the handler asked for it. State `failed`, no dead letter."""

    id: str
    attempt: int
    reason: str


class CancelAsked(msgspec.Struct, array_like=True, tag=12, gc=False):
    """A running task is to be cancelled; its agent is told."""

    id: str
    reason: str


class Cancelled(msgspec.Struct, array_like=True, tag=13, gc=False):
    """Terminal."""

    id: str
    attempt: int
    reason: str


class Superseded(msgspec.Struct, array_like=True, tag=14, gc=False):
    """A report about an attempt that is not the current one: recorded, changes nothing."""

    id: str
    attempt: int
    incarnation: int
    kind: str


class Reprioritized(msgspec.Struct, array_like=True, tag=15, gc=False):
    """A pending task changed its class."""

    id: str
    priority: int
    order: float


class Paused(msgspec.Struct, array_like=True, tag=16, gc=False):
    """Dispatch stops (`paused`) or goes on."""

    paused: bool
    who: str


class Checkpointed(msgspec.Struct, array_like=True, tag=17, gc=False):
    """From here on these live tasks stand in the checkpoint topic."""

    ids: list[str]


class Positioned(msgspec.Struct, array_like=True, tag=18, gc=False):
    """From here on a cold fold may start at `position`; it becomes the checkpoint's `#position`."""

    position: Position


class Refused(msgspec.Struct, array_like=True, tag=19, gc=False):
    """A control or report record that could not be obeyed or read; kept as a dead letter."""

    origin: Origin
    value: bytes | None
    reason: str
    detail: str
    size: int = 0  # of the original value when it was cut
    sha256: str = ""


Fact: TypeAlias = (
    TermOpened
    | Accepted
    | Rejected
    | Duplicate
    | Dispatched
    | Started
    | Succeeded
    | Retrying
    | Released
    | Died
    | Discarded
    | CancelAsked
    | Cancelled
    | Superseded
    | Reprioritized
    | Paused
    | Checkpointed
    | Positioned
    | Refused
)
