"""kazoo's errors and ZooKeeper's codes as errors of zkcoord. None of theirs escapes this room."""

from __future__ import annotations

from collections.abc import Callable

from kazoo.exceptions import EXCEPTIONS, SASLException

from zkcoord.errors import (
    AccessDenied,
    CoordinationError,
    EnsembleUnavailable,
    IdentityRefused,
    NameRefused,
    NodeExists,
    NodeMissing,
    QuotaFull,
    ReadOnlyServer,
    SessionClosed,
    SessionLost,
    VersionConflict,
)

CONNECTION_LOSS = -4
NO_NODE = -101
SESSION_EXPIRED = -112
SESSION_MOVED = -118
_NO_AUTH = -102
_AUTH_FAILED = -115
_AUTH_NEEDED = -124
IDENTITY_CODES = frozenset({_AUTH_FAILED, _AUTH_NEEDED})
"""The server will never talk to us as who we are."""


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


def definite(error: CoordinationError) -> bool:
    """Whether a server answered so, and means it."""
    return not isinstance(error, (EnsembleUnavailable, SessionLost, SessionClosed))


_Maker = Callable[[str], CoordinationError]

_BY_CODE: dict[int, _Maker] = {
    -6: lambda text: CoordinationError(
        f"{text}: the server does not know this operation", hint="it is older than 3.5"
    ),
    -7: lambda text: EnsembleUnavailable(f"{text}: the server ran out of time"),
    -8: lambda text: NameRefused(f"{text}: the server calls the arguments bad"),
    NO_NODE: lambda text: NodeMissing(f"{text}: no such node"),
    _NO_AUTH: lambda text: AccessDenied(f"{text}: not permitted"),
    -103: lambda text: VersionConflict(f"{text}: the node has another version"),
    -108: lambda text: NameRefused(f"{text}: an ephemeral node cannot have children"),
    -110: lambda text: NodeExists(f"{text}: the node is there already"),
    -111: lambda text: VersionConflict(f"{text}: the node has children"),
    SESSION_EXPIRED: lambda text: SessionLost(f"{text}: the session has expired"),
    -114: lambda text: AccessDenied(
        f"{text}: the server refuses the access list",
        hint="it names an unknown scheme, or 'private' and the server does not know who we are",
    ),
    _AUTH_FAILED: lambda text: IdentityRefused(f"{text}: authentication failed"),
    SESSION_MOVED: lambda text: LinkDropped(
        f"{text}: the session moved to another server", sent=True
    ),
    -119: lambda text: ReadOnlyServer(
        f"{text}: the server has no quorum", hint="it takes writes again once it has one"
    ),
    -122: lambda text: EnsembleUnavailable(f"{text}: the server ran out of time"),
    _AUTH_NEEDED: lambda text: IdentityRefused(f"{text}: the ensemble asks for authentication"),
    -125: lambda text: QuotaFull(
        f"{text}: the quota of this branch is used up",
        hint="delete what is not needed, or ask the operator for a larger quota",
    ),
    -127: lambda text: EnsembleUnavailable(f"{text}: the server throttles this client"),
}


def from_code(code: int, what: str, identity: str = "") -> CoordinationError:
    """An error for a code in a reply.

    Args:
        code: ZooKeeper's, negative.
        what: verb and path, such as ``delete /locks/a``.
        identity: who we are, in words.
    """
    maker = _BY_CODE.get(code)
    error = maker(what) if maker else CoordinationError(f"{what}: ZooKeeper error {code}")
    if code == _NO_AUTH:
        who = f"this session acts as {identity}: " if identity else ""
        error.hint = f"{who}let an identity that may change the node's ACL add it, or use another"
    elif code in IDENTITY_CODES:
        error.hint = _identity_hint(identity)
    if code in EXCEPTIONS:
        error.__cause__ = EXCEPTIONS[code]()
    return error


def from_handshake(cause: BaseException | None, identity: str) -> CoordinationError:
    """An error for a connection that cannot be made, however often it is tried."""
    if isinstance(cause, SASLException):
        error: CoordinationError = IdentityRefused(
            f"SASL cannot be used: {cause}", hint="install zkcoord[sasl], and check the servers"
        )
    else:
        error = IdentityRefused(
            "ZooKeeper refused this client's identity", hint=_identity_hint(identity)
        )
    error.__cause__ = cause
    return error


def _identity_hint(identity: str) -> str:
    return f"this session acts as {identity}: check the user name, the secret and the certificate"
