"""What a leader sends: records for the inbox, results, dead and checkpoint topics, as bytes.

Outputs are a function of facts. Each carries the log offset of its batch; when all outputs of a
batch are acknowledged, tell :meth:`~.leader.Leader.acknowledged`.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from zkcoord.core.records import Headers


class Topic(IntEnum):
    """Which of the queue's topics an output goes to."""

    INBOX = 0
    RESULTS = 1
    DEAD = 2
    CHECKPOINT = 3


POSITION_KEY = b"#position"


class Output(msgspec.Struct, gc=False):
    """One record to send.

    Attributes:
        topic: where to.
        partition: the agent's for INBOX, the one the submitter named for RESULTS (drop the output
            when the topic has no such partition), None for DEAD and CHECKPOINT.
        key, value, headers: the record; a CHECKPOINT value of None is a tombstone.
        offset: log offset of the batch it comes from; -1 for reminders, whose acknowledgement
            nobody waits for.

    Order matters within a partition. CHECKPOINT records must be written by the fenced
    transactional producer, in the order given.
    """

    topic: int
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    offset: int
