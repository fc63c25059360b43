import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkcoord.core.inbox import Drop, InboxRules
from zkcoord.core.records import VERSION, Cancel, Inbox, Run

QUEUE = "mail"
ME = 700


def run(task_id: str, attempt: int = 1, fence: int = 10) -> Run:
    return Run(
        id=task_id,
        attempt=attempt,
        fence=fence,
        task="send",
        priority=2,
        value=b"{}",
        headers=[],
        key=None,
        timeout=30.0,
        expires_at=None,
        trace=None,
    )


def record(*orders: Run | Cancel, seq: int = 0, term: int = 5, incarnation: int = ME) -> Inbox:
    return Inbox(VERSION, QUEUE, term, incarnation, seq, list(orders))


@pytest.fixture
def rules() -> InboxRules:
    return InboxRules(QUEUE, ME)


def test_a_first_order_is_run_and_held(rules: InboxRules) -> None:
    decision = rules.take(record(run("a")))
    assert [order.id for order in decision.run] == ["a"]
    assert rules.held() == [("a", 1)]
    assert rules.holds("a", 1)
    assert not rules.holds("a", 2)


def test_a_first_record_is_a_new_term_and_asks_for_an_answer(rules: InboxRules) -> None:
    assert rules.term == -1
    assert rules.take(record()).have
    assert rules.term == 5
    assert not rules.take(record(seq=1)).have


@pytest.mark.parametrize(
    ("given_record", "why"),
    [
        (Inbox(VERSION, "other", 5, ME, 0, [run("a")]), Drop.QUEUE),
        (record(run("a"), incarnation=ME - 1), Drop.EARLIER),
        (record(run("a"), incarnation=ME + 1), Drop.LATER),
    ],
)
def test_what_is_not_ours_is_dropped(rules: InboxRules, given_record: Inbox, why: Drop) -> None:
    decision = rules.take(given_record)
    assert decision.dropped is why
    assert not decision.run
    assert not decision.have
    assert rules.held() == []


def test_a_deposed_leader_is_not_obeyed(rules: InboxRules) -> None:
    rules.take(record(run("a"), term=6))
    decision = rules.take(record(run("b"), Cancel("a", 1, "late"), seq=1, term=5))
    assert decision.dropped is Drop.TERM
    assert not decision.run
    assert not decision.cancel
    assert rules.term == 6


def test_a_repeat_of_a_held_attempt_is_answered_not_run(rules: InboxRules) -> None:
    rules.take(record(run("a")))
    decision = rules.take(record(run("a"), seq=1))
    assert not decision.run
    assert decision.repeated == [("a", 1)]


def test_a_repeat_of_an_ended_attempt_is_dropped_in_silence(rules: InboxRules) -> None:
    rules.take(record(run("a")))
    rules.ended("a", 1, 10)
    decision = rules.take(record(run("a"), seq=1))
    assert not decision.run
    assert not decision.repeated


def test_an_order_lost_at_first_runs_when_it_is_sent_again(rules: InboxRules) -> None:
    rules.take(record(run("first", fence=1)))
    decision = rules.take(record(run("third", fence=3), seq=2))  # seq 1 held "second"
    assert decision.have
    decision = rules.take(record(run("second", fence=2), seq=1))
    assert [order.id for order in decision.run] == ["second"]


def test_a_hole_is_noticed_once(rules: InboxRules) -> None:
    rules.take(record())
    assert rules.take(record(seq=2)).have
    assert not rules.take(record(seq=3)).have


def test_a_repeated_record_makes_no_hole(rules: InboxRules) -> None:
    for seq in (0, 1, 2):
        rules.take(record(seq=seq))
    assert not rules.take(record(seq=1)).have
    assert not rules.take(record(seq=3)).have


def test_a_new_term_starts_its_own_sequence(rules: InboxRules) -> None:
    rules.take(record(seq=0))
    rules.take(record(seq=1))
    assert rules.take(record(seq=0, term=6)).have
    assert not rules.take(record(seq=1, term=6)).have


def test_a_newer_attempt_supersedes_the_held_one(rules: InboxRules) -> None:
    rules.take(record(run("a", 1, 10)))
    decision = rules.take(record(run("a", 2, 20), seq=1))
    assert [order.attempt for order in decision.run] == [2]
    assert decision.superseded == [("a", 1)]
    rules.ended("a", 1, 10)  # the old one ends late and must not take the new one's place
    assert rules.held() == [("a", 2)]


