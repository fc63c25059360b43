"""The topics of a queue: names, configuration, creation, checks.

================  =============  ==============================  ===============================
kind              written by     cleanup                         holds
================  =============  ==============================  ===============================
critical … low    anyone         trimmed once consumed           submitted tasks
control           clients        trimmed once consumed           cancel, reprioritize, pause
reports           agents         trimmed once consumed           what became of attempts
log               leader         trimmed behind the checkpoint   batches of facts: the truth
checkpoint        leader         compact                         tasks that live long
inbox             leader         delete after 1 day              dispatches, partition = agent
results           leader         delete after 1 day              terminal facts for waiters
dead              leader         delete after 30 days            refused and exhausted tasks
================  =============  ==============================  ===============================
"""

from __future__ import annotations

import logging
import re
import time
from functools import lru_cache

from zkcoord.errors import BrokerUnavailable, ConfigError
from zkcoord.kafka import Admin, Mismatch, TopicSpec
from zkcoord.kafka.admin import mismatch_error

NAMESPACE = "zkcoord"
KINDS = (
    "critical",
    "high",
    "normal",
    "low",
    "control",
    "reports",
    "log",
    "checkpoint",
    "inbox",
    "results",
    "dead",
)

NAME_MAX = 100  # two of them, two dots and a kind stay below Kafka's 249
INBOXES_MAX = 10_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_MIB = 1024 * 1024
_HOUR_MS = 3_600_000

log = logging.getLogger("zkcoord.queue")


class Topics:
    """Names of one queue's topics: ``<namespace>.<queue>.<kind>``.

    No name holds a dot, so that ``a.b`` + ``c`` and ``a`` + ``b.c`` cannot meet, and an ACL on a
    prefix that ends with a dot covers exactly one queue or one namespace.

    Args:
        queue: letters, digits, ``_`` and ``-``, up to 100, not starting with a sign.
        namespace: the same.

    Attributes:
        priorities: the four input topics, CRITICAL first.
        critical, high, normal, low, control, reports, log, checkpoint, inbox, results, dead: names.
        group: the ``group.id`` of all readers (unused; readers need DESCRIBE on it under ACLs).
        transactional_id: of the checkpoint's writer, one per queue, so that a new leader fences.

    Raises:
        ConfigError: a name that cannot be used.
    """

    __slots__ = (
        "checkpoint",
        "control",
        "critical",
        "dead",
        "group",
        "high",
        "inbox",
        "log",
        "low",
        "namespace",
        "normal",
        "priorities",
        "queue",
        "reports",
        "results",
        "transactional_id",
    )

    def __init__(self, queue: str, *, namespace: str = NAMESPACE) -> None:
        problems = [
            f"{what}: {name!r} must be 1 to {NAME_MAX} letters, digits, '_' or '-', "
            "starting with a letter or digit (no dots)"
            for what, name in (("queue", queue), ("namespace", namespace))
            if not _NAME.fullmatch(name) or len(name) > NAME_MAX
        ]
        if problems:
            raise ConfigError("Topics: " + "; ".join(problems))
        self.queue = queue
        self.namespace = namespace
        prefix = f"{namespace}.{queue}."
        self.critical = prefix + "critical"
        self.high = prefix + "high"
        self.normal = prefix + "normal"
        self.low = prefix + "low"
        self.priorities = (self.critical, self.high, self.normal, self.low)
        self.control = prefix + "control"
        self.reports = prefix + "reports"
        self.log = prefix + "log"
        self.checkpoint = prefix + "checkpoint"
        self.inbox = prefix + "inbox"
        self.results = prefix + "results"
        self.dead = prefix + "dead"
        self.group = prefix + "reader"
        self.transactional_id = prefix + "checkpoint"

    @property
    def all(self) -> tuple[str, ...]:
        """Every topic of the queue."""
        return tuple(f"{self.namespace}.{self.queue}.{kind}" for kind in KINDS)

    def __repr__(self) -> str:
        return f"Topics({self.queue!r}, namespace={self.namespace!r})"


def specs(
    topics: Topics,
    *,
    partitions: int = 1,
    inboxes: int = 16,
    replication: int = 1,
    min_insync: int | None = None,
) -> list[TopicSpec]:
    """The table of topics.

    Args:
        topics: the names.
        partitions: of each priority topic, `reports`, `results` and `dead`.
        inboxes: partitions of `inbox`: how many agents can be there at a time (it grows later).
        replication: replicas per partition.
        min_insync: in-sync replicas a write needs; replication - 1, at least 1, when None.

    Raises:
        ConfigError: a number out of its bounds.
    """
    if min_insync is None:
        min_insync = max(1, replication - 1)
    problems = [
        text
        for holds, text in (
            (1 <= partitions <= 256, "partitions: must be within 1 and 256"),
            (1 <= inboxes <= INBOXES_MAX, f"inboxes: must be within 1 and {INBOXES_MAX}"),
            (1 <= replication <= 9, "replication: must be within 1 and 9"),
            (1 <= min_insync <= replication, "min_insync: must be within 1 and replication"),
        )
        if not holds
    ]
    if problems:
        raise ConfigError("topics: " + "; ".join(problems))
    kinds = _settings(min_insync)

    def topic(kind: str, count: int, *, grows: bool = False) -> TopicSpec:
        exact, least, initial = kinds[kind]
        return TopicSpec(
            name=f"{topics.namespace}.{topics.queue}.{kind}",
            partitions=count,
            replication=replication,
            config=exact,
            least=least,
            initial=initial,
            may_grow=grows,
        )

    return [
        *(topic(kind, partitions, grows=True) for kind in KINDS[:4]),
        topic("control", 1),
        topic("reports", partitions, grows=True),
        topic("log", 1),
        topic("checkpoint", 1),
        topic("inbox", inboxes, grows=True),
        topic("results", partitions, grows=True),
        topic("dead", partitions, grows=True),
    ]


