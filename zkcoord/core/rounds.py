"""Rounds of a double barrier: who is in one, and who may complete one.

Those who come queue up in sequential nodes. A round is made by one atomic write to `size` nodes: it
succeeds only if each of them is there and in no round yet. It always takes the lowest ones that
wait, so the rounds lie one behind the other: the members of a round are exactly the nodes between
its first and its last sequence number that were there when it was made.

The value of a node is what a contender says of itself (host, pid, name, since), the size it waits
for, and its round once it is in one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from zkcoord.core.ordering import Contender, distance, in_order


class Round(msgspec.Struct, frozen=True, array_like=True):
    """Where a node stands in a round.

    Attributes:
        first, last: sequence numbers of the first and the last member.
        rank: 0 for the first member, and so on.
    """

    first: int
    last: int
    rank: int

    def holds(self, contender: Contender) -> bool:
        """Whether the node's number is one of the round's."""
        behind = distance(self.first, contender.sequence)
        return 0 <= behind <= distance(self.first, self.last)


class Arrived(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a participant's node, JSON."""

    host: str
    pid: int
    size: int
    name: str = ""
    since: float = 0.0
    round: Round | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Arrived).decode


def encode_arrived(arrived: Arrived) -> bytes:
    """As the value of a node."""
    return _encode(arrived)


def decode_arrived(value: bytes) -> Arrived | None:
    """The inverse; None for what something else wrote."""
    try:
        return _decode(value)
    except msgspec.MsgspecError:
        return None


def completed(waiting: Sequence[tuple[Contender, Arrived]]) -> list[tuple[str, bytes]]:
    """Node and new value of each member of the round that these make, in order."""
    first, last = waiting[0][0].sequence, waiting[-1][0].sequence
    return [
        (
            contender.node,
            _encode(msgspec.structs.replace(arrived, round=Round(first, last, rank))),
        )
        for rank, (contender, arrived) in enumerate(waiting)
    ]


def members(names: Iterable[str], of: Round) -> list[str]:
    """The nodes that may belong to a round, in order."""
    return [contender.node for contender in in_order(names) if of.holds(contender)]
