"""When a partition counts as standing still."""

import itertools

from zkcoord.kafka import BEGINNING, END
from zkcoord.kafka.standstill import Stalled, Standstill

A = ("t", 0)
B = ("t", 1)


def ask(
    judge: Standstill, now: float, positions: dict[tuple[str, int], int], **ends: int
) -> list[Stalled]:
    """One look, at `now`; `ends` are those of a and b."""
    assert judge.due <= now
    still = judge.still(positions, now)
    known = {A: ends.get("a", 0), B: ends.get("b", 0)}
    return judge.judge({place: known[place] for place in still}, now)


def begun(positions: dict[tuple[str, int], int]) -> Standstill:
    judge = Standstill(3.0)
    judge.assigned(positions, 0.0)
    return judge


def test_two_answers_beyond_the_same_position_make_a_stall() -> None:
    judge = begun({A: 2, B: 7})
    assert ask(judge, 3, {A: 2, B: 7}, a=20, b=7) == []
    assert ask(judge, 6, {A: 2, B: 7}, a=20, b=7) == [Stalled(A, 2, 20, 2, 1)]


def test_who_moves_is_not_even_asked_about() -> None:
    judge = begun({A: 2, B: 0})
    assert judge.still({A: 3, B: 0}, 3) == [B]
    assert judge.judge({B: 0}, 3) == []
    assert judge.still({A: 3, B: 0}, 6) == [A, B]
    assert judge.judge({A: 9, B: 0}, 6) == []
    assert judge.still({A: 4, B: 0}, 9) == [B]
    assert judge.judge({B: 0}, 9) == []
    assert ask(judge, 12, {A: 4, B: 0}, a=9) == []  # the suspicion of A began anew


def test_at_the_end_nothing_stands_still() -> None:
    judge = begun({A: 5, B: BEGINNING})
    for now in range(3, 60, 3):
        assert ask(judge, now, {A: 5, B: BEGINNING}, a=5, b=0) == []


def test_records_that_came_just_now_are_given_time() -> None:
    judge = begun({A: 5})
    assert ask(judge, 3, {A: 5}, a=5) == []
    assert ask(judge, 6, {A: 5}, a=6) == []
    assert ask(judge, 9, {A: 6}) == []


def test_a_reader_that_was_not_asked_is_not_suspected() -> None:
    judge = begun({A: 5})
    assert ask(judge, 3, {A: 5}, a=6) == []
    assert ask(judge, 60, {A: 5}, a=6) == []
    assert ask(judge, 63, {A: 5}, a=6) != []


def test_a_stall_without_a_cure_is_treated_more_and_more_rarely() -> None:
    judge = begun({A: 2})
    found = [
        (now, stall.times)
        for now in range(3, 1200, 3)
        for stall in ask(judge, float(now), {A: 2}, a=20)
    ]
    times = [now for now, _ in found]
    assert [count for _, count in found] == list(range(1, len(found) + 1))
    assert times[0] == 6
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses[:5] == [6, 12, 24, 48, 96]
    assert max(pauses) == 300


def test_progress_forgives() -> None:
    judge = begun({A: 2})
    assert ask(judge, 3, {A: 2}, a=20) == []
    assert [s.times for s in ask(judge, 6, {A: 2}, a=20)] == [1]
    assert ask(judge, 9, {A: 4}) == []
    assert ask(judge, 12, {A: 4}, a=20) == []
    assert ask(judge, 15, {A: 4}, a=20) == [Stalled(A, 4, 20, 4, 1)]


def test_a_beginning_that_was_never_found_is_looked_for_again() -> None:
    judge = begun({A: BEGINNING})
    assert ask(judge, 3, {A: BEGINNING}, a=20) == []
    assert ask(judge, 6, {A: BEGINNING}, a=20) == [Stalled(A, BEGINNING, 20, BEGINNING, 1)]


def test_an_end_that_was_never_found_is_the_one_first_heard_of() -> None:
    judge = begun({A: END, B: 4})
    assert ask(judge, 0, {A: END, B: 4}, a=10, b=4) == []
    assert judge.starts({A: END, B: 4}) == {A: 10, B: 4}
    assert ask(judge, 3, {A: END, B: 4}, a=10, b=4) == []
    assert ask(judge, 6, {A: END, B: 4}, a=13, b=4) == []
    assert ask(judge, 9, {A: END, B: 4}, a=14, b=4) == [Stalled(A, END, 14, 10, 1)]
    # From now on it is read from 10, which does not help either.
    assert ask(judge, 12, {A: 10, B: 4}, a=14, b=4) == []
    assert ask(judge, 15, {A: 10, B: 4}, a=14, b=4) == [Stalled(A, 10, 14, 10, 2)]


def test_questions_without_answer_become_rare() -> None:
    judge = begun({A: 2})
    dues = []
    now = 3.0
    for _ in range(6):
        judge.still({A: 2}, now)
        judge.unanswered(now)
        dues.append(judge.due - now)
        now = judge.due
    assert dues == [6, 12, 24, 30, 30, 30]
    assert ask(judge, now, {A: 2}, a=20) == []
    assert ask(judge, now + 3, {A: 2}, a=20) != []


def test_while_an_end_is_not_known_it_is_asked_for_soon() -> None:
    judge = begun({A: END})
    assert judge.due == 0
    judge.still({A: END}, 0)
    judge.unanswered(0)
    assert judge.due == 1
