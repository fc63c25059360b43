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
       └─ StackMissing   (LookupError)   there is no such stack, or it has no such server

Task code raises :class:`Retry` and :class:`Discard` to steer its own fate, and gets
:class:`AttemptStopped` when it asks whether it may go on. They stand outside the tree, so that
``except ZkcoordError`` in a handler cannot swallow them.
"""

from __future__ import annotations


class ZkcoordError(Exception):
    """Base of all errors of zkcoord.

    Attributes:
        retriable: the same call may succeed later without any change.
        hint: what to do about it, one sentence, or the empty string.
    """

    retriable: bool = False
    hint: str = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        if hint:
            self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} ({self.hint})" if self.hint else message


class ConfigError(ZkcoordError, ValueError):
    """Configuration that cannot work; the message lists every bad field."""


class CoordinationError(ZkcoordError):
    """Something about ZooKeeper, a session or a recipe."""


class EnsembleUnavailable(CoordinationError):
    """No ZooKeeper server answered in time."""

    retriable = True


class ReadOnlyServer(EnsembleUnavailable):
    """The server has lost its quorum: it answers reads, perhaps from the past, and no writes."""


class SessionLost(CoordinationError):
    """The session expired, or can no longer be believed; every lease on it is gone."""


class SessionClosed(CoordinationError, RuntimeError):
    """The session was used before its start, after its close, or in a forked child."""


class AcquireTimeout(CoordinationError, TimeoutError):
    """The grant did not come in time.

    Attributes:
        name: what was asked for.
        waited: seconds from the call to this error.
        holder: who holds it as far as known, or the empty string.
    """

    retriable = True

    def __init__(self, message: str, *, name: str, waited: float, holder: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.waited = waited
        self.holder = holder


class LeaseLost(CoordinationError):
    """The lease is over: its session was lost, it was released, or its node was removed.

    Attributes:
        name: what was held.
        token: the fencing token it had.
        reason: ``released``, ``session`` or ``removed``.
    """

    def __init__(self, message: str, *, name: str, token: int, reason: str) -> None:
        super().__init__(message)
        self.name = name
        self.token = token
        self.reason = reason


class NotRevocable(CoordinationError):
    """The holder did not ask to hear of revocations, so nobody was asked to let go."""


class NotOwner(CoordinationError, RuntimeError):
    """A reentrant lease was released by another thread or asyncio task than the one that has it."""


class ReentryRefused(CoordinationError, RuntimeError):
    """Whoever asks holds already, or waits, in a way that this request could never be granted.

    A reader asked to become the writer, a request was made while the same thread or task still
    waits for another one, or the lock is held too many times over.
    """


class VersionConflict(CoordinationError):
    """A compare-and-set lost its race; read again and retry."""

    retriable = True


class NodeMissing(CoordinationError, LookupError):
    """The znode is not there."""


class NodeExists(CoordinationError):
    """The znode is there already."""


class NodeForeign(CoordinationError, ValueError):
    """A znode holds what this recipe did not write: the path is somebody else's."""


class OutcomeUnknown(CoordinationError):
    """A write may or may not have been carried out, and what could have told is gone."""


class WaitTimeout(CoordinationError, TimeoutError):
    """What was waited for did not come in time: others have not arrived, or left, or lifted it."""

    retriable = True


class CacheFull(CoordinationError):
    """A cache would hold more nodes or bytes than its bound allows; it has ended."""


class CandidateMissing(CoordinationError, LookupError):
    """Nobody of that name stands for election."""


