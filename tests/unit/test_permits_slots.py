"""Which slot of a pool is taken, and what its folder says."""

import pytest

from zkcoord.core.slots import Slots, read_slots, write_slots

ALL = Slots(("a", "b", "c"))


def test_the_preferred_slot_if_it_is_free_else_the_first_that_is() -> None:
    assert ALL.choose((), "") == "a"
    assert ALL.choose((), "c") == "c"
    assert ALL.choose(("c", "a"), "c") == "b"
    assert ALL.choose((), "z") == "a"
    assert ALL.choose(("a", "b", "c"), "a") == ""


def test_a_drained_slot_is_not_chosen_until_it_is_opened_again() -> None:
    drained = ALL.without("a").without("a")
    assert drained.drained == ("a",)
    assert drained.choose((), "a") == "b"
    assert drained.opened(("a", "d")) == Slots(("a", "b", "c", "d"), (), ("a", "b", "c"))


def test_programs_may_name_what_was_declared_or_what_is_there() -> None:
    grown = ALL.opened(("d",))
    assert grown.agrees(("c", "b", "a"))
    assert grown.agrees(("d", "c", "b", "a"))
    assert not grown.agrees(("a", "b"))


def test_slots_are_read_back_and_anything_else_is_refused() -> None:
    for slots in (ALL, ALL.without("b"), ALL.opened(("d",))):
        found = read_slots(write_slots(slots))
        assert found is not None
        assert (found.slots, found.drained) == (slots.slots, slots.drained)
        assert found.agrees(("a", "b", "c"))
    assert write_slots(ALL) == b'{"slots":["a","b","c"]}'
    assert read_slots(b"") is None
    for value in (b"a,b", b"{}", b'{"slots":"a"}', b"\xff"):
        with pytest.raises(ValueError, match=r"."):
            read_slots(value)
