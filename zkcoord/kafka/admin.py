"""Topics: create, describe, compare, grow, trim, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from zkcoord.config import KafkaConfig
from zkcoord.kafka.record import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """How a topic must be.

    Attributes:
        name: full topic name.
        partitions: exact number at creation; more are fine later when `may_grow`.
        replication: replicas per partition.
        config: topic configuration, as strings.
        may_grow: more partitions than asked for are no mismatch.
    """

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)
    may_grow: bool = False


class Mismatch(NamedTuple):
    """One thing about a topic that is not as its spec says; `what` is the setting."""

    topic: str
    what: str
    wanted: str
    found: str


class TopicInfo(NamedTuple):
    """A topic as it is."""

    name: str
    partitions: int
    replication: int
    config: dict[str, str]


class Cluster(NamedTuple):
    """The brokers that answer."""

    id: str
    brokers: tuple[str, ...]


class Admin:
    """Looks after topics. Every call blocks for at most its timeout (seconds)."""

    def __init__(self, config: KafkaConfig, *, client_id: str = "zkcoord.admin") -> None: ...

    def cluster(self, timeout: float = 10.0) -> Cluster:
        """Id and broker addresses; the cheapest proof that Kafka answers."""
        raise NotImplementedError

    def topics(self, timeout: float = 10.0) -> list[str]:
        """Names of all topics visible to us, internal ones left out."""
        raise NotImplementedError

    def describe(self, names: Sequence[str], timeout: float = 10.0) -> dict[str, TopicInfo]:
        """What stands there; missing topics are left out."""
        raise NotImplementedError

    def create(self, specs: Sequence[TopicSpec], timeout: float = 30.0) -> list[str]:
        """Create what is missing and wait until it has leaders; returns what was created."""
        raise NotImplementedError

    def check(self, specs: Sequence[TopicSpec], timeout: float = 10.0) -> list[Mismatch]:
        """Compare without changing anything."""
        raise NotImplementedError

    def ensure(self, specs: Sequence[TopicSpec], timeout: float = 30.0) -> list[str]:
        """create, then check; raises TopicMismatch listing all that differs."""
        raise NotImplementedError

    def add_partitions(self, topic: str, total: int, timeout: float = 30.0) -> int:
        """Grow to `total` partitions; returns how many there are (never shrinks)."""
        raise NotImplementedError

    def trim(self, offsets: Mapping[Partition, int], timeout: float = 10.0) -> dict[Partition, int]:
        """Delete records below these offsets; returns the new beginnings."""
        raise NotImplementedError

    def offsets(self, topic: str, timeout: float = 10.0) -> dict[int, tuple[int, int]]:
        """(beginning, end) per partition."""
        raise NotImplementedError

    def delete(self, names: Sequence[str], timeout: float = 30.0) -> list[str]:
        """Delete topics and wait until they are gone; missing ones are fine."""
        raise NotImplementedError

    def close(self) -> None:
        """Free the client."""
