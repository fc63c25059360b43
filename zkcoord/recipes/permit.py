"""Permits of a semaphore: the lease, and what nodes and folder say of them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from zkcoord.core import ordering, permits
from zkcoord.core.permits import Limit
from zkcoord.errors import CoordinationError, LimitExceeded, LimitMismatch, NodeForeign
from zkcoord.recipes.contenders import Identity, read_identity
from zkcoord.recipes.lease import Lease
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link

_BATON_MAX = 64  # names in a signal; beyond that the follower lists


class PermitLease(Lease):
    """Permits that are held: a lease that weighs something. Given by a semaphore's `acquire`.

    Attributes:
        weight: how many permits.
    """

    def __init__(
        self, link: Link, epoch: Epoch, *, path: str, name: str, token: int, weight: int
    ) -> None:
        super().__init__(link, epoch, path=path, name=name, token=token)
        self.weight = weight


class Asked(NamedTuple):
    """What is asked for.

    Attributes:
        folder: absolute path. name: for messages. data: value of the node.
        weight: how many permits. permits: the limit as the program knows it, if it does.
    """

    folder: str
    name: str
    data: bytes
    weight: int
    permits: int | None


class Granted(Identity, frozen=True, omit_defaults=True, kw_only=True):
    """The value of a node whose owner was granted after others may have seen it wait.

    Attributes:
        granted: always true. ahead: nodes that were ahead of it then; None when they are many.
    """

    granted: bool = False
    ahead: tuple[str, ...] | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Granted).decode


def write_signal(data: bytes, ahead: tuple[str, ...]) -> bytes:
    """The value of a node, told that it was granted with these ahead."""
    who = read_identity(data) or Identity("", 0)
    baton = ahead if len(ahead) <= _BATON_MAX else None
    return _encode(Granted(**msgspec.structs.asdict(who), granted=True, ahead=baton))


def read_signal(value: bytes) -> tuple[bool, dict[str, int] | None]:
    """Whether a node's owner was granted, and with what weights ahead where it says so."""
    try:
        signal = _decode(value)
    except msgspec.MsgspecError:
        return False, None
    if signal.ahead is None:
        return signal.granted, None
    known = ordering.in_order(signal.ahead)
    return signal.granted, {one.node: permits.weight_of(one) for one in known}


def understand(name: str, value: bytes, declared: int | None) -> Limit | CoordinationError:
    """The limit in a folder's value, or what is wrong with it.

    Args:
        name: for messages.
        value: as read; empty where nobody wrote a limit yet.
        declared: the limit as the program knows it; None takes what is stored.
    """
    try:
        limit = permits.read_limit(value)
    except ValueError as error:
        text = f"{name}: the folder's value is not a limit: {error}"
        return NodeForeign(text, hint="use another name or root")
    if limit is None and declared is None:
        text = f"{name}: no limit is stored"
        hint = "the first to use a semaphore says permits=N"
        return LimitMismatch(text, name=name, given=None, stored=None, hint=hint)
    if limit is None:
        return Limit(declared or 0)
    if declared is not None and not limit.agrees(declared):
        text = f"{name}: this program says {declared} permits, the semaphore has {limit.permits}"
        hint = "say permits=None to use what is stored, or resize it"
        return LimitMismatch(text, name=name, given=declared, stored=limit.permits, hint=hint)
    return limit


def too_heavy(name: str, weight: int, limit: int) -> LimitExceeded:
    """A request that would wait for ever."""
    text = f"{name}: a weight of {weight} can never be granted, the limit is {limit}"
    hint = "ask for less, or resize the semaphore"
    return LimitExceeded(text, name=name, asked=weight, limit=limit, hint=hint)
