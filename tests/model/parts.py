"""What the simulation is made of, and what a mutant replaces."""

from __future__ import annotations

import msgspec

from zkcoord.config import QueueConfig, RetryPolicy, SchedulerConfig
from zkcoord.core.inbox import InboxRules
from zkcoord.core.leader import Leader
from zkcoord.core.records import Inbox, KeptTask, Position
from zkcoord.core.replica import Replica

PARTITIONS = 3
REPORTS, CONTROL = 5, 4
CONFIG = QueueConfig(
    retry=RetryPolicy(attempts=4, delay_s=0.2, delay_s_max=1.0),
    crashes_max=4,
    unknown_task_s=5.0,
)
OWN = SchedulerConfig(
    received_s=1.0, checkpoint_after_s=1.0, checkpoint_every_s=1.0, cancel_s=2.0,
    batch_facts_max=12,
)  # fmt: skip
encode = msgspec.msgpack.encode
decode_inbox = msgspec.msgpack.Decoder(Inbox).decode
decode_kept = msgspec.msgpack.Decoder(KeptTask).decode
decode_position = msgspec.msgpack.Decoder(Position).decode


class Parts:
    """What a mutant replaces."""

    replica: type[Replica] = Replica
    leader: type[Leader] = Leader
    inbox: type[InboxRules] = InboxRules
