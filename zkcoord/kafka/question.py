"""Ask brokers for end offsets without waiting for the answer.

A reader's own client cannot be used for that: on its connection the question stands behind a fetch,
which an idle partition holds for a tenth of a second, and the client lets one thread in at a time.
So all readers of a process that reach Kafka in the same way share one more client, which is made
when the first of them asks and freed when the last of them is closed.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from zkcoord.config import KafkaConfig
from zkcoord.errors import ZkcoordError
from zkcoord.kafka.handle import Handle, log
from zkcoord.kafka.options import Properties
from zkcoord.kafka.record import Partition

ASK_S = 1.0

_Key: TypeAlias = tuple[tuple[str, object], ...]


class Answer(NamedTuple):
    """End offsets by partition; None when no broker answered in time."""

    ends: dict[Partition, int] | None


class Question:
    """The ends of some partitions; `answer` is None until it came or was given up."""

    def __init__(self, places: Sequence[Partition]) -> None:
        self.places = places
        self.answer: Answer | None = None


class Asker:
    """Puts the questions of readers that share a way to Kafka, one by one, in a thread of its own.

    For ``read_committed`` the end is the beginning of the first open transaction.
    """

    def __init__(self, config: KafkaConfig, key: _Key, properties: Properties) -> None:
        self._config = config
        self._key = key
        self._properties = properties
        self._questions: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._started = False
        self.readers = 0

    def ask(self, places: Sequence[Partition]) -> Question:
        """Begin to ask; look at the question's `answer` later."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name="zkcoord-ends", daemon=True).start()
        question = Question(places)
        self._questions.put(question)
        return question

    def leave(self) -> None:
        """A reader is closed. Does not wait."""
        with _registry:
            self.readers -= 1
            if self.readers:
                return
            del _askers[self._key]
        self._questions.put(None)

    def _run(self) -> None:
        client: _Ends | None = None
        while (question := self._questions.get()) is not None:
            try:
                client = client or _Ends(self._config, self._properties)
                question.answer = Answer(client.ends(question.places))
            except (ZkcoordError, KafkaException) as error:
                log.debug("ends of %s: %s", question.places, error)
                question.answer = Answer(None)
        if client is not None:
            client.close()


class _Ends(Handle):
    """The client that asks."""

    def __init__(self, config: KafkaConfig, properties: Properties) -> None:
        super().__init__(config, str(properties["client.id"]))
        self._open(Consumer, properties)

    def ends(self, places: Sequence[Partition]) -> dict[Partition, int]:
        client = self._use()
        client.poll(0)  # only then does it tell its causes and drop what it has to say
        asked = [TopicPartition(*place, OFFSET_END) for place in places]
        answers = client.offsets_for_times(asked, timeout=ASK_S)
        return {(a.topic, a.partition): a.offset for a in answers if a.error is None}

    def close(self) -> None:
        self._shut(lambda client: client.close())


_registry = threading.Lock()
_askers: dict[_Key, Asker] = {}


def asker(config: KafkaConfig, properties: Properties) -> Asker:
    """The one for readers with these properties; call its `leave` once for every call of this."""
    shared: Properties = {**properties, "client.id": "zkcoord.ends"}
    key = tuple(sorted(shared.items()))
    with _registry:
        found = _askers.get(key)
        if found is None:
            found = _askers[key] = Asker(config, key, shared)
        found.readers += 1
    return found


def _forked() -> None:
    """The parent's threads and lock are not the child's."""
    global _registry  # noqa: PLW0603 - a lock that is held over the fork stays held
    _registry = threading.Lock()
    _askers.clear()


os.register_at_fork(after_in_child=_forked)
