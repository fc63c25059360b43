"""Estimated waits, from hand-offs that were seen."""

from zkcoord.core.pace import WINDOW, Pace, departed


def test_nothing_is_known_before_the_first_hand_off() -> None:
    pace = Pace(100.0)
    pace.looked(105.0, 0)
    assert pace.estimate(3, 110.0) is None


def test_the_wait_is_the_places_in_front_times_the_usual_interval() -> None:
    pace = Pace(100.0)
    pace.looked(102.0, 1)
    pace.looked(106.0, 2)
    assert pace.interval(106.0) == 2.0
    assert pace.estimate(5, 106.0) == 10.0


def test_a_holder_that_stays_long_makes_the_estimate_grow() -> None:
    pace = Pace(0.0)
    pace.looked(1.0, 1)
    assert pace.estimate(1, 1.0) == 1.0
    assert pace.estimate(1, 9.0) == 9.0


def test_time_when_nobody_looked_counts_for_nothing() -> None:
    pace = Pace(0.0)
    pace.looked(2.0, 1)
    pace.begin(1000.0)
    assert pace.interval(1000.0) == 2.0


def test_only_the_latest_hand_offs_count() -> None:
    pace = Pace(0.0)
    pace.looked(1000.0, 1)
    for number in range(WINDOW):
        pace.looked(1001.0 + number, 1)
    assert pace.interval(1000.0 + WINDOW) == 1.0


def test_who_left_the_head_is_counted_and_who_left_elsewhere_is_not() -> None:
    before = ["a", "b", "c", "d"]
    assert departed(before, {"a": 0, "d": 1}) == 0
    assert departed(before, {"c": 0, "d": 1}) == 2
    assert departed(before, {"e": 0}) == 4
    assert departed([], {"e": 0}) == 0
