"""Topics: create, describe, compare, grow, trim, delete."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from zkcoord.config import KafkaConfig
from zkcoord.errors import BrokerUnavailable, TopicMismatch, ZkcoordError
from zkcoord.kafka import translate
from zkcoord.kafka.handle import Handle
from zkcoord.kafka.options import admin_properties
from zkcoord.kafka.record import Partition
from zkcoord.kafka.settling import ask_until_settled

_PAUSE_S = 0.05  # between looks at metadata that has yet to reach all brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """How a topic must be.

    Attributes:
        name: full topic name.
        partitions: number at creation, and the exact number later unless `may_grow`.
        replication: replicas per partition at creation; fewer are a mismatch later, more are not.
        config: settings that must stand exactly so, at creation and later.
        least: settings that must not be below a number; -1 counts as unlimited.
        initial: settings at creation that the operator may change later.
        may_grow: more partitions than asked for are no mismatch.
    """

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)
    initial: Mapping[str, str] = field(default_factory=dict)
    may_grow: bool = False

    def settings(self) -> dict[str, str]:
        """The configuration to create the topic with."""
        least = {key: str(value) for key, value in self.least.items()}
        return {**least, **self.initial, **self.config}

    def compare(self, found: TopicInfo | None) -> list[Mismatch]:
        """What differs from this spec in a topic as it is; None stands for a missing one."""
        if found is None:
            return [Mismatch(self.name, "the topic", "there", "missing")]
        mismatches = []
        grown = self.may_grow and found.partitions > self.partitions
        if found.partitions != self.partitions and not grown:
            wanted = f"at least {self.partitions}" if self.may_grow else str(self.partitions)
            mismatches.append(Mismatch(self.name, "partitions", wanted, str(found.partitions)))
        if found.replication < self.replication:
            wanted = f"at least {self.replication}"
            mismatches.append(Mismatch(self.name, "replication", wanted, str(found.replication)))
        for key, value in self.config.items():
            there = found.config.get(key, "unset")
            if there != value:
                mismatches.append(Mismatch(self.name, key, value, there))
        for key, least in self.least.items():
            there = found.config.get(key, "unset")
            if not there.lstrip("-").isdigit() or -1 < int(there) < least:
                mismatches.append(Mismatch(self.name, key, f"at least {least}", there))
        return mismatches


class Mismatch(NamedTuple):
    """One thing about a topic that is not as its spec says; `what` is the setting."""

    topic: str
    what: str
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.what} must be {self.wanted}, is {self.found}"


class TopicInfo(NamedTuple):
    """A topic as it is. `leaderless` counts partitions that nobody leads at the moment."""

    name: str
    partitions: int
    replication: int
    config: dict[str, str]
    leaderless: int = 0


class Cluster(NamedTuple):
    """The brokers that are up: the cluster's id, their ``host:port``."""

    id: str
    brokers: tuple[str, ...]


