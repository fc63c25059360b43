"""Errors of ZooKeeper, sessions and recipes."""

from __future__ import annotations

from zkcoord.errors.base import ZkcoordError


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
        reason: ``released``, ``session``, ``removed``, or ``revoked`` for a leader that resigns.
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

    def __init__(self, message: str, *, name: str, asked: int, limit: int, hint: str = "") -> None:
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
