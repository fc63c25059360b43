import pytest

from zkcoord.core import known_queue
from zkcoord.core.known_queue import KnownQueue
from zkcoord.core.ordering import Contender, encode_session, in_order, prefix

HIGHEST = 2**31 - 1


def contender(sequence: int, *, session: int = 1, request: str = "a") -> Contender:
    (found,) = in_order([f"{prefix('x', session, request)}{sequence:010d}"])
    return found


def queue_of(*sequences: int) -> KnownQueue:
    queue = KnownQueue()
    queue.listed([contender(sequence) for sequence in sequences])
    return queue


def numbers(place: known_queue.Place | None) -> list[int]:
    assert place is not None
    return [ahead.sequence for ahead in place.ahead]


def test_the_next_number_stands_right_behind_the_last_known() -> None:
    queue = queue_of(3, 5)
    place = queue.append(contender(6))
    assert numbers(place) == [3, 5]
    assert place is not None
    assert (place.position, place.mine, place.behind) == (2, contender(6), 0)
    assert numbers(queue.append(contender(7))) == [3, 5, 6]


def test_a_gap_tells_nothing() -> None:
    queue = queue_of(3, 5)
    assert queue.append(contender(7)) is None
    assert numbers(queue.append(contender(6))) == [3, 5]


def test_nothing_follows_what_is_not_known() -> None:
    queue = queue_of(3)
    queue.forget()
    assert not queue
    assert queue.append(contender(4)) is None
    assert KnownQueue().append(contender(0)) is None


def test_the_counter_may_wrap_in_between() -> None:
    queue = queue_of(HIGHEST)
    assert numbers(queue.append(contender(-HIGHEST - 1))) == [HIGHEST]


def test_whoever_holds_has_nobody_in_front() -> None:
    queue = queue_of(3, 5, 8)
    earlier = queue.append(contender(9))
    queue.reached(contender(8))
    assert numbers(queue.append(contender(10))) == [8, 9]
    assert numbers(earlier) == [3, 5, 8], "a place stays as it was told"


def test_those_who_have_gone_are_thrown_out_in_the_end() -> None:
    queue = queue_of(0)
    for sequence in range(1, 3000):
        place = queue.append(contender(sequence))
        assert numbers(place) == [sequence - 1]
        queue.reached(contender(sequence))
    assert len(queue._ordered) < 1000


def test_it_is_counted_on_so_far_and_no_farther(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_queue, "APPENDED_MAX", 2)
    queue = queue_of(0)
    assert queue.append(contender(1))
    assert queue.append(contender(2))
    assert queue.append(contender(3)) is None
    queue.listed([contender(3)])
    assert numbers(queue.append(contender(4))) == [3]


def test_places_of_several_requests_in_one_pass() -> None:
    queue = KnownQueue()
    first, stray = contender(2, request="b"), contender(4, request="b")
    other = contender(3, session=2, request="b")
    queue.listed([contender(1), first, other, stray])
    ours, theirs = (encode_session(1), "b"), (encode_session(2), "b")
    found = queue.places([ours, theirs, (encode_session(3), "b")])
    assert found.keys() == {ours, theirs}
    assert found[ours][:3] == (1, first, (stray,))
    assert found[ours].behind == 1
    assert numbers(found[theirs]) == [1, 2]


def test_those_in_front_are_a_sequence() -> None:
    place = queue_of(1, 2, 3).append(contender(4))
    assert place is not None
    front = place.ahead
    assert len(front) == 3
    assert [c.sequence for c in reversed(front)] == [3, 2, 1]
    assert front[-1].sequence == 3
    assert [c.sequence for c in front[:2]] == [1, 2]
    with pytest.raises(IndexError):
        front[3]
    with pytest.raises(IndexError):
        front[-4]
