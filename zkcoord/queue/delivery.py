"""Route a leader's outputs to their topics and report which batches are delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zkcoord.core.outputs import Output, Topic
from zkcoord.kafka import Producer
from zkcoord.queue.checkpointing import Checkpointing, Entry
from zkcoord.queue.duty import Duty
from zkcoord.queue.outputs import Outbox


class Delivery:
    """Everything that one leader sends, but the log itself.

    A batch is *settled* when all its records are acknowledged: those in the outbox's lanes, and
    its checkpoint entries, which a thread writes in transactions.

    Args:
        duty: the queue, and how to reach Kafka.
        connect: makes the producer, again when the old one is beyond repair.
        results: partitions of the results topic. An output for a partition that does not exist is
            dropped: the submitter named it, and nobody can listen there.
        may_write: whether the lease is still believed.
    """

    def __init__(
        self,
        duty: Duty,
        connect: Callable[[], Producer],
        *,
        results: int,
        may_write: Callable[[], bool],
    ) -> None:
        topics = duty.topics
        self._names = {
            int(Topic.INBOX): topics.inbox,
            int(Topic.RESULTS): topics.results,
            int(Topic.DEAD): topics.dead,
        }
        self.results = results
        self._outbox = Outbox(connect)
        self._checkpoint = Checkpointing(duty.queue, duty.checkpoint_writer, may_write)
        self._checkpoint.start()

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be decided before some of what is out was acknowledged."""
        return self._outbox.is_full or self._checkpoint.is_full

    @property
    def unacknowledged(self) -> int:
        """Records of the outbox that are not acknowledged; the checkpoint's are not counted."""
        return self._outbox.unacknowledged

    def send(self, outputs: Sequence[Output]) -> None:
        """Send outputs of batches that were read back, in their order."""
        outbox = self._outbox
        entries: list[Entry] = []
        batch = -1
        for output in outputs:
            offset = output.offset
            if offset != batch:
                self._handed_in(batch, entries)
                entries = []
                batch = offset
                if batch >= 0:
                    outbox.hold(batch)
            if output.topic == Topic.CHECKPOINT:
                entries.append((output.key or b"", output.value))
                continue
            partition = output.partition
            if output.topic == Topic.RESULTS and not 0 <= (partition or 0) < self.results:
                continue
            outbox.send(
                self._names[output.topic],
                partition,
                output.value,  # None for the dead letter of a null
                offset=offset,
                key=output.key,
                headers=output.headers,
            )
        self._handed_in(batch, entries)

    def serve(self, timeout: float = 0.0) -> list[int]:
        """Hear acknowledgements, mend what failed; log offsets of batches settled since."""
        for offset in self._checkpoint.settled():
            self._outbox.settle_when_sent(offset)
        return self._outbox.serve(timeout)

    def close(self, timeout: float = 1.0) -> None:
        """Stop. What was handed over may still be delivered; receivers drop repeats."""
        self._outbox.close(timeout)
        self._checkpoint.close(timeout)

    def _handed_in(self, batch: int, entries: list[Entry]) -> None:
        if batch < 0:
            return
        if entries:
            self._checkpoint.offer(batch, entries)  # holds the batch until it is written
        else:
            self._outbox.settle_when_sent(batch)
