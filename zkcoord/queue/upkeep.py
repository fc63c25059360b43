"""What a leader does once a second besides its loop: pressure, trimming, growth of topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing

from zkcoord.core.leader import Leader
from zkcoord.core.records import Source
from zkcoord.errors import TopicMismatch
from zkcoord.kafka import Ends, Partition
from zkcoord.queue.administration import pressure_path
from zkcoord.queue.delivery import Delivery
from zkcoord.queue.duty import Duty
from zkcoord.queue.growth import Growth
from zkcoord.queue.intake import Intake, topic_of
from zkcoord.queue.publication import Publication
from zkcoord.queue.trimming import History, Trimming

EVERY_S = 1.0
COUNT_TIMEOUT_S = 10.0


def count_partitions(duty: Duty, timeout: float) -> dict[str, int]:
    """How many partitions each topic that a leader reads or addresses has, by topic name.

    Raises:
        TopicMismatch: topics are missing.
        BrokerUnavailable: no answer in time.
    """
    topics = duty.topics
    names = [*(topic_of(topics, source) for source in Source), topics.results]
    with closing(duty.admin()) as admin:
        infos = admin.describe(names, timeout)
    missing = [name for name in names if name not in infos]
    if missing:
        raise TopicMismatch(
            f"topics of queue {duty.queue!r} are missing: {', '.join(missing)}",
            hint=f"create them: zkcoord queue create {duty.queue}",
        )
    return {name: info.partitions for name, info in infos.items()}


class Upkeep:
    """Pressure, trimming, growth, fresh end offsets. Nothing here blocks the leader's loop.

    Args:
        duty: the queue and the means.
        term: the leader's term; stands in the published pressure.
        partitions: per topic name.
        may_act: whether the lease is still believed.
    """

    def __init__(
        self, duty: Duty, term: int, partitions: Mapping[str, int], may_act: Callable[[], bool]
    ) -> None:
        self._duty = duty
        self._next = 0.0
        self._history = History(duty.config.history_s)
        self._ends = self._watch_ends(partitions)
        self._growth = Growth(
            duty.queue, lambda: count_partitions(duty, COUNT_TIMEOUT_S), partitions
        )
        self._growth.start()
        self._publication = Publication(duty.session, pressure_path(duty.queue), term)
        self._publication.start()
        self._trimming: Trimming | None = None
        if duty.config.trim:
            self._trimming = Trimming(duty.queue, duty.admin(), may_act)
            self._trimming.start()

    def note_batch(self, at: float, offset: int) -> None:
        """A batch was read back at log offset `offset` at wall-clock time `at`."""
        self._history.note(at, offset)

    def tick(self, leader: Leader, intake: Intake, delivery: Delivery, now: float) -> None:
        """Called by the loop whenever it likes; acts once a second. `now` is wall-clock time."""
        mono = time.monotonic()
        if mono < self._next:
            return
        self._next = mono + EVERY_S
        grown = self._growth.take()
        if grown is not None:
            self._grow(grown, leader, intake, delivery)
        intake.note_ends(self._ends.latest())
        self._publication.offer(leader.pressure(now, intake.unread()))
        if self._trimming is not None:
            self._trimming.offer(self._removable(leader, now))

    def close(self) -> None:
        """Stop the threads and free the clients."""
        self._growth.close()
        self._publication.close(0.5)
        if self._trimming is not None:
            self._trimming.close(0.5)
        self._ends.close()

    def _grow(
        self, counts: Mapping[str, int], leader: Leader, intake: Intake, delivery: Delivery
    ) -> None:
        topics = self._duty.topics
        intake.grow({s: counts[topic_of(topics, s)] for s in Source}, leader.consumed)
        delivery.results = counts[topics.results]
        self._ends.close()
        self._ends = self._watch_ends(counts)

    def _watch_ends(self, partitions: Mapping[str, int]) -> Ends:
        return Ends(
            self._duty.kafka,
            [(t, p) for t in self._duty.topics.priorities for p in range(partitions[t])],
            client_id=self._duty.client_id("ends"),
            every_s=EVERY_S,
        )

    def _removable(self, leader: Leader, now: float) -> dict[Partition, int]:
        """What nobody needs any more: by facts that were read back, so it only ever grows."""
        topics = self._duty.topics
        removable = {
            (topic_of(topics, Source(source)), partition): offset
            for (source, partition), offset in leader.consumed.items()
        }
        removable[topics.log, 0] = min(leader.trim(), self._history.behind(now))
        return removable
