"""kazoo's errors and ZooKeeper's codes as errors of zkcoord. None of theirs escapes this room."""

from __future__ import annotations

from collections.abc import Callable

from kazoo.exceptions import EXCEPTIONS, SASLException

from zkcoord.errors import (
    AccessDenied,
    CoordinationError,
    EnsembleUnavailable,
    NameRefused,
    NodeExists,
    NodeMissing,
    SessionLost,
    VersionConflict,
)

CONNECTION_LOSS = -4
NO_NODE = -101
SESSION_EXPIRED = -112
SESSION_MOVED = -118


class LinkDropped(EnsembleUnavailable):
    """The link dropped before the answer came.

    Attributes:
        sent: whether the request may have reached a server. When not, it had no effect.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(
            message,
            hint="it may or may not have been carried out" if sent else "it was not carried out",
        )
        self.sent = sent


_Maker = Callable[[str], CoordinationError]

_BY_CODE: dict[int, _Maker] = {
    -6: lambda text: CoordinationError(
        f"{text}: the server does not know this operation", hint="it is older than 3.5"
    ),
    -7: lambda text: EnsembleUnavailable(f"{text}: the server ran out of time"),
    -8: lambda text: NameRefused(f"{text}: the server calls the arguments bad"),
    NO_NODE: lambda text: NodeMissing(f"{text}: no such node"),
    -102: lambda text: AccessDenied(
        f"{text}: not permitted", hint="check the node's ACL and the identity of this session"
    ),
    -103: lambda text: VersionConflict(f"{text}: the node has another version"),
    -108: lambda text: NameRefused(f"{text}: an ephemeral node cannot have children"),
    -110: lambda text: NodeExists(f"{text}: the node is there already"),
    -111: lambda text: VersionConflict(f"{text}: the node has children"),
    SESSION_EXPIRED: lambda text: SessionLost(f"{text}: the session has expired"),
    -114: lambda text: AccessDenied(f"{text}: the server refuses the ACL"),
    -115: lambda text: AccessDenied(f"{text}: authentication failed"),
    SESSION_MOVED: lambda text: LinkDropped(
        f"{text}: the session moved to another server", sent=True
    ),
    -119: lambda text: EnsembleUnavailable(f"{text}: the server is read-only: no quorum"),
    -122: lambda text: EnsembleUnavailable(f"{text}: the server ran out of time"),
    -124: lambda text: AccessDenied(f"{text}: the ensemble asks for authentication"),
    -125: lambda text: AccessDenied(f"{text}: the quota of this branch is used up"),
    -127: lambda text: EnsembleUnavailable(f"{text}: the server throttles this client"),
}


def from_code(code: int, what: str) -> CoordinationError:
    """An error for a code in a reply.

    Args:
        code: ZooKeeper's, negative.
        what: verb and path, such as ``delete /locks/a``.
    """
    maker = _BY_CODE.get(code)
    error = maker(what) if maker else CoordinationError(f"{what}: ZooKeeper error {code}")
    if code in EXCEPTIONS:
        error.__cause__ = EXCEPTIONS[code]()
    return error


def from_handshake(cause: BaseException) -> CoordinationError:
    """An error for a connection that cannot be made, however often it is tried."""
    if isinstance(cause, SASLException):
        error: CoordinationError = AccessDenied(
            f"SASL cannot be used: {cause}", hint="install pure-sasl and check the mechanism"
        )
    else:
        error = AccessDenied(
            "ZooKeeper refused this client's identity", hint="check the user name and the secret"
        )
    error.__cause__ = cause
    return error
