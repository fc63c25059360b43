"""Slots of a pool: the lease, and what nodes and folder say of them."""

from __future__ import annotations

from zkcoord.core.slots import Slots, read_slots
from zkcoord.errors import CoordinationError, LimitMismatch, NodeForeign
from zkcoord.recipes.contenders import read_identity
from zkcoord.recipes.lease import Lease
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link


class SlotLease(Lease):
    """A slot that is held: a lease that says which one. Given by a pool's `acquire`.

    Attributes:
        slot: which one.
    """

    def __init__(
        self, link: Link, epoch: Epoch, *, path: str, name: str, token: int, slot: str
    ) -> None:
        super().__init__(link, epoch, path=path, name=name, token=token)
        self.slot = slot


def same_claim(found: bytes, written: bytes) -> bool:
    """Whether a slot's value is the one that a request wrote."""
    one, other = read_identity(found), read_identity(written)
    return one is not None and other is not None and one.data == other.data


def understand(
    name: str, value: bytes, declared: tuple[str, ...] | None
) -> Slots | CoordinationError:
    """The slots in a folder's value, or what is wrong with it."""
    try:
        slots = read_slots(value)
    except ValueError as error:
        text = f"{name}: the folder's value does not name slots: {error}"
        return NodeForeign(text, hint="use another name or root")
    if slots is None and declared is None:
        text = f"{name}: no slots are stored"
        hint = "the first to use a pool names its slots"
        return LimitMismatch(text, name=name, given=None, stored=None, hint=hint)
    if slots is None:
        return Slots(declared or ())
    if declared is not None and not slots.agrees(declared):
        given, stored = ", ".join(declared), ", ".join(slots.slots)
        text = f"{name}: this program names the slots {given}; the pool has {stored}"
        hint = "say slots=None to use what is stored, or add and drain slots"
        return LimitMismatch(text, name=name, given=declared, stored=slots.slots, hint=hint)
    return slots
