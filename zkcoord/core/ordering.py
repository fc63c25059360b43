"""Who stands where in a queue of sequential znodes.

A contender's node is named ``<kind><session>.<request>.<sequence>``:

- *kind*, one letter: ``x`` asks for exclusive use; recipes with several kinds add their own;
- *session*, eleven letters: the session id, so that a node is never taken for another session's;
- *request*, a counter within the session in base 36: writing again after an unknown outcome uses
  the same one, so both nodes are known as one request's;
- *sequence*, what ZooKeeper appends: ``%010d`` of a signed 32-bit counter, which **wraps**.

Sequences are compared by serial number arithmetic (RFC 1982), so the order survives the wrap.
Names are short on purpose: a session's ephemeral paths all go into one transaction when it ends.

Nodes of kazoo's Lock and of Curator's InterProcessMutex are contenders too, see
:mod:`zkcoord.core.layouts`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from zkcoord.core import layouts
from zkcoord.core.layouts import Foreign, Layout

EXCLUSIVE = "x"
SHARED = "r"
"""What kazoo's readers are read as; those of our own recipes have letters of their own."""

_BITS = 32
_RING = 1 << _BITS
_HALF = 1 << (_BITS - 1)
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAMES = re.compile(
    r"^(([a-zA-Z])([a-zA-Z0-9_-]{11})\.([0-9a-z]+)\.([0-9]{10}|-[0-9]{9,10}))$", re.MULTILINE
)
_by_sequence = itemgetter(3)


class Contender(NamedTuple):
    """One node in the queue.

    Attributes:
        kind: what it asks for, one letter.
        owner: its session id as :func:`encode_session` writes it; empty when its name does not
            tell, as with other libraries.
        request: which of the owner's requests, as :func:`encode_request` writes it; otherwise
            what stands in its place.
        sequence: its number. node: its name.
    """

    kind: str
    owner: str
    request: str
    sequence: int
    node: str

    @property
    def session(self) -> int:
        """The session id. Raises ValueError when the owner is not one."""
        return decode_session(self.owner)


class Place(NamedTuple):
    """Where a request stands.

    Attributes:
        position: 0 is the head.
        mine: the node that counts for the request: the lowest of its own.
        strays: further nodes of the same request, to be deleted.
        ahead: everybody in front, in order.
        behind: how many others are behind.
    """

    position: int
    mine: Contender
    strays: tuple[Contender, ...]
    ahead: Sequence[Contender]
    behind: int = 0


@lru_cache(maxsize=1024)
def encode_session(session: int) -> str:
    """A session id as eleven letters that are safe in a znode's name."""
    raw = (session % (1 << 64)).to_bytes(8, "big")
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def decode_session(text: str) -> int:
    """The inverse of :func:`encode_session`, as the signed number ZooKeeper uses.

    Raises:
        ValueError: not such a text.
    """
    raw = base64.b64decode(text + "=", altchars=b"-_", validate=True)
    if len(raw) != 8:
        raise ValueError("a session id has 8 bytes")
    return int.from_bytes(raw, "big", signed=True)


def encode_request(number: int) -> str:
    """A counter in base 36."""
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if number == 0:
            return digits


def prefix(kind: str, session: int, request: str, layout: Layout = Layout.ZKCOORD) -> str:
    """The name to give to a sequential create; ZooKeeper appends the sequence.

    Raises:
        ValueError: other layouts than our own have exclusive contenders only.
    """
    if layout is not Layout.ZKCOORD:
        if kind != EXCLUSIVE:
            raise ValueError(f"layout {layout}: there is no kind {kind!r}")
        return layouts.prefix(layout, session, int(request, 36))
    return f"{kind}{encode_session(session)}.{request}."


def parse(node: str) -> Contender | None:
    """A child's name as a contender; None when the node is something else."""
    found = in_order((node,))
    return found[0] if found and found[0].node == node else None


