"""A standby: the state of a queue, kept current by following its log.

A cold start reads the checkpoint topic and then the log from the position named there. From then
on every record of the log is fed to the replica as it comes, by the same rules as everywhere, so
that winning the election costs one append and not a reload.

A replica that a leader has taken over is never used again: a leader decides on a speculative state,
so after a lost leadership the state is read anew (at most a minute of log behind the checkpoint).
"""

from __future__ import annotations

import logging
import time

import msgspec

from zkcoord.core.outputs import POSITION_KEY
from zkcoord.core.records import VERSION, KeptTask, Position
from zkcoord.core.replica import Replica
from zkcoord.errors import BrokerUnavailable, DecodeError, RecordsTrimmed
from zkcoord.kafka import LogReader, read_compacted
from zkcoord.queue.duty import Duty

log = logging.getLogger("zkcoord.queue")

RESTORE_TIMEOUT_S = 120.0
RESTORE_TRIES = 3
READ_LIMIT = 500

_decode_position = msgspec.msgpack.Decoder(Position).decode
_decode_task = msgspec.msgpack.Decoder(KeptTask).decode


class Follower:
    """The replica of one queue and the reader that feeds it. For one thread.

    Attributes:
        replica: the state as of :attr:`~zkcoord.core.replica.Replica.position`.
        reader: stands where the replica does. It is a lazy one, because what a standby sees a tenth
            of a second later costs the brokers a request less for every batch.
    """

    def __init__(self, replica: Replica, reader: LogReader) -> None:
        self.replica = replica
        self.reader = reader

    @classmethod
    def restore(cls, duty: Duty) -> Follower:
        """Read checkpoint and log up to the log's present end.

        Raises:
            RecordsTrimmed: the log begins behind the checkpoint's position: an incident.
            DecodeError: a checkpoint or log record of an unknown version.
            BrokerUnavailable: not done within two minutes.
        """
        for attempt in range(RESTORE_TRIES):
            try:
                return cls._restore_once(duty)
            except RecordsTrimmed as error:
                # A leader that works may move the checkpoint and trim the log while we read.
                if attempt + 1 == RESTORE_TRIES:
                    raise
                log.info("restoring queue %s begins again: %s", duty.queue, error)
        raise AssertionError

    @classmethod
    def _restore_once(cls, duty: Duty) -> Follower:
        deadline = time.monotonic() + RESTORE_TIMEOUT_S
        began = time.monotonic()
        table = read_compacted(
            duty.kafka,
            duty.topics.checkpoint,
            client_id=duty.client_id("checkpoint"),
            timeout=RESTORE_TIMEOUT_S,
            group=duty.topics.group,
        )
        replica = Replica(duty.queue, duty.description.config)
        position = read_position(table.pop(POSITION_KEY, None))
        if position is not None:
            replica.restore(position, map(read_task, table.values()))
        reader = LogReader(
            duty.kafka,
            duty.topics.log,
            client_id=duty.client_id("log"),
            # Not BEGINNING: if records before the position are gone, that must not pass unnoticed.
            offset=0 if position is None else position.offset,
            group=duty.topics.group,
            lazy=True,
        )
        follower = cls(replica, reader)
        try:
            for records in reader.read_to_end(max(0.0, deadline - time.monotonic())):
                _go_on(duty)
                for record in records:
                    replica.feed(record.offset, record.value or b"")
        except BaseException:
            reader.close()
            raise
        log.info(
            "queue %s restored: %d tasks from the checkpoint, log to offset %d, term %d, in %.2f s",
            duty.queue,
            len(table),
            reader.position,
            replica.term,
            time.monotonic() - began,
        )
        return follower

    def follow(self, timeout: float) -> bool:
        """Feed what comes within `timeout` seconds, as one step; whether anything came.

        Raises as :meth:`restore`.
        """
        records = self.reader.read(READ_LIMIT, timeout)
        for record in records:
            self.replica.feed(record.offset, record.value or b"")
        return bool(records)

    def close(self) -> None:
        """Free the reader."""
        self.reader.close()


def _go_on(duty: Duty) -> None:
    if duty.stopping():
        raise BrokerUnavailable(f"restoring queue {duty.queue!r} was given up: stopping")


def read_position(value: bytes | None) -> Position | None:
    """The checkpoint's `#position` record; None when there is none yet.

    Raises:
        DecodeError: it cannot be read, or its version is not known.
    """
    if value is None:
        return None
    try:
        position = _decode_position(value)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"the checkpoint's position cannot be read: {error}") from error
    _check_version(position.version)
    return position


def read_task(value: bytes) -> KeptTask:
    """A task's record of the checkpoint topic.

    Raises:
        DecodeError: it cannot be read, or its version is not known.
    """
    try:
        task = _decode_task(value)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"a task in the checkpoint cannot be read: {error}") from error
    _check_version(task.version)
    return task


def _check_version(version: int) -> None:
    if version != VERSION:
        raise DecodeError(
            f"the checkpoint holds records of version {version}, {VERSION} is known",
            hint="run the release that wrote them, or a newer one",
        )
