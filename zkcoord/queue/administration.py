"""Create, find and describe queues.

A queue exists when its config znode does: ``/queues/<queue>/config`` holds what all parties agree
on, as JSON. The topics are created first and the znode last, so that whoever finds the znode finds
the topics; creating a queue again is safe, and finishes one that was interrupted.

Layout below the session's chroot::

    /queues/<queue>/config             QueueDescription, JSON
    /queues/<queue>/election           the schedulers' election
    /queues/<queue>/inbox/<partition>  agents' claims, ephemeral
    /queues/<queue>/pressure           what the leader publishes
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from zkcoord.config import QueueConfig
from zkcoord.errors import ConfigError, NodeExists, NodeMissing
from zkcoord.kafka import Admin
from zkcoord.queue import topics as queue_topics
from zkcoord.queue.topics import NAMESPACE, Topics
from zkcoord.zk import Session

ROOT = "/queues"


def queue_path(queue: str) -> str:
    """The folder of a queue, below the session's chroot."""
    return f"{ROOT}/{queue}"


def config_path(queue: str) -> str:
    """The znode that holds the queue's description."""
    return f"{ROOT}/{queue}/config"


def inbox_path(queue: str) -> str:
    """The folder of agents' claims; a claim is named by its partition."""
    return f"{ROOT}/{queue}/inbox"


def pressure_path(queue: str) -> str:
    """The znode that holds the queue's pressure."""
    return f"{ROOT}/{queue}/pressure"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDescription:
    """What stands in a queue's config znode.

    Attributes:
        queue: its name.
        namespace: prefix of its topics.
        partitions: of each topic that is spread: priorities, reports, results, dead letters.
        inboxes: partitions of the inbox topic at creation; it grows with the agents.
        config: what all parties agree on.
        version: format of this record.
    """

    queue: str
    namespace: str = NAMESPACE
    partitions: int = 1
    inboxes: int = 16
    config: QueueConfig = field(default_factory=QueueConfig)
    version: int = 1

    def __post_init__(self) -> None:
        if not (1 <= self.partitions <= 1000 and 1 <= self.inboxes <= 10_000):
            raise ConfigError(
                f"queue {self.queue!r}: partitions must be within 1 and 1000, "
                "inboxes within 1 and 10000"
            )
        Topics(self.queue, namespace=self.namespace)  # ConfigError for a name that cannot work

    @property
    def topics(self) -> Topics:
        """The names of the queue's topics."""
        return Topics(self.queue, namespace=self.namespace)

    def to_json(self) -> bytes:
        """As it stands in the znode."""
        return msgspec.json.encode(self)


def from_json(data: bytes, *, queue: str) -> QueueDescription:
    """Read a config znode.

    Raises:
        ConfigError: the znode holds something else; the message says what.
    """
    try:
        return msgspec.json.decode(data, type=QueueDescription)
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(
            f"{config_path(queue)} does not describe a queue: {error}",
            hint="repair the znode, or create the queue again under another name",
        ) from error


def create_queue(
    session: Session,
    admin: Admin,
    description: QueueDescription,
    *,
    replication: int | None = None,
    timeout: float = 30.0,
) -> QueueDescription:
    """Create the topics and the config znode of a queue; both may be there already.

    A queue that exists keeps its configuration: what is returned is what stands in ZooKeeper.

    Args:
        session: where the description goes.
        admin: where the topics go.
        description: what to create.
        replication: replicas of each topic; None takes what suits the number of brokers.
        timeout: seconds for each request.

    Raises:
        TopicMismatch: a topic exists with a configuration that cannot work.
        EnsembleUnavailable, BrokerUnavailable: no server answered in time.
    """
    path = config_path(description.queue)
    if session.nodes.exists(path) is not None:
        description = describe_queue(session, description.queue)
    queue_topics.create(
        admin,
        description.topics,
        partitions=description.partitions,
        inboxes=description.inboxes,
        replication=replication,
        timeout=timeout,
    )
    try:
        session.nodes.create(path, description.to_json(), makepath=True, timeout=timeout)
    except NodeExists:
        return describe_queue(session, description.queue)
    return description


def describe_queue(session: Session, queue: str) -> QueueDescription:
    """What the config znode of `queue` says.

    Raises:
        NodeMissing: there is no such queue; the hint says how to create it.
        ConfigError: the znode holds something else.
    """
    try:
        data, _ = session.nodes.get(config_path(queue))
    except NodeMissing as error:
        raise NodeMissing(
            f"there is no queue {queue!r}", hint=f"create it: zkcoord queue create {queue}"
        ) from error
    return from_json(data, queue=queue)


def list_queues(session: Session) -> list[str]:
    """The names of all queues, sorted; folders without a config znode are left out."""
    try:
        names = session.nodes.children(ROOT)
    except NodeMissing:
        return []
    return sorted(n for n in names if session.nodes.exists(config_path(n)) is not None)


def check_queue(admin: Admin, description: QueueDescription, *, timeout: float = 10.0) -> None:
    """Check that the topics are there and configured as their readers rely on.

    Raises:
        TopicMismatch: lists everything that differs.
        BrokerUnavailable: no broker answered in time.
    """
    queue_topics.require(admin, description.topics, timeout=timeout)