def distance(start: int, end: int) -> int:
    """How far `end` lies behind `start` on the ring, negative when it is in front of it."""
    return (end - start + _HALF) % _RING - _HALF


def precedes(one: int, other: int) -> bool:
    """Whether sequence `one` was given before `other`, across the counter's wrap.

    Right as long as fewer than 2**31 numbers lie between the two.
    """
    return distance(one, other) > 0


def exhausted(sequence: int) -> bool:
    """Whether a number, or the counter that gives it, lies beyond those that tell an order.

    See :mod:`zkcoord.recipes.recount`.
    """
    return not 0 <= sequence < _HALF - 1


def in_order(nodes: Iterable[str]) -> list[Contender]:
    """The contenders among `nodes`, first come first. Other nodes are left out.

    Thousands may wait, so the names are taken apart in one go.
    """
    names = list(nodes)
    text = "\n".join(names)
    found = [
        Contender(kind, owner, request, int(digits), node)
        for node, kind, owner, request, digits in _NAMES.findall(text)
    ]
    if len(found) < len(names):
        found += map(_foreign, layouts.read_foreign(text))
    if not found:
        return found
    found.sort(key=_by_sequence)
    if found[-1].sequence - found[0].sequence >= _HALF:  # the counter wrapped in between
        pivot = found[0].sequence
        found.sort(key=lambda contender: distance(pivot, contender.sequence))
    return found


def _foreign(name: Foreign) -> Contender:
    kind = SHARED if name.shared else EXCLUSIVE
    sequence = int(name.sequence)
    ours = layouts.read_guid(name.guid)
    if ours is None:
        return Contender(kind, "", name.guid, sequence, name.node)
    session, request = ours
    owner = encode_session(session)
    return Contender(kind, owner, encode_request(request), sequence, name.node)


def place(ordered: Sequence[Contender], session: int, request: str) -> Place | None:
    """Where a request of `session` stands in an ordered queue; None when it is not in it."""
    owner = encode_session(session)
    own = [
        index
        for index, contender in enumerate(ordered)
        if contender.request == request and contender.owner == owner
    ]
    if not own:
        return None
    first = own[0]
    strays = tuple(ordered[index] for index in own[1:])
    behind = len(ordered) - first - len(own)
    return Place(first, ordered[first], strays, ordered[:first], behind)


def places(
    queues: Sequence[Sequence[Contender]], session: int, request: str
) -> tuple[list[Place | None], bool]:
    """Where a request that entered several ordered queues at once stands in each of them.

    Entering is one transaction, so its nodes have one place in the history of all queues: of any
    two such requests one is in front of the other wherever they meet, and a circle of waiting is
    impossible. Written again after an unknown outcome, it has a second node in every queue or in
    none: the lowest ones are those of one transaction.

    Returns:
        The places, and whether they are whole: a node in every queue, and as many in each. When
        not, somebody has removed one.
    """
    found = [place(queue, session, request) for queue in queues]
    return found, whole(found)


def whole(found: Iterable[Place | None]) -> bool:
    """Whether these are a node in every queue, and as many in each."""
    counts = {-1 if one is None else len(one.strays) for one in found}
    return len(counts) == 1 and -1 not in counts


def blocker(
    found: Place, blocks: Callable[[Contender], bool] = lambda _: True
) -> tuple[Contender, bool] | None:
    """The nearest contender in front that blocks, and whether it is the only one that does.

    None: nothing blocks, the request is granted. When the nearest blocker is the only one, its
    end alone is the grant; otherwise the queue must be looked at again.

    Args:
        found: where the request stands.
        blocks: whether a contender in front blocks this request; all do for an exclusive lock.
    """
    nearest: Contender | None = None
    for contender in reversed(found.ahead):
        if blocks(contender):
            if nearest is not None:
                return nearest, False
            nearest = contender
    return None if nearest is None else (nearest, True)