class LimitMismatch(CoordinationError, ValueError):
    """A program names another limit, or other slots, than ZooKeeper holds, or nothing is stored.

    Attributes:
        name: the semaphore or pool.
        given: what the program says, None when it takes what is stored.
        stored: what is there, None when nothing is.
    """

    def __init__(
        self, message: str, *, name: str, given: object, stored: object, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.name = name
        self.given = given
        self.stored = stored


class LimitExceeded(CoordinationError, ValueError):
    """A request weighs more than the limit, or a resize goes below what is held.

    Attributes:
        name: the semaphore.
        asked: the weight of the request, or the permits to resize to.
        limit: the limit it is above, or the permits that are held.
    """

    def __init__(
        self, message: str, *, name: str, asked: int, limit: int, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.name = name
        self.asked = asked
        self.limit = limit


class NameRefused(CoordinationError, ValueError):
    """A name or value that ZooKeeper cannot hold: checked before anything is sent."""


class SessionFull(CoordinationError):
    """The session would hold more bytes of ephemeral paths than its bound allows.

    ZooKeeper writes all ephemeral paths of a session into one transaction when it ends, and a
    transaction of about 2 MB stops the ensemble.
    """


class AccessDenied(CoordinationError, PermissionError):
    """ZooKeeper refused: an ACL, a quota, or missing authentication."""


class IdentityRefused(AccessDenied):
    """The server refuses who we are, or takes nobody who does not say who they are.

    The session is closed: trying again with the same secret is of no use.
    """


class QuotaFull(AccessDenied):
    """The quota that an operator set on this branch is used up."""


class StreamError(ZkcoordError):
    """Something about Kafka or a queue's topics."""


class BrokerUnavailable(StreamError):
    """No broker answered in time."""

    retriable = True


class PublishFailed(StreamError):
    """The broker refused a record."""


class PublishTimeout(PublishFailed, TimeoutError):
    """No acknowledgement in time: the record may or may not have been written."""

    retriable = True


class TaskTooLarge(PublishFailed, ValueError):
    """The record is larger than the topic takes."""


class ProducerBroken(PublishFailed):
    """The producer hit a fatal error and can send nothing more: close it and open a new one.

    What it had not acknowledged may or may not have been written.
    """


class BufferFull(StreamError):
    """The local send buffer is full: back-pressure, not failure."""

    retriable = True


class TopicMismatch(StreamError):
    """A topic is missing, or configured differently from what its readers rely on."""


class RecordsTrimmed(StreamError):
    """Records were deleted before they were read: an incident, never skipped in silence."""


class StreamDenied(StreamError, PermissionError):
    """Kafka refused: an ACL or missing authentication."""


class DecodeError(StreamError, ValueError):
    """Bytes that are not what the topic holds."""


class StreamClosed(StreamError, RuntimeError):
    """A producer, reader or admin was used after its close, or in a forked child."""


class StaleTerm(StreamError):
    """The election's term is not above the highest in the log.

    ZooKeeper was wiped or restored from a backup, so its transaction ids ran backwards.
    """


class Deposed(StreamError):
    """A higher term stands in the log: this leader's writes are void and it must stop."""


class WriterFenced(Deposed):
    """A newer writer took over the transactional id; what was not committed is discarded."""


class Rejected(ZkcoordError):
    """Admission refused the task; nothing was written.

    Attributes:
        reason: one word, such as ``overload`` or ``infeasible``.
        retry_after: seconds to wait before the next try, above zero.
    """

    retriable = True

    def __init__(self, message: str, *, reason: str, retry_after: float) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


class ResultTimeout(ZkcoordError, TimeoutError):
    """No result yet. The task goes on; ask again."""

    retriable = True


class TaskFailed(ZkcoordError):
    """The task ended without success.

    Attributes:
        task_id: which task.
        state: ``dead``, ``failed``, ``cancelled`` or ``rejected``.
        reason: one word, as in the dead letter.
    """

    def __init__(self, message: str, *, task_id: str, state: str, reason: str) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.state = state
        self.reason = reason


class TaskCancelled(TaskFailed):
    """The task was cancelled before it succeeded."""


class StackError(ZkcoordError):
    """The local stack cannot start, or was not found."""


class StackMissing(StackError, LookupError):
    """There is no local stack of that name, or it has no server of that name."""


class TaskSignal(Exception):
    """Raised by task code to steer its own fate. Not a :class:`ZkcoordError`."""


class Retry(TaskSignal):
    """Try again, after `delay` seconds or after the policy's next delay when None."""

    def __init__(self, reason: str = "", *, delay: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay = delay


class Discard(TaskSignal):
    """End the task as failed, at once and without a dead letter."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class AttemptStopped(TaskSignal):
    """The attempt must stop: its time is up, it was cancelled, or its agent leaves or was lost.

    Raised by ``ctx.check()`` in a handler.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
