"""The agent's slots: what starts, what waits, what is given back."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from tests.unit.agentbench import nothing, sleeper
from zkcoord.core.records import (
    VERSION,
    Cancel,
    DidFail,
    DidHave,
    DidReceive,
    DidReturn,
    Inbox,
)
from zkcoord.queue.context import TaskContext


async def test_no_more_than_the_slots_run_at_a_time(benches: Any) -> None:
    running, most = 0, 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    bench = benches({"work": work}, slots=3)
    bench.take(*(bench.run(str(n)) for n in range(30)))
    assert bench.executor.waiting == 27
    await bench.until(lambda: len(bench.said.ends()) == 30)
    assert most == 3


async def test_threads_and_coroutines_share_the_slots(benches: Any) -> None:
    gate = threading.Event()

    def blocks() -> None:
        gate.wait(10)

    bench = benches({"work": nothing, "blocks": blocks}, slots=2)
    bench.take(bench.run("b1", "blocks"), bench.run("b2", "blocks"), bench.run("a"))
    await asyncio.sleep(0)
    assert bench.executor.busy == 2
    assert bench.executor.waiting == 1
    assert "a" not in bench.said.ends()
    gate.set()
    await bench.end_of("a")


async def test_waiting_attempts_start_by_class_then_by_arrival(benches: Any) -> None:
    order: list[str] = []

    async def work(name: str) -> None:
        order.append(name)

    bench = benches({"work": work, "sleeper": sleeper}, slots=1)
    bench.take(bench.run("s", "sleeper"))
    bench.take(
        bench.run("low", "work", "low", priority=3),
        bench.run("n1", "work", "n1"),
        bench.run("critical", "work", "critical", priority=0),
        bench.run("n2", "work", "n2"),
    )
    bench.take(Cancel("s", 1, "go"))
    await bench.end_of("low")
    assert order == ["critical", "n1", "n2", "low"]


async def test_nothing_starts_on_a_session_that_cannot_be_believed(benches: Any) -> None:
    runs: list[int] = []

    async def work() -> None:
        runs.append(1)

    bench = benches({"work": work})
    bench.valid = False
    bench.take(bench.run("w"))
    await asyncio.sleep(0.01)
    assert runs == []
    assert bench.invalid == ["the session can no longer be believed"]
    bench.executor.abandon("lost")
    assert bench.executor.waiting == 0
    assert bench.said.ends() == {}


async def test_a_loss_stops_all_and_reports_nothing(benches: Any) -> None:
    told: list[str] = []

    begun: list[str] = []

    async def work() -> None:
        begun.append("coroutine")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.append("coroutine")
            raise

    def thread(ctx: TaskContext) -> None:
        begun.append("thread")
        assert ctx.cancelled.wait(10)
        told.append(ctx.reason)

    bench = benches({"work": work, "thread": thread}, slots=2)
    bench.take(bench.run("w"), bench.run("t", "thread"), bench.run("waits"))
    await bench.until(lambda: len(begun) == 2)
    bench.executor.abandon("cut off")
    await bench.until(lambda: bench.executor.busy == 0)
    assert sorted(told) == ["coroutine", "cut off"]
    assert bench.said.ends() == {}
    # The next incarnation gets the same tasks as new attempts.
    bench.begin(2)
    bench.take(bench.run("waits", "thread", attempt=2))
    bench.take(Cancel("waits", 2, "enough"))
    end = await bench.end_of("waits")
    assert isinstance(end, DidFail)
    assert end.attempt == 2


async def test_slots_held_by_lost_attempts_are_not_offered(benches: Any) -> None:
    gate, begun = threading.Event(), threading.Event()

    def stubborn() -> None:
        begun.set()
        gate.wait(10)

    bench = benches({"stubborn": stubborn, "work": nothing}, slots=2)
    bench.take(bench.run("s", "stubborn"))
    await asyncio.to_thread(begun.wait, 10)
    bench.executor.abandon("lost")
    bench.begin(2)
    assert bench.executor.capacity == 1
    bench.take(bench.run("w"))
    await bench.end_of("w")
    gate.set()
    await bench.until(lambda: bench.executor.capacity == 2)
    assert set(bench.said.ends()) == {"w"}


async def test_a_newer_attempt_replaces_the_one_that_runs(benches: Any) -> None:
    bench = benches({"work": sleeper})
    bench.take(bench.run("w", attempt=1))
    await asyncio.sleep(0)
    bench.take(bench.run("w", attempt=2))
    await bench.until(bench.said.ends)
    end = bench.said.ends()["w"]
    assert isinstance(end, DidFail)
    assert (end.attempt, end.kind) == (1, "cancelled")
    assert bench.executor.busy == 1
    bench.executor.answer()
    assert bench.said.reports[-1] == DidHave([("w", 2)])
    bench.take(Cancel("w", 2, "x"))


async def test_a_repeat_of_what_runs_is_confirmed(benches: Any) -> None:
    bench = benches({"work": sleeper})
    order = bench.run("w")
    bench.take(order)
    bench.take(order)
    assert bench.said.reports[-1] == DidReceive("w", 1)
    assert bench.executor.busy == 1
    bench.take(Cancel("w", 1, "x"))


async def test_attempts_are_noted_when_they_arrive_and_when_a_told_one_starts(
    benches: Any,
) -> None:
    bench = benches({"work": sleeper}, slots=1)
    bench.take(bench.run("a"), bench.run("b"))
    assert [task_id for task_id, _ in bench.said.notes] == ["a", "b"]
    waiting = next(iter(bench.executor._backlog._classes[2]))
    waiting.announced = True  # as the reporter does once it told
    bench.take(Cancel("a", 1, "x"))
    await bench.until(lambda: len(bench.said.notes) == 3)
    assert bench.said.notes[-1] == ("b", True)
    bench.take(Cancel("b", 1, "x"))


async def test_draining_returns_what_waits_and_what_comes(benches: Any) -> None:
    bench = benches({"work": sleeper}, slots=1)
    bench.take(bench.run("runs"), bench.run("waits"))
    await asyncio.sleep(0)
    bench.executor.drain()
    bench.take(bench.run("comes"))
    assert bench.said.ends() == {
        "waits": DidReturn("waits", 1, "drained", 2),
        "comes": DidReturn("comes", 1, "drained", 3),
    }
    assert not await bench.executor.idle(0.01)
    bench.executor.give_back()
    assert await bench.executor.idle(5)
    assert bench.said.ends()["runs"] == DidReturn("runs", 1, "drained", 1)


async def test_a_leader_says_that_no_order_follows(benches: Any) -> None:
    bench = benches({"work": sleeper})
    bench.executor.drain()
    bench.take(bench.run("comes"))
    assert not await bench.executor.dismissed(0.01)
    elsewhere = Inbox(VERSION, "q", 1, bench.incarnation - 1, 0, [], last=True)
    bench.executor.take([msgspec.msgpack.encode(elsewhere)])
    assert not await bench.executor.dismissed(0.01)
    word = Inbox(VERSION, "q", 1, bench.incarnation, next(bench.seq), [], last=True)
    bench.executor.take([msgspec.msgpack.encode(word)])
    assert await bench.executor.dismissed(5)
    assert bench.said.ends() == {"comes": DidReturn("comes", 1, "drained", 1)}


async def test_room_depends_on_what_waits_and_on_what_is_not_acknowledged(benches: Any) -> None:
    bench = benches({"work": sleeper}, slots=1)
    assert bench.executor.has_room
    bench.said.unacknowledged = 1_000_000
    assert not bench.executor.has_room
    bench.said.unacknowledged = 0
    bench.said.unacknowledged_bytes = 100_000_000
    assert not bench.executor.has_room
    bench.said.unacknowledged_bytes = 0
    bench.take(*(bench.run(str(n)) for n in range(1100)))
    assert not bench.executor.has_room
    bench.executor.abandon("end")


async def test_unreadable_records_are_answered(
    benches: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bench = benches()
    future = msgspec.msgpack.encode(Inbox(VERSION + 1, "q", 1, 1, 0, []))
    bench.executor.take([b"\xc1", None, future])
    assert bench.said.reports == [DidHave([])]
    assert "format 2" in caplog.text


async def test_a_successor_in_the_inbox_ends_the_incarnation(benches: Any) -> None:
    bench = benches()
    record = Inbox(VERSION, "q", 1, 99, 0, [bench.run("w")])
    bench.executor.take([msgspec.msgpack.encode(record)])
    assert bench.invalid == ["another agent has claimed the inbox"]
