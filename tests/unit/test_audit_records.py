"""The order of audit records."""

from zkcoord.recipes.breaking import latest_records


def name(sequence: int) -> str:
    return f"broken-0123456789abcdef-{sequence:010d}"


def test_the_latest_come_first_and_the_rest_is_left_out() -> None:
    names = [name(2), name(10), "a note", name(9), "broken-x-0000000001"]
    assert latest_records(names) == [name(10), name(9), name(2)]
    assert latest_records(["a note"]) == []


def test_the_counter_may_wrap() -> None:
    order = [name(-(2**31) + 1), name(-(2**31)), name(2**31 - 1), name(2**31 - 2)]
    assert latest_records(order[::-1]) == order
    assert latest_records(order[2:] + order[:2]) == order
