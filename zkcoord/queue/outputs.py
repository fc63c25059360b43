"""Send a leader's outputs and track their acknowledgement.

Records go out in *lanes*, one per partition. A lane keeps what is not acknowledged yet; when a
delivery fails, the failed record and all that follow it in the lane are sent again, in order, once
nothing of the lane is in flight any more. Receivers drop repeats, so sending again is always safe,
and an acknowledgement can only be lost, never invented.

Every record belongs to the batch at one log offset. When all records of a batch are acknowledged
the batch is *settled*, which moves the watermark that the next leader re-sends from.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from zkcoord.core.records import Headers
from zkcoord.errors import BufferFull, ProducerBroken, StreamError, TaskTooLarge
from zkcoord.kafka import Producer

log = logging.getLogger("zkcoord.queue")

RESEND_PAUSE_S = 0.1
RESEND_PAUSE_S_MAX = 5.0


class _Sent:
    """One record that is not known to be acknowledged."""

    __slots__ = ("acknowledged", "headers", "key", "lane", "offset", "round", "value")

    def __init__(
        self,
        lane: _Lane,
        offset: int,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
    ) -> None:
        self.lane = lane
        self.offset = offset  # of the batch in the log
        self.value = value
        self.key = key
        self.headers = headers
        self.acknowledged = False
        self.round = lane.round

    def again(self) -> _Sent:
        """The same record for the lane's next round."""
        return _Sent(self.lane, self.offset, self.value, self.key, self.headers)

    def on_ack(self, _offset: int | None, error: StreamError | None) -> None:
        """Called by the producer, from its `poll`."""
        if self.round == self.lane.round:  # else it was sent again meanwhile
            self.lane.heard(self, error)


class _Lane:
    """One partition: records in the order in which they must arrive."""

    __slots__ = (
        "broken_at",
        "in_flight",
        "outbox",
        "partition",
        "pause",
        "round",
        "topic",
        "waiting",
    )

    def __init__(self, outbox: Outbox, topic: str, partition: int | None) -> None:
        self.outbox = outbox
        self.topic = topic
        self.partition = partition
        self.waiting: deque[_Sent] = deque()
        self.in_flight = 0
        self.round = 0
        self.broken_at: float | None = None
        self.pause = 0.0  # before it is sent again; grows while it keeps failing

    def heard(self, sent: _Sent, error: StreamError | None) -> None:
        self.in_flight -= 1
        if error is not None and not isinstance(error, TaskTooLarge):
            self.fail(error)
            return
        if error is not None:
            # Sizes are bounded before they come here; never let one record stop the queue.
            log.error("output to %s dropped, it can never be sent: %s", self.topic, error)
        sent.acknowledged = True
        self.pause = 0.0
        waiting = self.waiting
        while waiting and waiting[0].acknowledged:
            self.outbox.release(waiting.popleft())

    def fail(self, error: StreamError) -> None:
        if self.broken_at is None:
            if self.pause == 0.0:
                log.warning(
                    "output to %s [%s] failed, it and what follows will be sent again: %s",
                    self.topic,
                    self.partition,
                    error,
                )
            self.pause = min(RESEND_PAUSE_S_MAX, max(RESEND_PAUSE_S, 2 * self.pause))
            self.outbox.broken.append(self)
        self.broken_at = time.monotonic()


