"""The checker of histories: good ones pass, and every planted violation is found."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.events import Event, Journal, Tail, merge
from tests.histories.linearizability import Span, stuck_at
from tests.histories.models import FencedMutex, Mutex, Op, ReadWrite, Semaphore
from tests.histories.requests import read_requests
from tests.histories.rules import check


def hold(
    client: str,
    token: int,
    asked: float,
    granted: float,
    ended: float,
    *,
    how: str = "release",
    mode: str = "x",
    weight: int = 1,
) -> list[Event]:
    """A request that was granted, believed until `ended`, and how that came."""
    shape = {"name": "gpu", "request": token, "mode": mode, "weight": weight}
    events = [
        Event(asked, client, "invoke", **shape),  # type: ignore[arg-type]
        Event(granted, client, "ok", request=token, token=token, until=ended + 1),
        Event(ended, client, how, request=token),  # type: ignore[arg-type]
    ]
    if how == "release":
        events.append(Event(ended + 0.1, client, "released", request=token))
    return events


def broken(*parts: list[Event]) -> set[str]:
    """The rules that a history of these breaks."""
    return {violation.rule for violation in check(merge(parts))}


def test_a_history_in_order_breaks_no_rule() -> None:
    history = [
        *hold("a", 1, 0, 1, 2),
        *hold("b", 2, 0.5, 2.05, 3),
        *hold("c", 3, 0.6, 3.2, 4, how="lost"),
        *hold("a", 4, 3, 4.5, 5),
        Event(1.5, "a", "write", name="counter", text="ok"),
        Event(2.5, "b", "write", name="counter", text="unknown"),
        Event(4.6, "a", "write", name="counter", text="refused"),
        Event(1.5, "a", "store", name="register", token=1, text="ok"),
        Event(4.6, "a", "store", name="register", token=4, text="ok"),
        Event(4.7, "c", "store", name="register", token=3, text="refused"),
        Event(0.1, "story", "healed", until=5),
        Event(9.0, "story", "counter", name="counter", value=2),
        Event(9.0, "story", "left", text="znodes"),
    ]
    assert check(merge([history])) == []
    assert check([]) == []


# --- C1 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modes", ["xx", "wr", "rw", "ww"])
def test_c1_two_who_believe_at_one_time(modes: str) -> None:
    first, second = modes
    found = broken(hold("a", 1, 0, 1, 3, mode=first), hold("b", 2, 0, 2.9, 4, mode=second))
    assert "C1" in found


def test_c1_readers_believe_together() -> None:
    assert broken(hold("a", 1, 0, 1, 3, mode="r"), hold("b", 2, 0, 2, 4, mode="r")) == set()


def test_c1_a_third_overlaps_the_first_although_a_second_came_between() -> None:
    parts = [hold("a", 1, 0, 1, 9), hold("b", 2, 0, 2, 2.5), hold("c", 3, 0, 8, 10)]
    texts = [v.text for v in check(merge(parts)) if v.rule == "C1"]
    assert len(texts) == 2
    assert any("a's" in text and "c's" in text for text in texts)


def test_a_belief_ends_when_the_lease_runs_out_although_nobody_says_so() -> None:
    silent = hold("a", 1, 0, 1, 2)[:2]  # valid until 3, then stopped or dead
    assert broken(silent, hold("b", 2, 0, 3.01, 4)) == set()
    assert "C1" in broken(silent, hold("b", 2, 0, 2.99, 4))


def test_a_belief_goes_on_while_somebody_looks_and_believes() -> None:
    silent = [*hold("a", 1, 0, 1, 2)[:2], Event(3.5, "a", "believe", request=1, until=0)]
    assert "C1" in broken(silent, hold("b", 2, 0, 3.2, 4))


def test_a_renewal_prolongs_a_belief() -> None:
    silent = [*hold("a", 1, 0, 1, 2)[:2], Event(2, "a", "believe", request=1, until=7)]
    assert "C1" in broken(silent, hold("b", 2, 0, 6.5, 8))


def test_a_session_that_was_ended_by_force_is_no_violation() -> None:
    first = hold("a", 1, 0, 1, 5, how="lost")
    first[1].session = 77
    forced = [Event(2, "story", "forced", session=77)]
    assert "C1" in broken(first, hold("b", 2, 0, 3, 4))
    assert broken(first, forced, hold("b", 2, 0, 3, 4)) == set()


def test_a_lease_that_ran_out_before_it_was_in_hand_was_never_held() -> None:
    late = hold("a", 1, 0, 2.5, 3, how="lost")
    late[1].until = 2.0
    assert [request.held for request in read_requests(late).all] == [False]
    assert broken(late, hold("b", 2, 0, 2.2, 4)) == set()


# --- C2, C3 --------------------------------------------------------------------------------------


def test_c2_a_token_that_falls_or_stays() -> None:
    assert "C2" in broken(hold("a", 5, 0, 1, 2), hold("b", 4, 1.5, 3, 4))
    twins = [hold("a", 5, 0, 1, 2), hold("b", 6, 1.5, 3, 4)]
    twins[1][1].token = 5
    assert "C2" in broken(*twins)


def test_c2_a_register_that_takes_an_older_token() -> None:
    stores = [
        Event(1, "a", "store", name="register", token=7, text="ok"),
        Event(2, "b", "store", name="register", token=7, text="ok"),
        Event(3, "c", "store", name="other", token=1, text="ok"),
    ]
    assert broken(stores) == set()
    stores.append(Event(4, "a", "store", name="register", token=6, text="ok"))
    assert broken(stores) == {"C2"}


def test_c3_somebody_overtakes() -> None:
    assert "C3" in broken(hold("a", 5, 0, 3, 4), hold("b", 6, 0.5, 1, 2))


def test_c3_a_writer_is_overtaken_but_readers_may_come_in_any_order() -> None:
    assert "C3" in broken(hold("a", 5, 0, 3, 4, mode="w"), hold("b", 6, 0.5, 1, 2, mode="r"))
    assert broken(hold("a", 5, 0, 3, 4, mode="r"), hold("b", 6, 0.5, 1, 2, mode="r")) == set()


# --- C4, C5, C7, claims --------------------------------------------------------------------------


def waiting(client: str, at: float, limit: float = 0) -> list[Event]:
    return [Event(at, client, "invoke", request=1, name="gpu", until=limit)]


def test_c4_somebody_waits_for_ever_after_all_is_healed() -> None:
    healed = [Event(10, "story", "healed", until=5)]
    assert broken(waiting("a", 1), healed, [Event(14, "story", "note")]) == set()
    assert broken(waiting("a", 1), healed, [Event(16, "story", "note")]) == {"C4"}
    assert broken(waiting("a", 12), healed, [Event(16, "story", "note")]) == set()
    killed = [Event(9, "a", "killed")]
    assert broken(waiting("a", 1), killed, healed, [Event(16, "story", "note")]) == set()


def test_c4_an_answer_that_comes_too_late() -> None:
    healed = [Event(10, "story", "healed", until=5)]
    late = [*waiting("a", 1), Event(15.5, "a", "ok", request=1, token=1, until=17)]
    assert broken(late, healed) == {"C4"}
    refused = [*waiting("a", 1), Event(14, "a", "fail", request=1, text="SessionLost")]
    assert broken(refused, healed, [Event(30, "story", "note")]) == set()


def test_c4_a_time_limit_that_is_none() -> None:
    failed = Event(4, "a", "fail", request=1, text="AcquireTimeout")
    assert broken([*waiting("a", 1, limit=1), failed]) == set()
    failed.at = 9
    assert broken([*waiting("a", 1, limit=1), failed]) == {"C4"}
    assert broken(waiting("a", 1, limit=1), [Event(9, "story", "note")]) == {"C4"}


def test_c5_something_is_left() -> None:
    assert broken([Event(9, "story", "left", text="znodes in /locks/gpu", value=1)]) == {"C5"}


def test_c7_a_lost_update() -> None:
    writes = [Event(t, "a", "write", name="counter", text="ok") for t in (1, 2, 3)]
    for value, rules in ((2, {"C7"}), (3, set()), (4, {"C7"})):
        assert broken(writes, [Event(9, "s", "counter", name="counter", value=value)]) == rules
    writes.append(Event(4, "a", "write", name="counter", text="unknown"))
    for value, rules in ((2, {"C7"}), (3, set()), (4, set()), (5, {"C7"})):
        assert broken(writes, [Event(9, "s", "counter", name="counter", value=value)]) == rules


def test_c7_a_write_that_was_begun_by_a_client_that_was_killed() -> None:
    writes = [
        Event(1, "a", "write", name="counter", text="begun"),
        Event(2, "a", "write", name="counter", text="ok"),
        Event(3, "b", "write", name="counter", text="begun"),
    ]
    for value, rules in ((0, {"C7"}), (1, set()), (2, set()), (3, {"C7"})):
        assert broken(writes, [Event(9, "s", "counter", name="counter", value=value)]) == rules


def test_a_story_can_claim_more() -> None:
    [found] = check([Event(1, "a", "claim", text="kept: lost its lease for nothing")])
    assert (found.rule, found.text) == ("kept", "a: lost its lease for nothing")


# --- C6 ------------------------------------------------------------------------------------------


def test_c6_a_mutex_that_was_held_twice() -> None:
    assert "C6" in broken(hold("a", 1, 0, 1, 5), hold("b", 2, 0, 2, 3))


def test_c6_a_token_too_low_is_found_by_the_fenced_mutex() -> None:
    assert "C6" in broken(hold("a", 5, 0, 1, 2), hold("b", 4, 1.5, 3, 4))


def permits(*parts: list[Event], limit: int) -> set[str]:
    return broken(*parts, [Event(0, "story", "limit", name="gpu", value=limit)])


def test_c6_a_semaphore_counts_weights() -> None:
    parts = [
        hold("a", 1, 0, 1, 5, mode="s", weight=2),
        hold("b", 2, 0, 2, 3, mode="s"),
        hold("c", 3, 0, 3.5, 4, mode="s"),
    ]
    assert permits(*parts, limit=3) == set()
    assert permits(*parts, limit=2) == {"C6"}
    parts[2][1].at = 2.5
    assert permits(*parts, limit=3) == {"C6"}


def test_c6_a_reader_beside_a_writer() -> None:
    readers = [hold(c, t, 0, 1, 3, mode="r") for c, t in (("a", 1), ("b", 2))]
    assert broken(*readers, hold("c", 3, 0, 3.1, 4, mode="w")) == set()
    assert "C6" in broken(*readers, hold("c", 3, 0, 2.9, 4, mode="w"))


def test_c6_needs_an_order_that_pairs_do_not_show() -> None:
    """A release that is on its way for long must be before the next grant all the same."""
    first = hold("a", 1, 0, 1, 2)
    first[3].at = 6.0  # confirmed late
    assert broken(first, hold("b", 2, 0, 3, 4)) == set()


@st.composite
def histories(draw: st.DrawFn) -> list[Span[Op]]:
    """A few operations of a mutex, possible and impossible ones."""
    found = []
    for who in range(1, draw(st.integers(1, 3)) + 1):
        times = sorted(draw(st.lists(st.integers(0, 9), min_size=4, max_size=4, unique=True)))
        take, give = (Op(t, who, "x", 1, who, "") for t in (True, False))
        found.append(Span(times[0], times[1], take))
        last = draw(st.sampled_from([float(times[3]), math.inf]))
        found.append(Span(times[2], last, give))
    return found


def possible(model: Mutex | FencedMutex, spans: list[Span[Op]]) -> bool:
    """By trying all orders of all subsets that hold what must be there."""
    must = [s for s in spans if s.back < math.inf]
    may = [s for s in spans if s.back == math.inf]
    for count in range(len(may) + 1):
        for extra in itertools.combinations(may, count):
            for order in itertools.permutations([*must, *extra]):
                pairs = itertools.combinations(order, 2)
                if all(one.call <= other.back for one, other in pairs) and runs(model, order):
                    return True
    return False


def runs(model: Mutex | FencedMutex, order: tuple[Span[Op], ...]) -> bool:
    state: object = model.start()
    for span in order:
        state = model.step(state, span.op)  # type: ignore[arg-type]
        if state is None:
            return False
    return True


@given(histories())
def test_the_search_finds_what_trying_everything_finds(spans: list[Span[Op]]) -> None:
    for model in (Mutex(), FencedMutex()):
        assert (stuck_at(model, spans) is None) == possible(model, spans)  # type: ignore[arg-type]


def test_a_long_history_is_checked_quickly() -> None:
    parts = [hold(f"c{n % 5}", n, n - 4.5, n, n + 0.5) for n in range(1, 3000)]
    assert check(merge(parts)) == []


def test_models_refuse_what_was_not_taken() -> None:
    give = Op(False, 7, "x", 1, 0, "")
    for model in (Mutex(), FencedMutex(), Semaphore(1), ReadWrite()):
        assert model.step(model.start(), give) is None  # type: ignore[arg-type]


# --- journals ------------------------------------------------------------------------------------


def test_a_journal_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    tail = Tail(path)
    assert tail.update() == []
    journal = Journal(path, "a")
    journal.write("invoke", request=1, name="gpu", until=2.5)
    with path.open("ab") as file:
        file.write(b'{"at": 1, "cl')  # half a line
    [event] = tail.update()
    assert (event.client, event.kind, event.name, event.until) == ("a", "invoke", "gpu", 2.5)
    with path.open("ab") as file:
        file.write(b'ient": "a", "kind": "end"}\n')
    assert [event.kind for event in tail.update()] == ["invoke", "end"]
    journal.close()
