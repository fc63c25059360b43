"""Schedulers are killed, paused, started twice and misled; the servers stay well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fleet import Fleet, fleet, wait_for
from zkcoord import Queue
from zkcoord.core.records import VERSION, Batch, TermOpened
from zkcoord.kafka import Admin, LogAppender


@pytest.fixture
def crew(kafka: str, zookeeper: str, queue_name: str, tmp_path: Path) -> Iterator[Fleet]:
    with fleet(kafka, zookeeper, queue_name, tmp_path) as made:
        made.create()
        yield made


def test_leader_killed_with_pending_work(crew: Fleet) -> None:
    crew.add_scheduler()
    crew.add_scheduler()
    crew.add_agent()
    crew.add_agent()
    first = crew.leader()
    ids = set(crew.submit(600, seconds=0.02))
    wait_for("some tasks to run", lambda: len(crew.ledgers()) > 100)
    first.kill()
    assert crew.leader() is not first
    ids |= set(crew.submit(100, prefix="later"))
    wait_for("all to end", lambda: crew.history_if_ended(ids), timeout=60)
    crew.check(ids)


def test_paused_leader_wakes_up_to_void_appends_and_stops(crew: Fleet) -> None:
    first = crew.add_scheduler()
    crew.leader()
    term = crew.term_of(first)
    second = crew.add_scheduler()
    crew.add_agent()
    crew.add_agent()
    ids = set(crew.submit(300, seconds=0.02))
    wait_for("some tasks to run", lambda: len(crew.ledgers()) > 100)
    first.pause()
    ids |= set(crew.submit(100, seconds=0.02, prefix="paused"))
    wait_for("the second to lead", lambda: "leading as" in second.text())
    ids |= set(crew.submit(100, seconds=0.02, prefix="second"))
    first.resume()
    wait_for("the first to notice", lambda: f"term {term} ended" in first.text(), timeout=15)
    wait_for("all to end", lambda: crew.history_if_ended(ids), timeout=60)
    crew.check(ids)
    assert first.alive, "it stands by again"
    second.kill()
    assert crew.leader() is first
    ids |= set(crew.submit(50, prefix="again"))
    wait_for("all to end", lambda: crew.history_if_ended(ids), timeout=60)
    crew.check(ids)


def test_two_schedulers_started_at_once(crew: Fleet) -> None:
    first = crew.add_scheduler()
    second = crew.add_scheduler()
    crew.add_agent()
    ids = set(crew.submit(200))
    wait_for("all to end", lambda: crew.history_if_ended(ids))
    crew.check(ids)
    led = [p for p in (first, second) if "leading as" in p.text()]
    assert len(led) == 1


@pytest.mark.parametrize("point", ["before-output", "after-output"])
def test_scheduler_dies_between_append_and_watermark(crew: Fleet, point: str) -> None:
    doomed = crew.add_scheduler("doomed", "--crash", point, "--crash-after", "15")
    crew.leader()
    crew.add_scheduler()
    crew.add_agent()
    with Queue(crew.queue, kafka=crew.kafka, zookeeper=crew.zookeeper) as queue:
        tickets = [
            queue.submit_raw_nowait("nap", kwargs={"seconds": 0.01, "answer": n})
            for n in range(200)
        ]
        wait_for("the crash point", lambda: not doomed.alive)
        assert "crash point reached" in doomed.text()
        # A result that was decided and not sent must be sent by the next leader.
        assert [ticket.result(timeout=60) for ticket in tickets] == list(range(200))
    ids = {ticket.id for ticket in tickets}
    wait_for("all to end", lambda: crew.history_if_ended(ids), timeout=60)
    crew.check(ids)


def test_a_scheduler_that_comes_back_restores_from_the_checkpoint(crew: Fleet) -> None:
    first = crew.add_scheduler("first", "--checkpoint-after", "1")
    ids = set(crew.submit(50))
    crew.leader()

    def kept() -> bool:
        position, tasks = crew.checkpoint()
        return tasks == 50 and position is not None and position.offset > 0

    wait_for("a checkpoint of them all", kept)
    first.kill()
    second = crew.add_scheduler("second")
    crew.leader()
    assert "restored: 50 tasks from the checkpoint" in second.text()
    crew.add_agent()
    wait_for("all to end", lambda: crew.history_if_ended(ids), timeout=60)
    crew.check(ids)


def test_a_term_below_the_logs_refuses_to_lead_and_names_the_cure(crew: Fleet) -> None:
    batch = Batch(VERSION, 2**62, 0, 1.0, [], -1, [TermOpened("from the future")])
    with LogAppender(crew.kafka_config, crew.description.topics.log, client_id="test") as log:
        log.append(crew.encode(batch))
        assert log.flush(10) == 0
    scheduler = crew.add_scheduler()
    assert scheduler.child.wait(30) != 0
    assert "StaleTerm" in scheduler.text()
    assert "acceptedEpoch" in scheduler.text()


def test_a_hole_in_the_inputs_is_an_incident(crew: Fleet) -> None:
    crew.submit(10)
    with Admin(crew.kafka_config) as admin:
        admin.trim({(crew.description.topics.normal, 0): 5})
    scheduler = crew.add_scheduler()
    assert scheduler.child.wait(30) != 0
    assert "RecordsTrimmed" in scheduler.text()
    assert f"queue {crew.queue} is not served any more" in scheduler.text()


def test_missing_topics_are_named(crew: Fleet) -> None:
    reports = crew.description.topics.reports
    with Admin(crew.kafka_config) as admin:
        admin.delete([reports])
    scheduler = crew.add_scheduler()
    assert scheduler.child.wait(30) != 0
    assert "TopicMismatch" in scheduler.text()
    assert reports in scheduler.text()


def test_an_unknown_queue_is_named(crew: Fleet) -> None:
    crew.queue = "nobody-made-it"
    scheduler = crew.add_scheduler()
    assert scheduler.child.wait(30) != 0
    assert "there is no queue 'nobody-made-it'" in scheduler.text()


@pytest.mark.parametrize("missing", ["kafka", "zookeeper"])
def test_servers_away_at_the_start_are_waited_for(crew: Fleet, missing: str) -> None:
    setattr(crew, missing, "127.0.0.1:1")
    scheduler = crew.add_scheduler()
    wait_for("a message", lambda: f"queue {crew.queue} waits" in scheduler.text(), timeout=60)
    assert "127.0.0.1:1" in scheduler.text()
    assert scheduler.stop() == 0