class Outbox:
    """Sends records in order per partition and says when batches are settled.

    Not thread-safe: one leader's loop owns it.

    Args:
        connect: makes the producer, again when the old one is beyond repair.
        records_max: bound on records that are not acknowledged; see :attr:`is_full`.
    """

    def __init__(self, connect: Callable[[], Producer], *, records_max: int = 50_000) -> None:
        self._connect = connect
        self._producer = connect()
        self._records_max = records_max
        self._lanes: dict[tuple[str, int | None], _Lane] = {}
        self._open: dict[int, int] = {}  # log offset -> records not acknowledged
        self._count = 0
        self._settled: list[int] = []
        self.broken: list[_Lane] = []
        self._backlog: deque[_Sent] = deque()  # accepted here, not yet by the client's buffer

    @property
    def is_full(self) -> bool:
        """Whether more should be decided only after some of what is out has been acknowledged."""
        return self._count >= self._records_max

    @property
    def unacknowledged(self) -> int:
        """Records not acknowledged yet."""
        return self._count

    def hold(self, offset: int) -> None:
        """Keep the batch at `offset` open until :meth:`settle_when_sent`, whatever is heard."""
        self._open[offset] = self._open.get(offset, 0) + 1

    def settle_when_sent(self, offset: int) -> None:
        """All records of the batch at `offset` have been handed in."""
        self._close_one(offset)

    def send(
        self,
        topic: str,
        partition: int | None,
        value: bytes | None,
        *,
        offset: int,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Send one record that belongs to the batch at log offset `offset`; -1: to none.

        Without a partition the key chooses it; all such records of a topic are one lane.
        """
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane(self, topic, partition)
        sent = _Sent(lane, offset, value, key, headers)
        lane.waiting.append(sent)
        if offset >= 0:
            self._open[offset] = self._open.get(offset, 0) + 1
        self._count += 1
        if lane.broken_at is None:
            self._hand_over(sent)

    def serve(self, timeout: float = 0.0) -> list[int]:
        """Hear acknowledgements, send again what failed; the offsets settled since last time.

        Waits up to `timeout` seconds for an acknowledgement.
        """
        try:
            self._producer.poll(timeout)
        except ProducerBroken as error:
            self._rebuild(error)
        if self._backlog:
            backlog, self._backlog = self._backlog, deque()
            for sent in backlog:
                self._hand_over(sent)
        if self.broken:
            self._mend()
        settled, self._settled = self._settled, []
        return settled

    def release(self, sent: _Sent) -> None:
        """A record is acknowledged and everything before it in its lane too."""
        self._count -= 1
        if sent.offset >= 0:
            self._close_one(sent.offset)

    def close(self, timeout: float = 1.0) -> None:
        """Stop; what was handed over may still be delivered."""
        self._producer.close(timeout)

    def _close_one(self, offset: int) -> None:
        left = self._open[offset] - 1
        if left:
            self._open[offset] = left
        else:
            del self._open[offset]
            self._settled.append(offset)

    def _hand_over(self, sent: _Sent) -> None:
        lane = sent.lane
        if sent.round != lane.round or lane.broken_at is not None:
            return  # the whole lane is sent again
        if self._backlog:
            self._backlog.append(sent)
            return
        try:
            self._producer.send(
                lane.topic,
                sent.value,
                key=sent.key,
                headers=sent.headers,
                partition=lane.partition,
                on_ack=sent.on_ack,
            )
        except BufferFull:
            self._backlog.append(sent)
            return
        except StreamError as error:
            lane.in_flight += 1
            lane.heard(sent, error)
            return
        lane.in_flight += 1

    def _mend(self) -> None:
        now = time.monotonic()
        broken, self.broken = self.broken, []
        for lane in broken:
            if lane.in_flight > 0 or now - (lane.broken_at or 0.0) < lane.pause:
                self.broken.append(lane)
                continue
            lane.broken_at = None
            lane.round += 1
            # New objects, so that late news of the old sending is told apart.
            again = [sent.again() for sent in lane.waiting]
            lane.waiting = deque(again)
            for sent in again:
                self._hand_over(sent)

    def _rebuild(self, error: ProducerBroken) -> None:
        """Replace a producer that cannot go on; every lane sends again all it keeps."""
        log.warning("a new producer of outputs is made, the old one ended: %s", error)
        self._producer.close(0.0)
        self._producer = self._connect()
        self._backlog.clear()
        self.broken = list(self._lanes.values())
        for lane in self.broken:
            lane.in_flight = 0
            lane.round += 1  # what the old producer still says is no longer heard
            lane.broken_at = lane.broken_at or time.monotonic()
