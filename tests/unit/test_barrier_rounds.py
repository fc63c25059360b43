"""Rounds of a double barrier."""

from zkcoord.core.ordering import in_order
from zkcoord.core.rounds import Arrived, Round, completed, decode_arrived, encode_arrived, members


def node(sequence: int) -> str:
    return f"pAAAAAAAAAAA.{sequence % 36:x}.{sequence:010d}"


def test_a_round_reaches_from_its_first_to_its_last() -> None:
    names = [node(number) for number in (7, 9, 12, 13)]
    waiting = [(one, Arrived("h", 1, 3)) for one in in_order(names)]
    made = [decode_arrived(value) for _, value in completed(waiting[:3])]
    assert [one.round for one in made if one] == [Round(7, 12, rank) for rank in range(3)]
    assert [name for name, _ in completed(waiting[:3])] == names[:3]
    assert members([*names, "something", node(6)], Round(7, 12, 0)) == names[:3]


def test_a_round_across_the_wrap_of_the_sequence() -> None:
    top = 2**31 - 1
    names = [node(top), f"pAAAAAAAAAAA.1.-{2**31}", f"pAAAAAAAAAAA.2.-{2**31 - 1}"]
    assert members(names, Round(top, -(2**31), 0)) == names[:2]


def test_values_survive_and_foreign_ones_are_none() -> None:
    arrived = Arrived("h", 7, 3, "one", 1.5, Round(1, 2, 1))
    assert decode_arrived(encode_arrived(arrived)) == arrived
    assert decode_arrived(b"x") is None
    assert decode_arrived(b"{}") is None