def test_an_older_attempt_than_the_known_one_is_not_run(rules: InboxRules) -> None:
    rules.take(record(run("a", 2, 20)))
    assert not rules.take(record(run("a", 1, 10), seq=1)).run
    rules.ended("a", 2, 20)
    assert not rules.take(record(run("a", 1, 10), seq=2)).run


def test_an_id_used_again_after_its_end_is_a_new_task(rules: InboxRules) -> None:
    rules.take(record(run("a", 1, 10)))
    rules.ended("a", 1, 10)
    assert rules.take(record(run("a", 1, 99), seq=1)).run


def test_cancel_reaches_only_what_is_held(rules: InboxRules) -> None:
    rules.take(record(run("a"), run("b")))
    rules.ended("b", 1, 10)
    decision = rules.take(record(Cancel("a", 1, "x"), Cancel("b", 1, "x"), seq=1))
    assert [order.id for order in decision.cancel] == ["a"]
    assert not decision.have


def test_cancel_of_something_never_seen_asks_for_an_answer(rules: InboxRules) -> None:
    rules.take(record())
    assert rules.take(record(Cancel("lost", 1, "x"), seq=1)).have


def test_memory_of_ended_attempts_is_bounded_and_keeps_the_recent_ones() -> None:
    rules = InboxRules(QUEUE, ME, recent=100)
    for number in range(1050):
        rules.take(record(run(str(number)), seq=number))
        rules.ended(str(number), 1, 10)
    assert len(rules._young) + len(rules._old) <= 200
    again = rules.take(record(*(run(str(number)) for number in range(950, 1050)), seq=1050))
    assert not again.run


def test_held_attempts_are_never_forgotten() -> None:
    rules = InboxRules(QUEUE, ME, recent=10)
    rules.take(record(run("long")))
    for number in range(100):
        rules.take(record(run(str(number)), seq=number + 1))
        rules.ended(str(number), 1, 10)
    assert rules.take(record(run("long"), seq=101)).repeated == [("long", 1)]


@given(st.integers(0, 2**32))
def test_any_loss_repetition_and_ending_runs_each_attempt_once(seed: int) -> None:
    """A sender that repeats runs of its history, over a channel that loses records."""
    rng = random.Random(seed)
    rules = InboxRules(QUEUE, ME)
    history: list[list[Run]] = []
    starts: dict[tuple[str, int], int] = {}
    newest: dict[str, tuple[int, int]] = {}
    term, seq, fence = 1, 0, 0
    for _ in range(60):
        if rng.random() < 0.1:
            term, seq = term + rng.randint(1, 3), 0
        if history and rng.random() < 0.4:
            begin = rng.randrange(len(history))
            batches = history[begin:]
        else:
            orders = []
            for _ in range(rng.randint(1, 4)):
                fence += 1
                task_id = str(rng.randint(0, 15))
                attempt = newest.get(task_id, (0, 0))[1] + 1
                newest[task_id] = (fence, attempt)
                orders.append(run(task_id, attempt, fence))
            history.append(orders)
            batches = [orders]
        for orders in batches:
            if rng.random() < 0.8:
                sent = msgspec.msgpack.encode(record(*orders, seq=seq, term=term))
                decision = rules.take(msgspec.msgpack.decode(sent, type=Inbox))
                for order in decision.run:
                    key = (order.id, order.attempt)
                    starts[key] = starts.get(key, 0) + 1
                    if rng.random() < 0.7:
                        rules.ended(order.id, order.attempt, order.fence)
            seq += 1
        for task_id, attempt in rules.held():
            if rng.random() < 0.2:
                rules.ended(task_id, attempt, rules._held[task_id][0])
    assert all(count == 1 for count in starts.values())
    # Sent without loss until they arrive, the newest attempts all get their run.
    for orders in history:
        for order in rules.take(record(*orders, seq=seq, term=term)).run:
            starts[order.id, order.attempt] = starts.get((order.id, order.attempt), 0) + 1
        seq += 1
    assert all(count == 1 for count in starts.values())
    assert all((task_id, mark[1]) in starts for task_id, mark in newest.items())
