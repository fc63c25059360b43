"""The order of contenders, across the wrap of ZooKeeper's 32-bit sequence counter."""

from hypothesis import given
from hypothesis import strategies as st

from zkcoord.core import ordering
from zkcoord.core.ordering import Contender

sessions = st.integers(min_value=-(2**63), max_value=2**63 - 1)
requests = st.integers(min_value=0, max_value=2**40).map(ordering.encode_request)


def sequence_name(counter: int) -> str:
    """What ZooKeeper appends: %010d of a signed 32-bit integer."""
    signed = (counter + 2**31) % 2**32 - 2**31
    return f"{signed:010d}"


def node(counter: int, session: int = 7, request: str = "a", kind: str = "x") -> str:
    return ordering.prefix(kind, session, request) + sequence_name(counter)


@given(sessions, requests, st.integers(min_value=0, max_value=2**33), st.sampled_from("xrw"))
def test_a_name_is_read_back(session: int, request: str, counter: int, kind: str) -> None:
    name = node(counter, session, request, kind)
    found = ordering.parse(name)
    owner = ordering.encode_session(session)
    assert found == Contender(kind, owner, request, int(sequence_name(counter)), name)
    assert found.session == session


@given(st.text(max_size=60))
def test_foreign_names_are_left_out_and_never_break_the_reading(name: str) -> None:
    found = ordering.parse(name)
    assert found is None or found.owner in name


def test_names_of_other_recipes_are_foreign() -> None:
    latch = "_c_3f0c5b9e-1d0f-4c7b-9d3e-0a1b2c3d4e5f-latch-0000000012"
    assert ordering.in_order([latch, "readme", "__lock__", "lock-", "lock-12"]) == []


def test_names_are_short() -> None:
    assert len(node(2**31 - 1, -1, ordering.encode_request(46_655))) <= 27


@given(st.integers(min_value=0, max_value=2**33), st.permutations(range(40)))
def test_order_is_that_of_creation_whatever_the_counter_and_the_listing(
    start: int, shuffled: list[int]
) -> None:
    names = [node(start + step, request=ordering.encode_request(step)) for step in shuffled]
    found = ordering.in_order(names)
    assert [c.request for c in found] == [ordering.encode_request(n) for n in range(40)]


def test_order_survives_the_wrap() -> None:
    before, after = node(2**31 - 1), node(2**31)
    assert after.endswith("-2147483648")
    assert [c.node for c in ordering.in_order([after, before])] == [before, after]


@given(st.integers(), st.integers(min_value=1, max_value=2**31 - 1))
def test_precedes_is_a_serial_number_comparison(start: int, step: int) -> None:
    assert ordering.precedes(start, start + step)
    assert not ordering.precedes(start + step, start)
    assert not ordering.precedes(start, start)


def test_own_nodes_lowest_counts_and_the_others_are_strays() -> None:
    queue = [
        node(4, session=1, request="a"),
        node(5, session=7, request="b"),
        node(6, session=7, request="c"),
        node(7, session=7, request="b"),
        node(8, session=2, request="b"),
    ]
    found = ordering.place(ordering.in_order(queue), 7, "b")
    assert found is not None
    assert (found.position, found.mine.sequence) == (1, 5)
    assert [c.sequence for c in found.strays] == [7]
    assert [c.sequence for c in found.ahead] == [4]


def test_another_sessions_node_of_the_same_request_is_not_ours() -> None:
    assert ordering.place(ordering.in_order([node(1, session=2, request="b")]), 7, "b") is None


def test_the_head_is_blocked_by_nobody() -> None:
    found = ordering.place(ordering.in_order([node(1), node(2, session=8)]), 7, "a")
    assert found is not None
    assert ordering.blocker(found) is None


def test_the_only_one_in_front_is_known_to_be_the_last() -> None:
    found = ordering.place(ordering.in_order([node(1, session=8), node(2)]), 7, "a")
    assert found is not None
    blocker = ordering.blocker(found)
    assert blocker is not None
    assert (blocker[0].sequence, blocker[1]) == (1, True)


def test_with_more_in_front_the_nearest_is_watched_and_not_the_last() -> None:
    queue = [node(1, session=8), node(2, session=9), node(3)]
    found = ordering.place(ordering.in_order(queue), 7, "a")
    assert found is not None
    blocker = ordering.blocker(found)
    assert blocker is not None
    assert (blocker[0].sequence, blocker[1]) == (2, False)


def test_only_those_that_block_count() -> None:
    queue = [node(1, 8, kind="w"), node(2, 9, kind="r"), node(3, kind="r")]
    found = ordering.place(ordering.in_order(queue), 7, "a")
    assert found is not None
    blocker = ordering.blocker(found, lambda contender: contender.kind == "w")
    assert blocker is not None
    assert (blocker[0].sequence, blocker[1]) == (1, True)
    assert ordering.blocker(found, lambda contender: contender.kind == "x") is None
