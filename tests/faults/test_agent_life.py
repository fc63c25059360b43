"""What becomes of tasks when their agents die, sleep or leave."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator

import msgspec
import pytest

from tests.faults.fleet import wait_for
from tests.faults.ward import Ward, opened
from zkcoord.core.records import VERSION, DidSucceed, Reports
from zkcoord.local import Stack


@pytest.fixture(scope="module")
def ward(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    with opened(stack, "agents", tmp_path_factory.mktemp("agents")) as made:
        yield made


def test_a_killed_agents_task_runs_elsewhere(ward: Ward) -> None:
    with ward.nurses(count=2):
        ward.submit_one("orphan", "hang_first", refine={})
        ward.holder("orphan").kill()
        life = ward.life("orphan")
        assert life.ends[0][0] == "succeeded"
        assert ward.attempts(life.id) == [1, 2]
        assert len({dispatch[2] for dispatch in life.dispatches}) == 2
        assert life.releases == ["agent lost"]


def test_a_sleeping_agents_late_word_changes_nothing(ward: Ward) -> None:
    with ward.nurses(count=2):
        ward.submit_one("late", "hang_first", refine={}, seconds=1.5)
        sleeper = ward.holder("late")
        _, partition, incarnation, _, _ = ward.first_dispatch("late")
        sleeper.pause()
        ward.runs("late", attempt=2)
        before = ward.findings().superseded
        # What it had said before it fell asleep, on a network that was slower than its death; and
        # what it cannot know.
        words = [DidSucceed("late", attempt, b'"late"', 1.0, 2.0) for attempt in (1, 2)]
        report = Reports(VERSION, partition, incarnation, "sleeper", 1, list(words))
        ward.send(msgspec.msgpack.encode(report), kind="reports")
        life = ward.life("late")
        assert (life.ends[0][0], ward.attempts("late")) == ("succeeded", [1, 2])
        assert ward.findings().superseded == before + 2
        sleeper.resume()
        wait_for("it to join again", lambda: sleeper.text().count("joined queue") == 2)
        wait_for("the attempt to be stopped", lambda: "lost" in ward.ends("late"))
        assert len(ward.life("late").ends) == 1
        again = int(re.findall(r"incarnation (\d+)", sleeper.text())[-1])
        assert again > incarnation
        ward.still_works()


def test_an_agent_that_dies_between_running_and_reporting(ward: Ward) -> None:
    with ward.nurses("--crash", "before-report") as [doomed]:
        ward.submit_one("unsaid", "nap", refine={}, answer=7)
        wait_for("the crash point", lambda: not doomed.alive)
        assert "crash point reached" in doomed.text()
    with ward.nurses():
        life = ward.life("unsaid")
        assert (life.ends[0][0], ward.attempts(life.id)) == ("succeeded", [1, 2])
        # It did run twice: that is what is promised, and what the fencing token is for.
        starts = [
            x["attempt"] for x in ward.ledgers() if x["id"] == "unsaid" and x["event"] == "start"
        ]
        assert sorted(starts) == [1, 2]


def test_a_leaving_agent_finishes_what_runs_and_returns_the_rest(ward: Ward) -> None:
    with ward.nurses("--drain", "20", "--slots", "1") as [leaver]:
        ward.submit_one("runs", "nap", refine={}, seconds=1.5)
        ward.runs("runs")
        ward.submit_one("waits", "nap", refine={})
        leaver.send(signal.SIGTERM)
        assert leaver.child.wait(30) == 0
        assert ward.attempts("runs") == [1]
        assert ward.end_of("runs") == "succeeded"
    with ward.nurses():
        assert ward.end_of("waits") == "succeeded"


def test_a_leaving_agent_gives_back_what_takes_too_long(ward: Ward) -> None:
    with ward.nurses("--drain", "0.3") as [leaver]:
        ward.submit_one("too-long", "hang_first", refine={})
        ward.runs("too-long")
        leaver.send(signal.SIGTERM)
        leaver.child.wait(30)
    with ward.nurses():
        life = ward.life("too-long")
        assert (life.ends[0][0], ward.attempts(life.id), life.releases) == (
            "succeeded",
            [1, 2],
            ["drained"],
        )


def test_a_task_that_kills_its_agents_is_stopped(ward: Ward) -> None:
    source = ward.submit_one("killer", "deadly", refine={})
    for _ in range(2):
        victim = ward.nurse()  # which may die before it can say that it joined
        wait_for(f"its death; {ward.logs()}", lambda victim=victim: not victim.alive)  # type: ignore[misc]
        assert "crash point reached" in victim.text()
    letter = ward.letter(source)
    assert (letter.reason, letter.attempts, letter.task) == ("crashes", 2, "deadly")
    assert letter.value == b'{"task":"deadly","kwargs":{}}'
    assert ward.attempts("killer") == [1, 2]


def test_without_any_agent_no_task_is_unknown(ward: Ward) -> None:
    source = ward.submit_one("stranger", "who.knows", refine={})
    wait_for("it to be accepted", lambda: "stranger" in ward.history.accepted)
    enough = time.monotonic() + 3 * ward.description.config.unknown_task_s
    wait_for("three times the patience with tasks nobody knows", lambda: time.monotonic() > enough)
    lives = [life for (id_, _), life in ward.findings().lives.items() if id_ == "stranger"]
    assert [life.ends for life in lives] == [[]]
    with ward.nurses():  # until now they may all have been away
        letter = ward.letter(source)
        assert (letter.reason, letter.attempts) == ("unknown_task", 0)
        ward.still_works()
