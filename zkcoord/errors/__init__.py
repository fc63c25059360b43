"""Every error zkcoord raises.

::

    ZkcoordError                         .retriable  .hint
    ├─ ConfigError        (ValueError)   one error lists every bad field
    ├─ CoordinationError
    │  ├─ EnsembleUnavailable            no ZooKeeper server answered in time
    │  │  └─ ReadOnlyServer              the server has no quorum and takes no writes
    │  ├─ SessionLost                    the session expired; every lease on it is gone
    │  ├─ SessionClosed   (RuntimeError) used before start, after close or in a forked child
    │  ├─ AcquireTimeout  (TimeoutError) not granted in time; names the holder
    │  ├─ LeaseLost                      a grant that is no longer ours
    │  ├─ NotRevocable                   asked a holder to let go who does not listen
    │  ├─ NotOwner       (RuntimeError)  released by another thread or task than the holder
    │  ├─ ReentryRefused (RuntimeError)  asked again while holding: could never be granted
    │  ├─ VersionConflict                a compare-and-set lost its race
    │  ├─ NodeMissing     (LookupError)  the znode is not there
    │  ├─ NodeExists                     the znode is there already
    │  ├─ NodeForeign     (ValueError)   a znode holds what the recipe did not write
    │  ├─ OutcomeUnknown                 a write may have been carried out; nobody can tell
    │  ├─ WaitTimeout     (TimeoutError) what was waited for did not come in time
    │  ├─ CacheFull                      a cache would pass its bound of nodes or bytes
    │  ├─ CandidateMissing (LookupError) nobody of that name stands for election
    │  ├─ LimitMismatch   (ValueError)   a program and the folder disagree on a limit or slots
    │  ├─ LimitExceeded   (ValueError)   more permits than the limit, or fewer than are held
    │  ├─ NameRefused     (ValueError)   a name or value that ZooKeeper cannot hold
    │  ├─ SessionFull                    the session's bound on ephemeral path bytes
    │  └─ AccessDenied   (PermissionError) an ACL refuses
    │     ├─ IdentityRefused             the server refuses who we are, or asks who we are
    │     └─ QuotaFull                   the quota of the branch is used up
    ├─ StreamError
    │  ├─ BrokerUnavailable              no broker answered in time
    │  ├─ PublishFailed                  the broker refused a record
    │  │  ├─ PublishTimeout (TimeoutError)  outcome unknown: the record may have been written
    │  │  ├─ TaskTooLarge  (ValueError)
    │  │  └─ ProducerBroken              the producer can send nothing more: open a new one
    │  ├─ BufferFull                     the local send buffer is full: back-pressure
    │  ├─ TopicMismatch                  a topic is missing or configured differently
    │  ├─ RecordsTrimmed                 records were deleted before they were read
    │  ├─ StreamDenied    (PermissionError)
    │  ├─ DecodeError     (ValueError)   bytes that are not what the topic holds
    │  ├─ StreamClosed    (RuntimeError) used after close or in a forked child
    │  ├─ StaleTerm                      this term is not above the log's: tokens ran backwards
    │  └─ Deposed                        a higher term stands in the log: stop leading
    │     └─ WriterFenced                a newer writer took over the transactional id
    ├─ Rejected                          admission refused the task  .reason .retry_after
    ├─ ResultTimeout      (TimeoutError) no result yet; the task goes on
    ├─ TaskFailed                        the task ended without success
    │  └─ TaskCancelled
    └─ StackError                        the local stack cannot start or was not found
       └─ StackMissing   (LookupError)   no stack, or no server of it, has that name

Task code raises :class:`Retry` and :class:`Discard` to steer its own fate, and gets
:class:`AttemptStopped` when it asks whether it may go on. They stand outside the tree, so that
``except ZkcoordError`` in a handler cannot swallow them.
"""

from __future__ import annotations

from zkcoord.errors.base import (
    ConfigError,
    ZkcoordError,
)
from zkcoord.errors.coordination import (
    AccessDenied,
    AcquireTimeout,
    CacheFull,
    CandidateMissing,
    CoordinationError,
    EnsembleUnavailable,
    IdentityRefused,
    LeaseLost,
    LimitExceeded,
    LimitMismatch,
    NameRefused,
    NodeExists,
    NodeForeign,
    NodeMissing,
    NotOwner,
    NotRevocable,
    OutcomeUnknown,
    QuotaFull,
    ReadOnlyServer,
    ReentryRefused,
    SessionClosed,
    SessionFull,
    SessionLost,
    VersionConflict,
    WaitTimeout,
)
from zkcoord.errors.stack import (
    StackError,
    StackMissing,
)
from zkcoord.errors.streams import (
    BrokerUnavailable,
    BufferFull,
    DecodeError,
    Deposed,
    ProducerBroken,
    PublishFailed,
    PublishTimeout,
    RecordsTrimmed,
    StaleTerm,
    StreamClosed,
    StreamDenied,
    StreamError,
    TaskTooLarge,
    TopicMismatch,
    WriterFenced,
)
from zkcoord.errors.tasks import (
    AttemptStopped,
    Discard,
    Rejected,
    ResultTimeout,
    Retry,
    TaskCancelled,
    TaskFailed,
    TaskSignal,
)

__all__ = [
    "AccessDenied",
    "AcquireTimeout",
    "AttemptStopped",
    "BrokerUnavailable",
    "BufferFull",
    "CacheFull",
    "CandidateMissing",
    "ConfigError",
    "CoordinationError",
    "DecodeError",
    "Deposed",
    "Discard",
    "EnsembleUnavailable",
    "IdentityRefused",
    "LeaseLost",
    "LimitExceeded",
    "LimitMismatch",
    "NameRefused",
    "NodeExists",
    "NodeForeign",
    "NodeMissing",
    "NotOwner",
    "NotRevocable",
    "OutcomeUnknown",
    "ProducerBroken",
    "PublishFailed",
    "PublishTimeout",
    "QuotaFull",
    "ReadOnlyServer",
    "RecordsTrimmed",
    "ReentryRefused",
    "Rejected",
    "ResultTimeout",
    "Retry",
    "SessionClosed",
    "SessionFull",
    "SessionLost",
    "StackError",
    "StackMissing",
    "StaleTerm",
    "StreamClosed",
    "StreamDenied",
    "StreamError",
    "TaskCancelled",
    "TaskFailed",
    "TaskSignal",
    "TaskTooLarge",
    "TopicMismatch",
    "VersionConflict",
    "WaitTimeout",
    "WriterFenced",
    "ZkcoordError",
]
