"""What stands in a counter's node, and what it tells about a lost answer."""

import pytest

from zkcoord.core.counting import MARKS_MAX, MISSING, VERSION_MAX, Tally, read_tally
from zkcoord.errors import NodeForeign


def after(tally: Tally, number: int, mark: str) -> Tally:
    return read_tally("/c", tally.replaced(number, mark), tally.next_version)


def mark(number: int) -> str:
    return f"{number:08}"


def test_a_write_is_found_by_its_mark_as_long_as_there_is_room() -> None:
    tally = MISSING
    for number in range(200):
        tally = after(tally, number, mark(number))
        assert (tally.number, tally.version) == (number, number)
        for version in range(number + 1):
            known = number - version < MARKS_MAX
            assert tally.wrote(version, mark(version)) is (True if known else None)
            assert tally.wrote(version, mark(9999)) is (False if known else None)


def test_nothing_is_known_of_a_version_that_is_not_there_yet() -> None:
    assert after(MISSING, 1, mark(1)).wrote(3, mark(1)) is None


def test_marks_under_a_foreign_write_are_not_trusted() -> None:
    ours = after(MISSING, 5, mark(1))
    value = ours.replaced(6, mark(2))
    copied = read_tally("/c", value, 7)  # the same bytes, written by somebody at another version
    assert (copied.number, copied.marks) == (6, "")
    by_hand = read_tally("/c", b"42\n", 1)
    assert (by_hand.number, by_hand.wrote(1, mark(1))) == (42, None)
    assert after(by_hand, 43, mark(3)).wrote(2, mark(3)) is True


@pytest.mark.parametrize("value", [b"", b"x", b"1.5", b"9" * 20, b"9" * 19, b"1 2"])
def test_what_is_no_count_is_refused(value: bytes) -> None:
    with pytest.raises(NodeForeign, match="/c"):
        read_tally("/c", value, 0)


def test_the_node_is_replaced_before_its_version_wraps() -> None:
    worn = Tally(7, VERSION_MAX, mark(1))
    assert worn.worn
    fresh = after(worn, 8, mark(2))
    assert (fresh.number, fresh.version, fresh.marks) == (8, 0, mark(2))
    assert fresh.wrote(VERSION_MAX, mark(1)) is None
