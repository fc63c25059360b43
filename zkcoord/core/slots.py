"""Which slot of a pool to take."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

SLOTS_MAX = 1000


class Slots(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a pool's folder, JSON.

    Attributes:
        slots: all of them, in the order of preference.
        drained: those that are not given out any more.
        declared: those that the first user named; empty when they are `slots`.
    """

    slots: tuple[str, ...]
    drained: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()

    def agrees(self, slots: tuple[str, ...]) -> bool:
        """Whether a program that names these means the same pool."""
        return set(slots) in (set(self.slots), set(self.declared))

    def opened(self, slots: tuple[str, ...]) -> Slots:
        """The same with these given out too."""
        added = tuple(dict.fromkeys((*self.slots, *slots)))
        drained = tuple(slot for slot in self.drained if slot not in slots)
        return Slots(added, drained, self.declared or self.slots)

    def without(self, slot: str) -> Slots:
        """The same with this one not given out any more."""
        drained = tuple(dict.fromkeys((*self.drained, slot)))
        return Slots(self.slots, drained, self.declared or self.slots)

    def choose(self, taken: Collection[str], prefer: str) -> str:
        """A slot that may be given out and is not taken; the empty string when there is none."""
        free = [one for one in self.slots if one not in taken and one not in self.drained]
        if prefer in free:
            return prefer
        return free[0] if free else ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Slots).decode


def write_slots(slots: Slots) -> bytes:
    """The value of a folder."""
    declared = () if slots.declared == slots.slots else slots.declared
    return _encode(Slots(slots.slots, slots.drained, declared))


def read_slots(value: bytes) -> Slots | None:
    """The inverse of :func:`write_slots`; None when nothing is written yet.

    Raises:
        ValueError: something else.
    """
    if not value:
        return None
    try:
        return _decode(value)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
