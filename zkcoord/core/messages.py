"""What leader and agents tell each other, and what both tell ZooKeeper.

Records of the inbox and reports topics (msgpack arrays, versioned by their first element), of the
control topic (JSON: any producer may write it), and the values of znodes (JSON).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Headers: TypeAlias = list[tuple[str, bytes | None]]


# --- inbox ------------------------------------------------------------------------------------


class Run(msgspec.Struct, array_like=True, tag=1, gc=False):
    """Run attempt `attempt`. `fence` rises with every attempt of a task."""

    id: str
    attempt: int
    fence: int
    task: str
    priority: int
    value: bytes
    headers: Headers
    key: bytes | None
    timeout: float
    expires_at: float | None
    trace: str | None


class Cancel(msgspec.Struct, array_like=True, tag=2, gc=False):
    """Stop attempt `attempt` cooperatively; report it cancelled."""

    id: str
    attempt: int
    reason: str


class Inbox(msgspec.Struct, array_like=True, gc=False):
    """One record of an inbox partition, for one incarnation of the agent that claimed it.

    `seq` rises by one per (term, incarnation), from 0: a gap is noticed. `last` answers an agent
    that said it drains: no order follows in this term.
    """

    version: int
    queue: str
    term: int
    incarnation: int
    seq: int
    orders: list[Run | Cancel]
    last: bool = False


# --- reports ----------------------------------------------------------------------------------


class DidReceive(msgspec.Struct, array_like=True, tag=1, gc=False):
    """The attempt arrived. Left out when the same record says more about it."""

    id: str
    attempt: int


class DidStart(msgspec.Struct, array_like=True, tag=2, gc=False):
    """The attempt runs."""

    id: str
    attempt: int
    started: float


class DidSucceed(msgspec.Struct, array_like=True, tag=3, gc=False):
    """The attempt returned. `result` is JSON.

    `fence`, here and below, is the order's: it tells two tasks apart that had the same id one after
    the other, when a report comes twice. -1 says nothing.
    """

    id: str
    attempt: int
    result: bytes
    started: float
    finished: float
    fence: int = -1


class DidFail(msgspec.Struct, array_like=True, tag=4, gc=False):
    """The attempt raised, timed out or was cancelled.

    `kind` is ``error``, ``timeout``, ``retry``, ``discard``, ``cancelled``, ``unknown_task`` or
    ``malformed``; `delay` is what the handler asked for.
    """

    id: str
    attempt: int
    kind: str
    error: str
    delay: float | None
    started: float
    finished: float
    fence: int = -1


class DidReturn(msgspec.Struct, array_like=True, tag=5, gc=False):
    """The agent gives the attempt back without a verdict (drain, or no room)."""

    id: str
    attempt: int
    reason: str
    fence: int = -1


class DidHave(msgspec.Struct, array_like=True, tag=6, gc=False):
    """All attempts the agent has; sent after it saw a new term or a gap in its inbox."""

    attempts: list[tuple[str, int]]


Report: TypeAlias = DidReceive | DidStart | DidSucceed | DidFail | DidReturn | DidHave


class Reports(msgspec.Struct, array_like=True, gc=False):
    """One record of the reports topic."""

    version: int
    partition: int
    incarnation: int
    agent: str
    term: int  # the highest the agent has seen
    reports: list[Report]


# --- what agents and leaders say of themselves in ZooKeeper (JSON) -------------------------------


class AgentInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Data of an agent's claim on its inbox partition. The incarnation is the node's czxid."""

    name: str
    host: str
    pid: int
    slots: int
    tasks: tuple[str, ...]
    capabilities: tuple[str, ...] = ()
    since: float = 0.0
    draining: bool = False


class ClassPressure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One class in the pressure znode. Times are seconds, rates are tasks per second."""

    verdict: str  # "accept" | "slow" | "reject"
    fill: float
    pace: float = 0.0
    retry_after: float = 0.0
    depth: int = 0
    oldest: float = 0.0
    rate_in: float = 0.0
    rate_out: float = 0.0


class Pressure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pressure znode of a queue: JSON, written by the leader at most once a second."""

    term: int
    at: float
    classes: tuple[ClassPressure, ClassPressure, ClassPressure, ClassPressure]
    slots: int = 0
    busy: int = 0
    paused: bool = False


# --- control (JSON on the wire: any producer may write it) ---------------------------------------


class Control(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record of the control topic.

    `action` is ``cancel``, ``reprioritize``, ``pause`` or ``resume``.
    """

    action: str
    id: str | None = None
    priority: int | None = None
    reason: str = ""
    who: str = ""
