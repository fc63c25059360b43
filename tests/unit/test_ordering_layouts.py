"""Names in the layouts of kazoo and Curator: read, written and ordered, across the wrap."""

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkcoord.core import layouts, ordering
from zkcoord.core.layouts import Layout
from zkcoord.core.ordering import Contender

FOREIGN = (Layout.KAZOO, Layout.CURATOR)
sessions = st.integers(min_value=-(2**63), max_value=2**63 - 1)
requests = st.integers(min_value=0, max_value=2**58 - 1)
counters = st.integers(min_value=0, max_value=2**33)
near_the_wrap = st.integers(min_value=2**31 - 29, max_value=2**31 - 1)


def digits(counter: int) -> str:
    """What ZooKeeper appends: %010d of a signed 32-bit integer."""
    signed = (counter + 2**31) % 2**32 - 2**31
    return f"{signed:010d}"


def theirs(layout: Layout, counter: int) -> str:
    """A node of kazoo itself, or of Curator itself."""
    mark = uuid.uuid4()
    front = f"{mark.hex}__lock__" if layout is Layout.KAZOO else f"_c_{mark}-lock-"
    return front + digits(counter)


@given(sessions, requests)
def test_a_guid_is_a_uuid_of_version_8_and_is_read_back(session: int, request: int) -> None:
    mark = layouts.guid(session, request)
    assert (mark.version, mark.variant) == (8, uuid.RFC_4122)
    assert layouts.read_guid(mark.hex) == layouts.read_guid(str(mark)) == (session, request)


def test_a_request_beyond_the_guid_is_refused() -> None:
    with pytest.raises(ValueError, match="58 bits"):
        layouts.guid(1, 2**58)
    with pytest.raises(ValueError, match="58 bits"):
        layouts.guid(1, -1)


@given(st.text(max_size=40))
def test_a_guid_of_others_is_not_ours(text: str) -> None:
    assert layouts.read_guid(text) is None
    assert layouts.read_guid(str(uuid.uuid4())) is None


@pytest.mark.parametrize("layout", Layout)
@given(sessions, requests.map(ordering.encode_request), counters)
def test_our_name_is_read_back_in_every_layout(
    layout: Layout, session: int, request: str, counter: int
) -> None:
    name = ordering.prefix("x", session, request, layout) + digits(counter)
    found = ordering.parse(name)
    owner = ordering.encode_session(session)
    assert found == Contender("x", owner, request, int(digits(counter)), name)


def test_the_names_are_those_the_others_look_for() -> None:
    kazoo = ordering.prefix("x", 7, "1", Layout.KAZOO) + digits(3)
    assert re.fullmatch(r"[0-9a-f]{32}__lock__[0-9]{10}", kazoo)
    curator = ordering.prefix("x", 7, "1", Layout.CURATOR) + digits(3)
    assert re.fullmatch(r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lock-[0-9]{10}", curator)


def test_only_exclusive_contenders_have_names_in_other_layouts() -> None:
    with pytest.raises(ValueError, match="no kind 'r'"):
        ordering.prefix("r", 7, "1", Layout.KAZOO)


def test_only_kazoo_relies_on_its_folder() -> None:
    assert [layout.container for layout in Layout] == [True, False, True]


@given(st.permutations(range(30)), counters | near_the_wrap)
def test_all_layouts_stand_in_one_order_across_the_wrap(shuffled: list[int], start: int) -> None:
    names = []
    for step in shuffled:
        layout = list(Layout)[step % 3]
        if layout is not Layout.ZKCOORD and step % 2:
            names.append(theirs(layout, start + step))
        else:
            request = ordering.encode_request(step)
            names.append(ordering.prefix("x", 7, request, layout) + digits(start + step))
    found = ordering.in_order([*names, "readme", "config"])
    assert [c.sequence for c in found] == [int(digits(start + step)) for step in range(30)]


@given(st.integers(min_value=0, max_value=5))
def test_a_foreign_holder_before_the_wrap_stands_in_front_of_those_after_it(back: int) -> None:
    """2147483647 is followed by -2147483648; kazoo and Curator sort these as texts."""
    holder = theirs(Layout.KAZOO, 2**31 - 1 - back)
    mine = ordering.prefix("x", 7, "1", Layout.KAZOO) + digits(2**31)
    assert mine.endswith("__lock__-2147483648")
    place = ordering.place(ordering.in_order([mine, holder]), 7, "1")
    assert place is not None
    assert [c.node for c in place.ahead] == [holder]


@pytest.mark.parametrize("layout", FOREIGN)
def test_a_request_is_found_by_session_and_number_among_others(layout: Layout) -> None:
    names = [
        theirs(layout, 3),
        ordering.prefix("x", 8, "1", layout) + digits(4),
        ordering.prefix("x", 7, "1", layout) + digits(5),
        ordering.prefix("x", 7, "2", layout) + digits(6),
        ordering.prefix("x", 7, "1", layout) + digits(7),
    ]
    place = ordering.place(ordering.in_order(names), 7, "1")
    assert place is not None
    assert (place.position, place.mine.sequence) == (2, 5)
    assert [c.sequence for c in place.strays] == [7]
    assert ordering.place(ordering.in_order(names[:2]), 7, "1") is None


@pytest.mark.parametrize(
    ("name", "kind", "mark"),
    [
        (
            "5f2c6c1d9f2b4c7f8a5d3e1b0c9d8e7f__lock__0000000012",
            "x",
            "5f2c6c1d9f2b4c7f8a5d3e1b0c9d8e7f",
        ),
        (
            "5f2c6c1d9f2b4c7f8a5d3e1b0c9d8e7f__rlock__0000000012",
            "r",
            "5f2c6c1d9f2b4c7f8a5d3e1b0c9d8e7f",
        ),
        ("me__lock__0000000012", "x", "me"),
        (
            "_c_3f0c5b9e-1d0f-4c7b-9d3e-0a1b2c3d4e5f-lock-0000000012",
            "x",
            "3f0c5b9e-1d0f-4c7b-9d3e-0a1b2c3d4e5f",
        ),
        ("lock-0000000012", "x", ""),
        ("someone-lock-0000000012", "x", "someone"),
    ],
)
def test_names_of_others(name: str, kind: str, mark: str) -> None:
    found = ordering.parse(name)
    assert found == Contender(kind, "", mark, 12, name)
    with pytest.raises(ValueError):
        _ = found.session


@given(st.lists(st.text(alphabet="x_-.lock0123456789AZ", max_size=70), max_size=8))
def test_nothing_breaks_the_reading(names: list[str]) -> None:
    assert {c.node for c in ordering.in_order(names)} <= set(names)