class Admin(Handle):
    """Looks after topics. Every call blocks for at most its `timeout` seconds.

    All raise :class:`~zkcoord.errors.BrokerUnavailable` when no broker answers in time (it names
    the address and the likely cause) and :class:`~zkcoord.errors.StreamDenied` when refused.

    Raises:
        ConfigError: a refused property in ``config.librdkafka``.
    """

    def __init__(self, config: KafkaConfig, *, client_id: str = "zkcoord.admin") -> None:
        super().__init__(config, client_id)
        self._open(AdminClient, admin_properties(config, client_id=client_id))

    def cluster(self, timeout: float = 10.0) -> Cluster:
        """Id and addresses of the brokers; the cheapest proof that Kafka answers."""
        listed = self._list(None, timeout)
        brokers = sorted((node.host, node.port) for node in listed.brokers.values())
        return Cluster(listed.cluster_id or "", tuple(f"{host}:{port}" for host, port in brokers))

    def topics(self, timeout: float = 10.0) -> list[str]:
        """Names of all topics we may see, Kafka's own left out."""
        return sorted(n for n in self._list(None, timeout).topics if not n.startswith("__"))

    def describe(self, names: Sequence[str], timeout: float = 10.0) -> dict[str, TopicInfo]:
        """What stands there; missing topics are left out."""
        deadline = time.monotonic() + timeout
        shapes = self._shapes(names, timeout)
        if not shapes:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in shapes]
        configs = self._ask(
            "describe topics",
            deadline,
            lambda c, s: c.describe_configs(resources, request_timeout=s),
        )
        answers = {resource.name: entries for resource, entries in configs.items()}
        described = {}
        for name, (partitions, replication, leaderless) in shapes.items():
            entries = {k: e.value for k, e in answers.get(name, {}).items() if e.value is not None}
            described[name] = TopicInfo(name, partitions, replication, entries, leaderless)
        return described

    def create(self, specs: Sequence[TopicSpec], timeout: float = 30.0) -> list[str]:
        """Create what is missing and wait until it has leaders; returns what was created.

        Topics that exist stay as they are: see `check`.
        """
        deadline = time.monotonic() + timeout
        missing = {spec.name: spec for spec in specs}
        for name in self._shapes(list(missing), timeout):
            del missing[name]
        if not missing:
            return []
        new = [
            NewTopic(
                s.name,
                num_partitions=s.partitions,
                replication_factor=s.replication,
                config=s.settings(),
            )
            for s in missing.values()
        ]
        self._ask(
            "create topics",
            deadline,
            lambda c, s: c.create_topics(new, operation_timeout=s, request_timeout=s),
            fine=(KafkaError.TOPIC_ALREADY_EXISTS,),
        )
        wanted = list(missing)
        self._await(
            deadline,
            f"topics {', '.join(wanted)} to have leaders",
            lambda left: self._led(wanted, left),
        )
        return wanted

    def check(self, specs: Sequence[TopicSpec], timeout: float = 10.0) -> list[Mismatch]:
        """Compare what stands there with the specs, without changing anything."""
        found = self.describe([spec.name for spec in specs], timeout)
        mismatches: list[Mismatch] = []
        for spec in specs:
            mismatches += spec.compare(found.get(spec.name))
        return mismatches

    def ensure(self, specs: Sequence[TopicSpec], timeout: float = 30.0) -> list[str]:
        """`create`, then `check`; returns what was created.

        Raises:
            TopicMismatch: names every setting that differs.
        """
        deadline = time.monotonic() + timeout
        created = self.create(specs, timeout)
        mismatches = self.check(specs, max(0.1, deadline - time.monotonic()))
        if mismatches:
            raise mismatch_error(mismatches)
        return created

    def add_partitions(self, topic: str, total: int, timeout: float = 30.0) -> int:
        """Grow a topic to `total` partitions and wait for their leaders; never shrinks.

        Returns how many there are. Two callers at once are fine.
        """
        deadline = time.monotonic() + timeout
        have = self._count(topic, timeout)
        if have < total:
            grow = [NewPartitions(topic, total)]
            self._ask(
                f"add partitions to {topic}",
                deadline,
                lambda c, s: c.create_partitions(grow, operation_timeout=s, request_timeout=s),
                # Somebody else grew it first.
                fine=(KafkaError.INVALID_PARTITIONS,),
            )
            self._await(
                deadline,
                f"topic {topic} to have {total} partitions",
                lambda left: self._count(topic, left) >= total and self._led([topic], left),
            )
        return max(have, total)

    def trim(self, offsets: Mapping[Partition, int], timeout: float = 10.0) -> dict[Partition, int]:
        """Delete the records below these offsets; returns the new beginnings.

        An offset beyond the end is refused by the broker. Needs the right to DELETE on the topics.

        Raises:
            StreamError: a topic is compacted; those are never trimmed.
        """
        marks = [TopicPartition(t, p, offset) for (t, p), offset in offsets.items()]
        if not marks:
            return {}
        deadline = time.monotonic() + timeout
        names = ", ".join(sorted({t for t, _ in offsets}))
        answers = self._ask(
            f"trim {names} (compacted topics cannot be trimmed)",
            deadline,
            lambda c, s: c.delete_records(marks, request_timeout=s, operation_timeout=s),
        )
        return {(m.topic, m.partition): int(done.low_watermark) for m, done in answers.items()}

    def offsets(self, topic: str, timeout: float = 10.0) -> dict[int, tuple[int, int]]:
        """(beginning, end) per partition.

        Raises:
            TopicMismatch: there is no such topic.
            BrokerUnavailable: no answer in time.
        """
        return ask_until_settled(lambda left: self._offsets(topic, left), timeout)

    def _offsets(self, topic: str, timeout: float) -> dict[int, tuple[int, int]]:
        deadline = time.monotonic() + timeout
        parts = [TopicPartition(topic, n) for n in range(self._count(topic, timeout))]

        def ask(spec: OffsetSpec) -> dict[int, int]:
            asked = dict.fromkeys(parts, spec)
            found = self._ask(
                f"offsets of {topic}",
                deadline,
                lambda c, s: c.list_offsets(asked, request_timeout=s),
            )
            return {part.partition: int(answer.offset) for part, answer in found.items()}

        lows, highs = ask(OffsetSpec.earliest()), ask(OffsetSpec.latest())
        return {n: (lows[n], highs[n]) for n in sorted(highs)}

    def delete(self, names: Sequence[str], timeout: float = 30.0) -> list[str]:
        """Delete topics and wait until they are gone; returns those that were there."""
        deadline = time.monotonic() + timeout
        there = list(self._shapes(names, timeout))
        if there:
            self._ask(
                f"delete {', '.join(there)}",
                deadline,
                lambda c, s: c.delete_topics(there, operation_timeout=s, request_timeout=s),
                fine=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
            )
            gone = f"topics {', '.join(there)} to be gone"
            self._await(deadline, gone, lambda left: not self._shapes(there, left))
        return there

    def close(self) -> None:
        """Free the client. Harmless when closed, or in a forked child."""
        self._shut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _list(self, topic: str | None, timeout: float) -> Any:
        client = self._use()
        try:
            if topic is None:
                return client.list_topics(timeout=max(timeout, 0.01))
            return client.list_topics(topic, timeout=max(timeout, 0.01))
        except KafkaException as error:
            raise self._translated(error, "asking for metadata") from error

    def _shapes(self, names: Sequence[str], timeout: float) -> dict[str, tuple[int, int, int]]:
        """(partitions, replication, leaderless) of the topics that exist, in order of `names`."""
        if not names:
            return {}
        collection = TopicCollection(list(names))
        answers = self._ask(
            "describe topics",
            time.monotonic() + timeout,
            lambda c, s: c.describe_topics(collection, request_timeout=s),
            fine=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
        )
        shapes = {}
        for name in names:
            answer = answers.get(name)
            if answer is None:
                continue
            parts = answer.partitions
            leaderless = sum(p.leader is None or p.leader.id < 0 for p in parts)
            shapes[name] = (len(parts), min(len(p.replicas) for p in parts), leaderless)
        return shapes

    def _count(self, topic: str, timeout: float) -> int:
        shapes = self._shapes([topic], timeout)
        if topic not in shapes:
            raise TopicMismatch(f"topic {topic!r} does not exist", hint="create the queue first")
        return shapes[topic][0]

    def _led(self, names: Sequence[str], timeout: float) -> bool:
        """Whether all of them have leaders, in the eyes of the broker that clients ask too."""
        listed = self._list(None, timeout).topics
        for name in names:
            topic = listed.get(name)
            if topic is None or topic.error is not None or not topic.partitions:
                return False
            if any(p.error is not None or p.leader < 0 for p in topic.partitions.values()):
                return False
        return True

    def _await(self, deadline: float, what: str, holds: Callable[[float], bool]) -> None:
        while not holds(max(0.1, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                raise BrokerUnavailable(f"waited in vain for {what} at {self._bootstrap}")
            time.sleep(_PAUSE_S)

    def _ask(
        self,
        what: str,
        deadline: float,
        call: Callable[[AdminClient, float], dict[Any, Future[Any]]],
        fine: tuple[int, ...] = (),
    ) -> dict[Any, Any]:
        """Make one admin request; answers whose error is `fine` are left out."""
        client = self._use()
        left = max(0.1, deadline - time.monotonic())
        answers = {}
        try:
            for key, future in call(client, left).items():
                try:
                    # The request ends by itself in time; the second is for its way back.
                    answers[key] = future.result(left + 1.0)
                except KafkaException as error:
                    if translate.of(error).code() not in fine:
                        raise
        except KafkaException as error:
            raise self._translated(error, what) from error
        except FutureTimeout as error:
            raise BrokerUnavailable(f"{what}: no answer from {self._bootstrap} in time") from error
        return answers

    def _translated(self, error: KafkaException, what: str) -> ZkcoordError:
        self._use().poll(0)  # lets the client tell its causes
        what = f"{what} at {self._bootstrap}"
        return translate.stream_error(translate.of(error), what, self._causes)


def mismatch_error(mismatches: Sequence[Mismatch]) -> TopicMismatch:
    """One error that names all of them."""
    return TopicMismatch(
        "; ".join(str(mismatch) for mismatch in mismatches),
        hint="alter the topic, or use another queue or namespace",
    )
