"""How tasks end before their time: deadlines, cancellation, time limits, failures."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.faults.fleet import wait_for
from tests.faults.ward import Ward, opened
from zkcoord.core.attributes import timestamp
from zkcoord.local import Stack


@pytest.fixture(scope="module")
def ward(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    with (
        opened(stack, "tasks", tmp_path_factory.mktemp("tasks")) as made,
        made.nurses("--slots", "1", "--grace", "2"),
    ):
        yield made


def test_a_deadline_passes_while_it_waits(ward: Ward) -> None:
    soon = timestamp(time.time() + 0.5)
    refine = {"expirytime": soon, "zkrequires": "nobody-has-this"}
    source = ward.submit_one("stale", "nap", refine=refine)
    assert ward.letter(source).reason == "expired"
    assert ward.life("stale").dispatches == []


def test_a_deadline_passes_while_it_runs(ward: Ward) -> None:
    refine = {"expirytime": timestamp(time.time() + 3.0)}
    source = ward.submit_one("overtaken", "hang_first", refine=refine)
    ward.runs("overtaken")
    letter = ward.letter(source)
    assert (letter.reason, letter.attempts) == ("expired", 1)
    assert ward.attempts("overtaken") == [1]
    wait_for("the handler to be stopped", lambda: ward.ends("overtaken"))


def test_cancel_of_what_waits(ward: Ward) -> None:
    ward.submit_one("unwanted", "nap", refine={"zkrequires": "nobody-has-this"})
    wait_for("it to be accepted", lambda: "unwanted" in ward.history.accepted)
    ward.cancel("unwanted")
    assert ward.end_of("unwanted") == "cancelled"
    ward.still_works()
    assert ward.life("unwanted").dispatches == []


def test_cancel_of_what_runs(ward: Ward) -> None:
    ward.submit_one("called-off", "hang_first", refine={})
    ward.runs("called-off")
    ward.cancel("called-off")
    assert ward.end_of("called-off") == "cancelled"
    assert ward.attempts("called-off") == [1]
    wait_for("the handler to be stopped", lambda: ward.ends("called-off") == ["cancelled"])


def test_cancel_of_what_does_not_obey(ward: Ward) -> None:
    before = ward.findings().superseded
    ward.submit_one("deaf", "stubborn", refine={}, seconds=4.0)
    ward.runs("deaf")
    ward.cancel("deaf")
    assert ward.end_of("deaf") == "cancelled"  # without its agent's word
    ward.submit_one("next", "nap", refine={})
    assert ward.end_of("next") == "succeeded"  # once the slot is free
    assert ward.ends("deaf") == ["cancelled"]
    assert ward.findings().superseded == before + 1
    assert len(ward.life("deaf").ends) == 1


def test_a_time_limit_and_all_its_attempts(ward: Ward) -> None:
    refine = {"zktimeoutms": "200", "zkmaxattempts": "3", "zkbackoff": "0.05"}
    source = ward.submit_one("slow", "hang_first", refine=refine, times=99)
    letter = ward.letter(source)
    assert (letter.reason, letter.attempts) == ("exhausted", 3)
    assert "time limit" in letter.error
    life = ward.life("slow")
    assert (ward.attempts("slow"), life.retries) == ([1, 2, 3], 2)
    assert ward.ends("slow") == ["timeout"] * 3


def test_a_failing_task_and_all_its_attempts(ward: Ward) -> None:
    refine = {"zkmaxattempts": "3", "zkbackoff": "0.05", "zktenant": "shop"}
    source = ward.submit_one("unlucky", "fail", refine=refine)
    letter = ward.letter(source)
    assert (letter.reason, letter.attempts) == ("exhausted", 3)
    assert letter.error.startswith("ValueError: on purpose at ")
    assert ("ce_zktenant", b"shop") in letter.headers
    assert ward.attempts("unlucky") == [1, 2, 3]