def _settings(min_insync: int) -> dict[str, tuple[dict[str, str], dict[str, int], dict[str, str]]]:
    """Per kind: what must stand exactly, what at least, and what only matters at creation."""
    least = {"min.insync.replicas": min_insync}
    safe = {"unclean.leader.election.enable": "false"}
    large = {"max.message.bytes": str(2 * _MIB + 64 * 1024)}
    kept = {**safe, "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    # Time is the broker's, and a compressed bomb is refused by its real size.
    foreign = {
        **kept,
        "message.timestamp.type": "LogAppendTime",
        "compression.type": "uncompressed",
        "max.message.bytes": str(_MIB),
    }
    # What is trimmed is freed segment by segment: with the default of 1 GiB nothing would be.
    trimmed = {"segment.bytes": str(64 * _MIB)}
    compacted = {**safe, **large, "cleanup.policy": "compact"}
    often = {
        "segment.bytes": str(16 * _MIB),
        "segment.ms": "600000",
        "min.cleanable.dirty.ratio": "0.2",
    }

    def expiring(
        days: int, segment_mib: int
    ) -> tuple[dict[str, str], dict[str, int], dict[str, str]]:
        return (
            {**safe, **large, "cleanup.policy": "delete", "retention.bytes": "-1"},
            {**least, "retention.ms": _HOUR_MS},
            {
                "retention.ms": str(days * 24 * _HOUR_MS),
                "segment.bytes": str(segment_mib * _MIB),
            },
        )

    return {
        **dict.fromkeys((*KINDS[:4], "control"), (foreign, least, trimmed)),
        "reports": (foreign | large, least, trimmed),
        "log": (kept | large, least, trimmed),
        "checkpoint": (compacted, {**least, "delete.retention.ms": _HOUR_MS}, often),
        "inbox": expiring(1, 4),
        "results": expiring(1, 16),
        "dead": expiring(30, 64),
    }


def create(
    admin: Admin,
    topics: Topics,
    *,
    partitions: int = 1,
    inboxes: int = 16,
    replication: int | None = None,
    min_insync: int | None = None,
    timeout: float = 30.0,
) -> list[str]:
    """Create what is missing, check the rest; returns what was created.

    Without `replication` it follows the brokers: 3 with three or more, else as many as there are.
    A single copy is warned of, once per namespace and queue.

    Raises:
        TopicMismatch: names everything that differs from what readers rely on.
        BrokerUnavailable, StreamDenied, ConfigError: as for :class:`~zkcoord.kafka.Admin`.
    """
    deadline = time.monotonic() + timeout
    brokers = len(admin.cluster(timeout).brokers)
    copies = min(3, brokers) if replication is None else replication
    if copies > brokers:
        raise BrokerUnavailable(
            f"replication {copies} needs {copies} brokers, {brokers} are up",
            hint="start the others, or ask for less replication",
        )
    if copies == 1:
        _warn_single(topics.namespace, topics.queue)
    wanted = specs(
        topics,
        partitions=partitions,
        inboxes=inboxes,
        replication=copies,
        min_insync=min_insync,
    )
    return admin.ensure(wanted, max(0.1, deadline - time.monotonic()))


@lru_cache(maxsize=1024)
def _warn_single(namespace: str, queue: str) -> None:
    log.warning(
        "queue %s.%s has one copy of its data: a lost disk loses it; use three brokers to keep it",
        namespace,
        queue,
    )


def check(admin: Admin, topics: Topics, *, timeout: float = 10.0) -> list[Mismatch]:
    """Everything about the topics that the queue's readers cannot rely on; changes nothing.

    Missing topics, partition counts, and every setting of the table. Replication and
    ``min.insync.replicas`` are measured against what the brokers that are up allow: with three,
    fewer than three copies or two in sync are findings.
    """
    deadline = time.monotonic() + timeout
    brokers = len(admin.cluster(timeout).brokers)
    found = admin.describe(topics.all, max(0.1, deadline - time.monotonic()))
    wanted = specs(topics, inboxes=1, replication=min(3, brokers))
    return [m for spec in wanted for m in spec.compare(found.get(spec.name))]


def require(admin: Admin, topics: Topics, *, timeout: float = 10.0) -> None:
    """`check` for start-up: raises TopicMismatch naming everything that is not as it must be."""
    findings = check(admin, topics, timeout=timeout)
    if findings:
        raise mismatch_error(findings)


def grow_inboxes(admin: Admin, topics: Topics, total: int, *, timeout: float = 30.0) -> int:
    """Give the inbox topic at least `total` partitions; returns how many there are.

    Raises:
        ConfigError: `total` is out of bounds.
        TopicMismatch: the queue has no inbox topic.
    """
    if not 1 <= total <= INBOXES_MAX:
        raise ConfigError(f"inboxes: must be within 1 and {INBOXES_MAX}")
    return admin.add_partitions(topics.inbox, total, timeout)


def delete(admin: Admin, topics: Topics, *, timeout: float = 30.0) -> list[str]:
    """Delete all topics of the queue with all their records; returns those that were there."""
    return admin.delete(topics.all, timeout)
