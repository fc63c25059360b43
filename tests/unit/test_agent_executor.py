"""The agent's slots without servers: the inbox is a list of records, the reporter a list."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from zkcoord.config import AgentConfig
from zkcoord.core.inbox import InboxRules
from zkcoord.core.records import (
    VERSION,
    Cancel,
    DidFail,
    DidHave,
    DidReceive,
    DidReturn,
    DidSucceed,
    Inbox,
    Report,
    Run,
)
from zkcoord.queue.attempt import Attempt
from zkcoord.queue.context import TaskContext
from zkcoord.queue.executor import Executor
from zkcoord.queue.handlers import handlers_from
from zkcoord.queue.tenure import Tenure

ENDS = (DidSucceed, DidFail, DidReturn)


class Said:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.notes: list[tuple[str, bool]] = []
        self.unacknowledged = 0
        self.term = -1

    def note(self, attempt: Attempt) -> None:
        self.notes.append((attempt.order.id, attempt.started > 0))

    def add(self, report: Report) -> None:
        self.reports.append(report)

    def heard(self, term: int) -> None:
        self.term = term

    def ends(self) -> dict[str, Report]:
        return {r.id: r for r in self.reports if isinstance(r, ENDS)}


class Bench:
    """An executor, its inbox and its reports."""

    def __init__(self, handlers: dict[str, Callable[..., Any]], **config: Any) -> None:
        self.said = Said()
        self.valid = True
        self.invalid: list[str] = []
        self.changes: list[int] = []
        self.numbers = itertools.count(1)
        self.seq = itertools.count()
        settings = AgentConfig(**{"slots": 4, "grace_s": 0.05, **config})
        self.executor = Executor(
            asyncio.get_running_loop(),
            handlers_from(handlers),
            settings,
            self.said,
            on_change=lambda: self.changes.append(self.executor.capacity),
            on_invalid=self.invalid.append,
        )
        self.begin(1)

    def begin(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.seq = itertools.count()
        rules = InboxRules("q", incarnation)
        self.executor.begin(Tenure(rules, valid=lambda: self.valid))

    def run(self, task_id: str, task: str = "work", *args: Any, **changes: Any) -> Run:
        value = msgspec.json.encode({"task": task, "args": args})
        order = Run(task_id, 1, next(self.numbers), task, 2, value, [], None, 30.0, None, None)
        return msgspec.structs.replace(order, **changes)

    def take(self, *orders: Run | Cancel) -> None:
        record = Inbox(VERSION, "q", 1, self.incarnation, next(self.seq), list(orders))
        self.executor.take([msgspec.msgpack.encode(record)])

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(10):
            while not holds():  # noqa: ASYNC110 - any condition
                await asyncio.sleep(0.001)

    async def end_of(self, task_id: str) -> Report:
        await self.until(lambda: task_id in self.said.ends())
        return self.said.ends()[task_id]


@pytest.fixture
async def benches() -> AsyncIterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(handlers: dict[str, Callable[..., Any]] | None = None, **config: Any) -> Bench:
        made.append(Bench(handlers or {"work": nothing}, **config))
        return made[-1]

    yield make
    for bench in made:
        assert await bench.executor.close(5.0)


async def nothing() -> None:
    return None


async def sleeper() -> None:
    await asyncio.sleep(60)


async def test_coroutines_that_do_not_suspend_share_one_task(benches: Any) -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    async def work() -> None:
        tasks.append(asyncio.current_task())

    bench = benches({"work": work})
    bench.take(*(bench.run(str(n)) for n in range(100)))
    await bench.until(lambda: len(bench.said.ends()) == 100)
    assert len(set(tasks)) == 1
    assert tasks[0] is not None


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
        "waits": DidReturn("waits", 1, "drained"),
        "comes": DidReturn("comes", 1, "drained"),
    }
    assert not await bench.executor.idle(0.01)
    bench.executor.give_back()
    assert await bench.executor.idle(5)
    assert bench.said.ends()["runs"] == DidReturn("runs", 1, "drained")


async def test_room_depends_on_what_waits_and_on_what_is_not_acknowledged(benches: Any) -> None:
    bench = benches({"work": sleeper}, slots=1)
    assert bench.executor.has_room
    bench.said.unacknowledged = 1_000_000
    assert not bench.executor.has_room
    bench.said.unacknowledged = 0
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
