"""The submitting side of a queue: admission, records, confirmations.

A submission is one record on the topic of its class. It counts as submitted when the broker has
confirmed it (``acks=all``). Whether it may be written is decided here, from the watched pressure.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from zkcoord.config import KafkaConfig, SubmitterConfig
from zkcoord.core import wire
from zkcoord.core.records import Control, Pressure
from zkcoord.core.verdict import REJECT, SLOW, Verdict
from zkcoord.errors import (
    BufferFull,
    ProducerBroken,
    PublishTimeout,
    Rejected,
    StreamClosed,
    StreamError,
    TaskTooLarge,
)
from zkcoord.kafka import OnAck, Producer
from zkcoord.queue.administration import QueueDescription, describe_queue, pressure_path
from zkcoord.queue.ids import new_id
from zkcoord.queue.options import TaskOptions
from zkcoord.queue.pressure import Edge
from zkcoord.queue.results import ResultsReader
from zkcoord.queue.ticket import Decode, Latch, Ticket
from zkcoord.zk import Session
from zkcoord.zk.blocking import refuse_in_event_loop

log = logging.getLogger("zkcoord.queue")

POLL_S = 0.1
FULL_PAUSE_S = 0.005
RETRY_SPREAD = 1.25

_random = random.SystemRandom()
_encode_control = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Order:
    """One submission: what to run, how, and how to read its result."""

    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: TaskOptions
    decode: Decode


class Submitter:
    """Writes tasks for one queue. Thread-safe; not usable in a forked child.

    Args:
        queue: its name.
        kafka: how to reach Kafka.
        config: bounds.
        session: started; for the queue's znodes.
        owns_session: whether it is ours to close.

    Raises:
        NodeMissing: there is no such queue.
        EnsembleUnavailable: no ZooKeeper server answered in time.
    """

    def __init__(
        self,
        queue: str,
        kafka: KafkaConfig,
        config: SubmitterConfig,
        *,
        session: Session,
        owns_session: bool,
    ) -> None:
        self._pid = os.getpid()
        self._kafka = kafka
        self._config = config
        self._client_id = f"zkcoord.submit.{queue}"
        self._session = session
        self._owns_session = owns_session
        self.description: QueueDescription = describe_queue(session, queue)
        self._edge = Edge(session, pressure_path(queue), self.description.config)
        self._edge.wait_first(config.open_s)
        self._topics = self.description.topics
        self._limits = wire.Limits(value_bytes_max=self.description.config.value_bytes_max)
        self._lock = threading.Lock()
        self._results: ResultsReader | None = None
        self._results_lock = threading.Lock()
        self._closed = threading.Event()
        self._producer = self._new_producer()
        self._poller = threading.Thread(target=self._poll, name="zkcoord-submit", daemon=True)
        self._poller.start()

    # --- submitting -------------------------------------------------------------------------------

    def submit(self, order: Order) -> Ticket[Any]:
        """Admit, write, and wait for the broker's confirmation."""
        until = time.monotonic() + self._config.submit_s
        verdict = self.admit(order.options)
        if verdict.kind == SLOW:
            self._sleep(verdict.pace, until)
        ticket, value = self._draw(order, verdict)
        while not self._write(order, ticket, value, until):
            self._sleep(FULL_PAUSE_S, until)
        try:
            ticket.confirmed.result(max(0.0, until - time.monotonic()))
        except TimeoutError as error:
            self._reraise_or_time_out(error, ticket)
        return ticket

    def submit_nowait(self, order: Order) -> Ticket[Any]:
        """Admit and hand over to the send buffer; never waits, not even the pace."""
        if order.options.result and self._results is None:
            refuse_in_event_loop("the first submission", "async with queue: ...")
        verdict = self.admit(order.options)
        ticket, value = self._draw(order, verdict)
        self._write(order, ticket, value, None)
        return ticket

    async def submit_async(self, order: Order) -> Ticket[Any]:
        """:meth:`submit` for asyncio."""
        until = time.monotonic() + self._config.submit_s
        verdict = self.admit(order.options)
        if verdict.kind == SLOW:
            await asyncio.sleep(min(verdict.pace, max(0.0, until - time.monotonic())))
        if order.options.result and self._results is None:
            await asyncio.to_thread(self.open_results)
        ticket, value = self._draw(order, verdict)
        while True:
            if self._write(order, ticket, value, until):
                break
            await asyncio.sleep(FULL_PAUSE_S)
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await asyncio.wrap_future(ticket.confirmed)
        except TimeoutError as error:
            self._reraise_or_time_out(error, ticket)
        return ticket

    def admit(self, options: TaskOptions) -> Verdict:
        """What admission says. No network; well below 50 microseconds.

        Raises:
            Rejected: the class is full, or the deadline cannot be met.
        """
        self._check_open()
        # What the queue will look like when a delayed task may start, nobody knows.
        deadline = None if options.delay else options.deadline
        verdict = self._edge.decide(options.priority, deadline)
        if verdict.kind == REJECT:
            name = options.priority.name
            why = (
                f"the deadline of {options.deadline:g} s cannot be met"
                if verdict.reason in ("infeasible", "expired")
                else f"class {name} is full"
            )
            # Never less than promised, and not the same for all who were refused at once.
            retry_after = verdict.retry_after * _random.uniform(1.0, RETRY_SPREAD)
            raise Rejected(
                f"queue {self.description.queue!r} refused a {name} task: {why};"
                f" try again in {retry_after:.1f} s",
                reason=verdict.reason,
                retry_after=retry_after,
            )
        return verdict

    @property
    def pressure(self) -> Pressure | None:
        """What the leader published last, as far as known."""
        self._check_open()
        return self._edge.pressure

    # --- control ----------------------------------------------------------------------------------

    def control(self, control: Control, *, timeout: float | None = None) -> None:
        """Write a control record and wait until it is confirmed."""
        limit = self._config.submit_s if timeout is None else timeout
        latch = self._send_control(control)
        try:
            latch.future().result(limit)
        except TimeoutError as error:
            if isinstance(error, StreamError):
                raise
            raise _control_unconfirmed(control) from None

    async def control_async(self, control: Control) -> None:
        """:meth:`control` for asyncio."""
        latch = self._send_control(control)
        try:
            async with asyncio.timeout(self._config.submit_s):
                await asyncio.wrap_future(latch.future())
        except TimeoutError as error:
            if isinstance(error, StreamError):
                raise
            raise _control_unconfirmed(control) from None

    def open_results(self) -> ResultsReader:
        """Begin to listen for results; again: no effect. Blocks for a moment."""
        with self._results_lock:
            self._check_open()
            if self._results is None:
                partition = _random.randrange(self.description.partitions)
                self._results = ResultsReader(
                    self._kafka,
                    self._topics,
                    partition=partition,
                    waiting_max=self._config.waiting_max,
                    client_id=self._client_id,
                    timeout=self._config.open_s,
                )
            return self._results

    # --- life -------------------------------------------------------------------------------------

    def flush(self, timeout: float) -> int:
        """Wait until everything handed over is confirmed or failed; returns how much is left."""
        self._check_open()
        until = time.monotonic() + timeout
        while (left := self._producer.unacknowledged) and time.monotonic() < until:
            self._sleep(FULL_PAUSE_S, until)
        return left

    def close(self, timeout: float) -> None:
        """Flush for at most `timeout` seconds and let go of everything. Harmless twice."""
        if os.getpid() != self._pid or self._closed.is_set():
            return
        self._closed.set()
        self._poller.join(POLL_S + 1.0)
        self._producer.close(timeout)
        with self._results_lock:
            if self._results is not None:
                self._results.close()
        self._edge.close()
        if self._owns_session:
            self._session.close()

    # ----------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise StreamClosed(
                f"queue {self.description.queue!r} was first used before this process was forked",
                hint="use the queue for the first time in the child, or make a new Queue there",
            )
        if self._closed.is_set():
            raise StreamClosed(f"queue {self.description.queue!r} is closed")

    def _draw(self, order: Order, verdict: Verdict) -> tuple[Ticket[Any], bytes]:
        """The ticket and the record's value."""
        options = order.options
        outcome = None
        reply = None
        task_id = options.id or new_id()
        if options.result:
            reader = self._results or self.open_results()
            reply = reader.partition
            outcome = reader.expect(task_id)
        value = wire.encode(self._draft(order, task_id, reply), self._limits)
        if len(value) > self._limits.value_bytes_max:
            raise TaskTooLarge(
                f"task {order.task!r}: its record would have {len(value)} bytes, the queue takes"
                f" {self._limits.value_bytes_max}",
                hint="store the data elsewhere and pass where it is",
            )
        ticket: Ticket[Any] = Ticket(
            self,
            task_id=task_id,
            task=order.task,
            verdict=verdict,
            decode=order.decode,
            outcome=outcome,
        )
        return ticket, value

    def _draft(self, order: Order, task_id: str, reply: int | None) -> wire.Draft:
        options = order.options
        now = 0.0
        if options.deadline is not None or options.delay is not None:
            now = time.time()
        return wire.Draft(
            id=task_id,
            task=order.task,
            args=order.args,
            kwargs=order.kwargs,
            source=self._config.source,
            expires_at=None if options.deadline is None else now + options.deadline,
            not_before=None if options.delay is None else now + options.delay,
            timeout=options.timeout,
            attempts=options.attempts,
            delay=options.retry,
            tenant=options.tenant,
            requires=options.requires,
            reply=reply,
            trace=options.trace,
        )

    def _write(self, order: Order, ticket: Ticket[Any], value: bytes, until: float | None) -> bool:
        """Hand the record to the producer; False when its buffer is full and there is time left."""
        options = order.options
        key = None if options.key is None else options.key.encode()
        topic = self._topics.priorities[options.priority]
        try:
            self._send(topic, value, key, ticket.on_ack)
        except BufferFull:
            if until is not None and time.monotonic() < until:
                return False
            raise
        return True

    def _send(self, topic: str, value: bytes, key: bytes | None, on_ack: OnAck) -> None:
        with self._lock:
            self._check_open()
            self._producer.send(
                topic, value, key=key, headers=wire.STRUCTURED_HEADERS, on_ack=on_ack
            )

    def _send_control(self, control: Control) -> Latch[int]:
        self._check_open()  # before the lock, which a fork may have left held
        latch: Latch[int] = Latch()

        def on_ack(offset: int | None, error: StreamError | None) -> None:
            if error is None:
                latch.settle(-1 if offset is None else offset)
            else:
                latch.fail(error)

        with self._lock:
            self._producer.send(self._topics.control, _encode_control(control), on_ack=on_ack)
        return latch

    def _new_producer(self) -> Producer:
        return Producer(
            self._kafka,
            client_id=self._client_id,
            linger_s=self._config.linger_s,
            buffer_records=self._config.buffer_records,
            buffer_bytes=self._config.buffer_bytes,
        )

    def _poll(self) -> None:
        """Deliver confirmations; replace a producer that is beyond repair."""
        while not self._closed.is_set():
            try:
                self._producer.poll(POLL_S)
            except StreamClosed:
                return
            except ProducerBroken as error:
                log.warning("queue %s: a new producer is made: %s", self.description.queue, error)
                with self._lock:
                    broken, self._producer = self._producer, self._new_producer()
                broken.close(0.0)  # what it had left is told that it failed

    def _sleep(self, pause: float, until: float) -> None:
        self._closed.wait(min(pause, max(0.0, until - time.monotonic())))

    def _reraise_or_time_out(self, error: TimeoutError, ticket: Ticket[Any]) -> None:
        if isinstance(error, StreamError):
            raise error
        raise PublishTimeout(
            f"task {ticket.id} ({ticket.task}) was not confirmed within"
            f" {self._config.submit_s:g} s: it may or may not have been written",
            hint="submit it again with options(id=…): while it lives the repeat is dropped",
        ) from None


def _control_unconfirmed(control: Control) -> PublishTimeout:
    return PublishTimeout(
        f"the request to {control.action} {control.id or 'the queue'} was not confirmed in time:"
        " it may or may not have been written",
        hint="ask again; repeating it is harmless",
    )
