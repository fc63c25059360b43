"""How the agent runs and stops its handlers."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import time
import traceback
from typing import Any

import pytest

from tests.unit.agentbench import ENDS, sleeper
from zkcoord.core.records import (
    Cancel,
    DidFail,
    DidSucceed,
)
from zkcoord.errors import Retry
from zkcoord.queue.attempt import Attempt
from zkcoord.queue.context import TaskContext
from zkcoord.queue.failures import LOGGED_FRAMES_MAX


async def test_coroutines_that_do_not_suspend_share_one_task(benches: Any) -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    async def work() -> None:
        tasks.append(asyncio.current_task())

    bench = benches({"work": work})
    bench.take(*(bench.run(str(n)) for n in range(100)))
    await bench.until(lambda: len(bench.said.ends()) == 100)
    assert len(set(tasks)) == 1
    assert tasks[0] is not None


async def test_coroutines_that_suspend_run_side_by_side(benches: Any) -> None:
    here = 0
    together = asyncio.Event()

    async def work() -> None:
        nonlocal here
        here += 1
        if here == 3:
            together.set()
        await together.wait()

    bench = benches({"work": work})
    bench.take(*(bench.run(str(n)) for n in range(3)))
    await bench.until(lambda: len(bench.said.ends()) == 3)


async def test_asyncio_tools_work_from_the_first_step(benches: Any) -> None:
    async def work() -> str:
        async with asyncio.timeout(5):
            async with asyncio.TaskGroup() as group:
                child = group.create_task(asyncio.sleep(0.001, "child"))
            return await child

    async def expires() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            return "expired"
        return "slept"

    bench = benches({"work": work, "expires": expires})
    bench.take(bench.run("w"), bench.run("e", "expires"))
    w, e = await bench.end_of("w"), await bench.end_of("e")
    assert isinstance(w, DidSucceed)
    assert w.result == b'"child"'
    assert isinstance(e, DidSucceed)
    assert e.result == b'"expired"'


async def test_context_variables_do_not_leak_between_attempts(benches: Any) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")
    seen: list[str] = []

    async def work() -> None:
        seen.append(variable.get())
        variable.set("dirty")
        await asyncio.sleep(0)
        assert variable.get() == "dirty"

    def thread() -> None:
        seen.append(variable.get())
        variable.set("dirty")

    bench = benches({"work": work, "thread": thread}, slots=1)
    bench.take(*(bench.run(f"{task}{n}", task) for task in ("work", "thread") for n in range(3)))
    await bench.until(lambda: len(bench.said.ends()) == 6)
    assert seen == ["clean"] * 6
    assert all(isinstance(report, DidSucceed) for report in bench.said.ends().values())


async def test_a_cancellation_left_behind_does_not_hit_the_next_attempt(benches: Any) -> None:
    async def cancels_itself() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "done"

    async def work() -> str:
        await asyncio.sleep(0.001)
        return "unharmed"

    bench = benches({"work": work, "cancels": cancels_itself}, slots=1)
    bench.take(bench.run("c", "cancels"), bench.run("w"))
    w = await bench.end_of("w")
    assert isinstance(w, DidSucceed), w
    c = await bench.end_of("c")
    assert isinstance(c, DidSucceed)


async def test_a_coroutine_that_cancels_itself_and_waits_failed(benches: Any) -> None:
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    bench = benches({"work": work})
    bench.take(bench.run("w"))
    end = await bench.end_of("w")
    assert isinstance(end, DidFail)
    assert end.kind == "error"
    assert "cancelled itself" in end.error


async def test_a_coroutine_that_ignores_cancellation_keeps_its_slot(benches: Any) -> None:
    release = asyncio.Event()

    async def work() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    bench = benches({"work": work})
    bench.take(bench.run("w", timeout=0.01))
    end = await bench.end_of("w")
    assert isinstance(end, DidFail)
    assert end.kind == "timeout"
    assert bench.executor.busy == 1
    assert bench.executor.capacity == 3
    release.set()
    await bench.until(lambda: bench.executor.busy == 0)
    assert bench.executor.capacity == 4
    assert bench.changes == [3, 4]
    assert bench.said.reports.count(end) == 1
    assert sum(isinstance(report, ENDS) for report in bench.said.reports) == 1


async def test_the_grace_lets_a_handler_clean_up(benches: Any) -> None:
    cleaned = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            cleaned.set()

    bench = benches({"work": work}, grace_s=5.0)
    bench.take(bench.run("w"))
    await asyncio.sleep(0)
    bench.take(Cancel("w", 1, "enough"))
    end = await bench.end_of("w")
    assert cleaned.is_set()
    assert isinstance(end, DidFail)
    assert (end.kind, end.error) == ("cancelled", "enough")


async def test_the_first_verdict_stands(benches: Any) -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)

    bench = benches({"work": work}, grace_s=5.0)
    bench.take(bench.run("w"))
    await asyncio.sleep(0)
    bench.take(Cancel("w", 1, "first"))
    bench.executor.give_back()
    end = await bench.end_of("w")
    assert isinstance(end, DidFail)
    assert (end.kind, end.error) == ("cancelled", "first")


async def test_what_is_cancelled_before_its_first_step_never_runs(benches: Any) -> None:
    runs: list[int] = []

    async def work() -> None:
        runs.append(1)

    bench = benches({"work": work})
    bench.take(bench.run("w"), Cancel("w", 1, "too late"), bench.run("last"))
    bench.take(bench.run("x"))
    bench.take(Cancel("x", 1, "in its slot, not begun"))
    await bench.end_of("last")
    x, w = await bench.end_of("x"), await bench.end_of("w")
    assert isinstance(x, DidFail)
    assert isinstance(w, DidFail)
    assert x.kind == w.kind == "cancelled"
    assert runs == [1]


async def test_a_verdict_outweighs_what_the_handler_returns(benches: Any) -> None:
    def work(ctx: TaskContext) -> str:
        ctx.cancelled.wait(10)
        return "half"

    bench = benches({"work": work}, grace_s=5.0)
    bench.take(bench.run("w", timeout=0.01))
    end = await bench.end_of("w")
    assert isinstance(end, DidFail)
    assert end.kind == "timeout"


async def test_an_idle_agent_keeps_no_finished_task_alive(benches: Any) -> None:
    async def work(ctx: TaskContext) -> None:
        await asyncio.sleep(0)

    def attempts() -> int:
        gc.collect()
        return sum(isinstance(thing, Attempt) for thing in gc.get_objects())

    bench = benches({"work": work, "thread": lambda ctx: None})
    before = attempts()
    bench.take(bench.run("w"), bench.run("t", "thread"))
    await bench.end_of("w")
    await bench.end_of("t")
    await bench.until(lambda: attempts() == before)


async def test_long_runs_of_short_handlers_leave_the_loop_time(benches: Any) -> None:
    def busy() -> None:
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass

    async def work() -> None:
        busy()

    bench = benches({"work": work})
    bench.take(*(bench.run(str(n)) for n in range(100)))
    turns = 0
    while len(bench.said.ends()) < 100:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10


async def test_each_failed_attempt_leaves_one_line_in_the_log(
    benches: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(secret: str) -> None:
        raise KeyError("price")

    async def broken_too(secret: str) -> None:
        raise KeyError("price")

    def again() -> None:
        raise Retry("busy")

    caplog.set_level(logging.DEBUG, "zkcoord.task")
    bench = benches({"broken": broken, "broken_too": broken_too, "again": again, "nap": sleeper})
    bench.take(bench.run("fine", "nap"), bench.run("thread", "broken", "s3cret"))
    bench.take(bench.run("loop", "broken_too", "s3cret"), bench.run("again", "again"))
    bench.take(bench.run("late", "nap", timeout=0.01), bench.run("nobody", "unheard-of"))
    for task_id in ("thread", "loop", "again", "late", "nobody"):
        await bench.end_of(task_id)
    bench.take(Cancel("fine", 1, "enough"))
    await bench.end_of("fine")
    said = {record.__dict__["task_id"]: record for record in caplog.records}
    assert len(caplog.records) == len(said) == 6
    for task_id, task, outcome in (
        ("thread", "broken", "error: KeyError: 'price' at test_agent_handling.py:"),
        ("loop", "broken_too", "error: KeyError: 'price' at test_agent_handling.py:"),
        ("again", "again", "retry: busy"),
        ("late", "nap", "timeout: over its time limit"),
        ("nobody", "unheard-of", "unknown_task: this agent has no handler"),
        ("fine", "nap", "cancelled: enough"),
    ):
        record = said[task_id]
        level = logging.INFO if task_id == "fine" else logging.WARNING
        assert (record.name, record.levelno) == ("zkcoord.task", level)
        words = f"task {task_id} ({task}) attempt 1: {outcome}"
        assert record.getMessage().startswith(words)
        assert bool(record.exc_info) is outcome.startswith("error")
        if record.exc_info:
            frames = traceback.extract_tb(record.exc_info[2])
            assert [frame.name for frame in frames] == [task]
            assert "s3cret" not in logging.Formatter().format(record)


async def test_a_traceback_in_the_log_is_bounded(
    benches: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def down(depth: int) -> None:
        if depth == 0:
            raise ValueError
        up(depth - 1)

    def up(depth: int) -> None:
        down(depth)

    bench = benches({"work": down})
    bench.take(bench.run("deep", "work", 100))
    await bench.end_of("deep")
    exc_info = caplog.records[-1].exc_info
    assert exc_info is not None
    assert len(traceback.extract_tb(exc_info[2])) == LOGGED_FRAMES_MAX
