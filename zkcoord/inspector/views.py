"""What the inspector says about things, as values.

Times are wall-clock seconds since 1970 (0.0 when unknown), ages and durations are seconds, rates
are tasks per second. ``msgspec.to_builtins`` turns each into what ``--json`` prints.
"""

from __future__ import annotations

import msgspec


class ClassView(msgspec.Struct, frozen=True, kw_only=True):
    """One priority class of a queue, as its leader last published it.

    Attributes:
        priority: ``critical``, ``high``, ``normal`` or ``low``.
        verdict: ``accept``, ``slow``, ``reject``, or ``unknown`` when nothing is published.
        fill: predicted start delay over the class's budget.
        depth: tasks that wait. oldest: age of the one that waits longest.
        unread: records in the class's topic; trimmed behind what has been read.
    """

    priority: str
    verdict: str = "unknown"
    fill: float = 0.0
    pace: float = 0.0
    retry_after: float = 0.0
    depth: int = 0
    oldest: float = 0.0
    rate_in: float = 0.0
    rate_out: float = 0.0
    budget: float = 0.0
    floor: float = 0.0
    reserved_slots: int = 0
    unread: int | None = None


class ContenderView(msgspec.Struct, frozen=True, kw_only=True):
    """A node in the queue of a lock or an election, first come first.

    Attributes:
        place: 0 holds; n waits behind n others.
        name: what the contender calls itself. host, pid: its process.
        token: its fencing token; of an election's leader, the term.
        session: the ZooKeeper session that owns the node, in hexadecimal.
        since: when it entered the queue. age: for how long it has been there.
        shared: it is a reader, which does not exclude other readers.
        revocable: it listens when it is asked to let go. revoked: why it was asked; empty when it
            was not.
    """

    place: int
    name: str
    host: str
    pid: int
    token: int
    session: str
    since: float
    age: float
    shared: bool = False
    revocable: bool = False
    revoked: str = ""


class LockView(msgspec.Struct, frozen=True, kw_only=True):
    """A lock: who holds it, who waits, in order.

    Attributes:
        holder: the first who holds it; None when it is free.
        holders: all who hold it: that one, or several readers.
        waiters: behind them, in order.
    """

    name: str
    path: str
    holder: ContenderView | None
    waiters: list[ContenderView]
    holders: list[ContenderView] = []


class PermitView(ContenderView, frozen=True, kw_only=True):
    """A contender of a semaphore: `weight` is how many permits it holds, or asks for."""

    weight: int


class SemaphoreView(msgspec.Struct, frozen=True, kw_only=True):
    """A semaphore.

    Attributes:
        permits: the limit; 0 when nobody uses it and none is stored.
        declared: the limit that its first user named.
        held: the sum of what is held; above `permits` while a forced resize drains.
        waiting: how many requests wait.
        holders, waiters: the first 10,000 of them, in order.
        problem: why it cannot be read; empty when it can.
    """

    name: str
    path: str
    permits: int
    declared: int
    held: int
    waiting: int
    holders: list[PermitView]
    waiters: list[PermitView]
    problem: str = ""


class SlotView(msgspec.Struct, frozen=True, kw_only=True):
    """A slot of a pool: who has it, and whether it is drained, so not given out any more."""

    slot: str
    drained: bool
    holder: ContenderView | None


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A pool: its slots, in order, how many requests wait, and why it cannot be read."""

    name: str
    path: str
    slots: list[SlotView]
    waiting: int
    problem: str = ""


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group.

    Attributes:
        token: its incarnation. session: as for a contender; empty for a node that stays.
        since: when it joined. age: for how long it has been there.
        capabilities, capacity, load: of its profile; None when it joined without one.
        data: what it publishes beside.
    """

    name: str
    token: int
    session: str
    since: float
    age: float
    capabilities: list[str] | None
    capacity: float | None
    load: float | None
    data: bytes


