"""Who may hold of a semaphore: weights in names, limits in values, and what a waiter does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkcoord.core import ordering, permits
from zkcoord.core.ordering import Contender
from zkcoord.core.permits import PERMIT, PERMITS_MAX, Limit, Step, Waiter

weights = st.integers(min_value=1, max_value=PERMITS_MAX)
small = st.integers(min_value=1, max_value=6)
queues = st.lists(small, max_size=12)


def queue(weights: list[int], start: int = 0) -> list[Contender]:
    """Contenders in order, with sequences from `start` on, across the wrap."""
    names = []
    for number, weight in enumerate(weights):
        counter = (start + number + 2**31) % 2**32 - 2**31
        request = permits.load(weight) + ordering.encode_request(number)
        names.append(ordering.prefix(PERMIT, 7, request) + f"{counter:010d}")
    return ordering.in_order(names)


@given(weights, st.integers(min_value=0, max_value=2**40))
def test_a_weight_is_read_back_from_the_name(weight: int, number: int) -> None:
    request = permits.load(weight) + ordering.encode_request(number)
    found = ordering.parse(ordering.prefix(PERMIT, 1, request) + "0000000007")
    assert found is not None
    assert permits.weight_of(found) == weight


def test_requests_of_different_weight_never_share_a_text() -> None:
    texts = {
        permits.load(weight) + ordering.encode_request(number)
        for weight in range(1, 80)
        for number in range(80)
    }
    assert len(texts) == 79 * 80


@given(st.text(alphabet="0123456789abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=6))
def test_other_names_weigh_nothing_or_something_but_break_nothing(request: str) -> None:
    for kind in (PERMIT, "x"):
        assert permits.weight_of(Contender(kind, "a" * 11, request, 1, "node")) >= 0
    assert permits.weight_of(Contender("x", "a" * 11, "111", 1, "node")) == 0


@given(weights, weights, weights, st.booleans())
def test_a_limit_is_read_back(permitted: int, old: int, first: int, trial: bool) -> None:
    limit = Limit(old, 0, first).resized(permitted, trial=trial)
    found = permits.read_limit(permits.write_limit(limit))
    assert found is not None
    assert (found.permits, found.reach, found.back) == (permitted, limit.reach, limit.back)
    assert all(found.agrees(number) for number in (permitted, first))
    assert found.restored().permits == (old if trial else permitted)


def test_the_value_of_a_plain_limit_is_short_and_nothing_is_no_limit() -> None:
    assert permits.write_limit(Limit(3, 3, 3)) == b'{"permits":3}'
    assert permits.read_limit(b"") is None


@pytest.mark.parametrize(
    "value", [b"3", b"{}", b"hello", b'{"permits":0}', b'{"permits":"3"}', b'{"permits":1000001}',
              b'{"permits":3,"peak":-1}', b"\xff", b"[]"]
)  # fmt: skip
def test_anything_else_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        permits.read_limit(value)


@given(queues, small, st.integers(min_value=2**31 - 6, max_value=2**31 + 2))
def test_holders_are_the_longest_prefix_within_the_limit(
    line: list[int], limit: int, start: int
) -> None:
    ordered = queue(line, start)
    held = permits.holders(ordered, limit)
    assert held == ordered[: len(held)]
    assert permits.held(ordered, limit) <= limit
    if len(held) < len(ordered):
        assert sum(line[: len(held) + 1]) > limit


@given(queues, small, st.integers(min_value=1, max_value=20))
def test_a_request_is_granted_exactly_when_it_is_within_the_limit(
    ahead: list[int], weight: int, limit: int
) -> None:
    step = Waiter(weight).placed(queue(ahead), Limit(limit))
    within = len(permits.holders(queue([*ahead, weight]), limit)) == len(ahead) + 1
    assert (step is Step.GRANT) == within
    assert (step is Step.REFUSE) == (weight > limit)


@given(queues.filter(bool), small, st.integers(min_value=1, max_value=20), st.integers(0, 15))
def test_only_the_front_watches_holders_and_the_others_watch_who_waits(
    ahead: list[int], weight: int, limit: int, peak: int
) -> None:
    waiter = Waiter(weight)
    line = queue(ahead)
    if waiter.placed(line, Limit(limit, peak)) is not Step.WAIT:
        return
    if sum(ahead) <= max(limit, peak):
        assert not waiter.followed
        assert set(waiter.watched()) <= {one.node for one in line}
    else:
        assert waiter.followed == line[-1].node
        assert line[-1] not in permits.holders(line, max(limit, peak))


@given(queues.filter(bool), small, st.integers(min_value=1, max_value=20), st.randoms())
def test_no_wake_up_is_missed_whoever_leaves_first(
    ahead: list[int], weight: int, limit: int, rng: object
) -> None:
    """Only what is watched is told; still the request is granted as soon as it may be."""
    line = queue(ahead)
    waiter = Waiter(weight)
    step = waiter.placed(line, Limit(limit, sum(ahead)))
    alive = {one.node: permits.weight_of(one) for one in line}
    while step is Step.WAIT:
        assert sum(alive.values()) + weight > limit
        watched = set(waiter.watched())
        assert watched
        leaving = rng.choice(sorted(alive))  # type: ignore[attr-defined]
        del alive[leaving]
        if leaving not in watched:
            assert sum(alive.values()) + weight > limit, "it may go in, and nothing tells it"
            continue
        step = waiter.gone(leaving)
        while step is Step.WAIT and (gone := set(waiter.watched()) - set(alive)):
            step = waiter.gone(gone.pop())  # what is watched newly and has gone is told at once
    assert step is (Step.REFUSE if weight > limit else Step.GRANT)
    if step is Step.GRANT:
        assert sum(alive.values()) + weight <= limit


@given(queues.filter(bool), small, st.integers(1, 20), st.integers(1, 20))
def test_a_resize_is_a_new_judgement(
    ahead: list[int], weight: int, limit: int, wanted: int
) -> None:
    waiter = Waiter(weight)
    if waiter.placed(queue(ahead), Limit(limit, sum(ahead))) is not Step.WAIT:
        return
    step = waiter.resized(Limit(limit, sum(ahead)).resized(wanted))
    assert (step is Step.GRANT) == (sum(ahead) + weight <= wanted)
    assert (step is Step.REFUSE) == (weight > wanted)
    trial = waiter.resized(Limit(limit).resized(wanted, trial=True))
    assert (trial is Step.REFUSE) == (weight > max(wanted, limit))


def test_a_follower_goes_on_with_what_its_predecessor_knew() -> None:
    line = queue([1, 1, 1])
    waiter = Waiter(1)
    assert waiter.placed(line, Limit(2)) is Step.WAIT
    assert waiter.followed == line[2].node
    assert waiter.gone(line[0].node) is Step.WAIT  # not watched: a late event of another time
    assert waiter.succeed(line[1].node, 1, {}) is Step.WAIT  # not the one it follows
    assert waiter.succeed(line[2].node, 1, {line[1].node: 1}) is Step.WAIT
    assert waiter.watched() == [line[1].node, line[2].node]
    assert waiter.gone(line[2].node) is Step.GRANT


def test_a_follower_that_is_told_nothing_looks_and_is_at_the_front_then() -> None:
    line = queue([1, 1, 1])
    waiter = Waiter(1)
    waiter.placed(line, Limit(2))
    assert waiter.succeed(line[2].node, 1, None) is Step.LOOK
    assert waiter.placed(line, Limit(2)) is Step.WAIT
    assert not waiter.followed
    other = Waiter(1)
    other.placed(line, Limit(2))
    assert other.gone(line[2].node) is Step.LOOK


def test_what_may_have_gone_together_with_us_grants_nothing_unseen() -> None:
    line = queue([1])
    waiter = Waiter(1)
    waiter.placed(line, Limit(1))
    assert waiter.gone(line[0].node, sure=False) is Step.LOOK
