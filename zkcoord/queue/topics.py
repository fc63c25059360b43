"""The topics of a queue: names, configuration, creation, checks."""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.kafka import Admin, Mismatch, TopicSpec

NAMESPACE = "zkcoord"


class Topics:
    """Names of one queue's topics: ``<namespace>.<queue>.<kind>``. Raises ConfigError."""

    def __init__(self, queue: str, *, namespace: str = NAMESPACE) -> None:
        self.queue = queue
        self.namespace = namespace
        prefix = f"{namespace}.{queue}."
        self.priorities = tuple(prefix + kind for kind in ("critical", "high", "normal", "low"))
        self.critical, self.high, self.normal, self.low = self.priorities
        self.control = prefix + "control"
        self.reports = prefix + "reports"
        self.log = prefix + "log"
        self.checkpoint = prefix + "checkpoint"
        self.inbox = prefix + "inbox"
        self.results = prefix + "results"
        self.dead = prefix + "dead"
        self.group = prefix + "reader"  # group.id of all readers
        self.transactional_id = prefix + "checkpoint"


def create(
    admin: Admin,
    topics: Topics,
    *,
    partitions: int = 1,
    inboxes: int = 16,
    replication: int | None = None,
    timeout: float = 30.0,
) -> list[str]:
    """Create what is missing, check the rest (TopicMismatch); returns what was created."""
    raise NotImplementedError


def check(admin: Admin, topics: Topics, *, timeout: float = 10.0) -> list[Mismatch]:
    """Everything about the queue's topics that its readers cannot rely on."""
    raise NotImplementedError


def grow_inboxes(admin: Admin, topics: Topics, total: int, *, timeout: float = 30.0) -> int:
    """Give the inbox topic `total` partitions at least; returns how many there are."""
    raise NotImplementedError


def delete(admin: Admin, topics: Topics, *, timeout: float = 30.0) -> list[str]:
    """Delete all topics of the queue with all their records."""
    raise NotImplementedError


def specs(
    topics: Topics, *, partitions: int, inboxes: int, replication: int
) -> Sequence[TopicSpec]:
    """The table of topics as specs."""
    raise NotImplementedError