class ElectionView(msgspec.Struct, frozen=True, kw_only=True):
    """An election: who leads in which term, who stands by, in order."""

    name: str
    path: str
    leader: ContenderView | None
    standbys: list[ContenderView]


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of a queue, from its claim on an inbox partition."""

    queue: str
    name: str
    host: str
    pid: int
    slots: int
    partition: int
    incarnation: int
    tasks: list[str]
    capabilities: list[str]
    since: float
    age: float
    draining: bool


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    """A topic of a queue: its partitions, and how many records stand in it."""

    kind: str
    name: str
    partitions: int
    records: int


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one moment.

    Attributes:
        verdict: the worst verdict of its classes.
        pressure_age: seconds since the leader published; None when it never did.
        slots, busy: of all agents, as the leader counts them.
        problem: why its description cannot be read; empty when it can. Then nothing else is known.
    """

    name: str
    namespace: str
    verdict: str
    classes: list[ClassView]
    paused: bool
    slots: int
    busy: int
    pressure_age: float | None
    pressure_term: int | None
    leader: ContenderView | None
    standbys: list[ContenderView]
    agents: int
    problem: str = ""

    @property
    def depth(self) -> int:
        """Tasks that wait, all classes."""
        return sum(c.depth for c in self.classes)

    @property
    def oldest(self) -> float:
        """Age of the task that waits longest."""
        return max((c.oldest for c in self.classes), default=0.0)


class QueueDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its agents, topics and settings."""

    queue: QueueView
    agents: list[AgentView]
    topics: list[TopicView]
    settings: dict[str, object]


class TaskView(msgspec.Struct, kw_only=True, gc=False):
    """A task as the log tells it.

    Attributes:
        state: ``pending``, ``running``, ``waiting``, ``retrying``, ``succeeded``, ``failed``,
            ``cancelled``, ``dead`` or ``rejected``.
        attempt: the current or last attempt; 0 when none was dispatched.
        submitted: the broker's timestamp of its record. accepted: when intake took it.
        partition: the inbox partition of the agent that has or had it.
        due: the earliest start, for waiting and retrying tasks.
        reason: why it ended, or why it was put back. error: of the last attempt that failed.
        result: JSON text, of a task that succeeded.
    """

    id: str
    task: str
    state: str
    priority: str
    attempt: int = 0
    tenant: str | None = None
    requires: tuple[str, ...] = ()
    submitted: float = 0.0
    accepted: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    changed: float = 0.0
    due: float = 0.0
    expires_at: float | None = None
    partition: int | None = None
    reason: str = ""
    error: str = ""
    result: str | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in TERMINAL


TERMINAL = frozenset({"succeeded", "failed", "cancelled", "dead", "rejected"})

STATES = ("pending", "running", "waiting", "retrying", *sorted(TERMINAL))


class FactView(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a task: when, what, and where the log has it."""

    at: float
    what: str
    attempt: int
    detail: str
    offset: int


class TaskHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A task and everything that the log still has about it, oldest first.

    `complete` is false when the log's beginning was trimmed before the task was accepted.
    """

    task: TaskView
    facts: list[FactView]
    complete: bool


class DeadView(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter: the record as it was submitted, and why it is here.

    Attributes:
        fact: its identity, ``<log offset>.<place in the batch>``.
        where: ``partition/offset`` in the topic of dead letters.
        source: ``class/partition/offset`` where the record stood.
        submitted: when it was written. died: when it was given up.
        key, value, headers: the original, byte for byte unless `size` says otherwise.
        size, sha256: of the whole original value when something was cut off; else 0 and empty.
    """

    where: str
    fact: str
    id: str | None
    task: str | None
    reason: str
    error: str
    attempts: int
    source: str
    submitted: float
    died: float
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    size: int = 0
    sha256: str = ""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A znode.

    Attributes:
        size: bytes of its value. version: changes to it. children: how many.
        session: the session that owns an ephemeral node, in hexadecimal; else empty.
        czxid, mzxid: transactions that created it and last changed its value.
        created, changed: the same as wall clock of the server.
        data: its value, None where it was not read.
        denied: in a tree: what lies below it may not be seen. Where its Stat may not be seen
            either, the numbers are 0.
    """

    path: str
    size: int
    version: int
    children: int
    session: str
    czxid: int
    mzxid: int
    created: float
    changed: float
    data: bytes | None = None
    denied: bool = False
