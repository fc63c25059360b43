"""Which task goes next: against a reference that looks at everything, and the promised bounds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkcoord.config import ClassConfig
from zkcoord.core.dispatch import Dispatch, order_of
from zkcoord.core.fleet import Agent, Fleet, block
from zkcoord.core.records import AgentInfo, Origin, Submission
from zkcoord.core.tasks import READY, RUNNING, Task

NAMES = ("t.a", "t.b", "t.c")
CAPABILITIES = ("gpu", "big")


def classes(
    floors: tuple[float, ...] = (0.0,) * 4, reserved: tuple[int, ...] = (0,) * 4
) -> tuple[ClassConfig, ...]:
    return tuple(
        ClassConfig(budget_s=10.0, floor=f, reserved_slots=r)
        for f, r in zip(floors, reserved, strict=True)
    )


class Bench:
    """A dispatch queue with its fleet, and the same by brute force."""

    def __init__(self, promises: tuple[ClassConfig, ...] = classes()) -> None:
        self.fleet = Fleet()
        self.queues = Dispatch(promises, self.fleet)
        self.tasks: dict[str, Task] = {}
        self.running_of = [0, 0, 0, 0]
        self.count = 0

    def agent(
        self,
        incarnation: int,
        slots: int,
        tasks: tuple[str, ...] = NAMES,
        can: tuple[str, ...] = (),
    ) -> None:
        info = AgentInfo("a", "h", 1, slots, tasks, capabilities=can)
        self.fleet.join(incarnation, incarnation, info)

    def push(
        self, priority: int, order: float, name: str = "t.a", requires: tuple[str, ...] = ()
    ) -> Task:
        self.count += 1
        id_ = f"i{self.count}"
        sub = Submission(id_, name, priority, Origin(priority, 0, 0, 0.0), b"", requires=requires)
        task = Task(sub, order, priority, 0, 0.0)
        self.tasks[id_] = task
        self.queues.push(task)
        return task

    def take(self) -> tuple[Task, Agent] | None:
        self.queues.refresh(0.0)
        found = self.queues.take(self.running_of)
        if found is not None:
            task, agent = found
            task.phase = RUNNING
            agent.running[task.id] = task
            self.running_of[task.priority] += 1
            self.queues.assigned(agent)
            task.incarnation = agent.incarnation
        return found

    def finish(self, task: Task) -> None:
        agent = self.fleet.agents[task.incarnation]
        del agent.running[task.id]
        self.running_of[task.priority] -= 1
        del self.tasks[task.id]
        self.fleet.touch(agent)

    def discard(self, task: Task) -> None:
        self.queues.discard(task)
        del self.tasks[task.id]

    def able(self, task: Task) -> list[Agent]:
        return [
            agent
            for agent in self.fleet.agents.values()
            if agent.info is not None
            and task.sub.task in agent.info.tasks
            and set(task.sub.requires) <= set(agent.info.capabilities)
            and agent.busy < agent.slots
        ]

    def expected(self) -> Task | None:
        waiting = [t for t in self.tasks.values() if t.phase == READY and self.able(t)]
        return min(waiting, key=lambda t: (t.priority, t.order, t.ticket), default=None)

    def check_sizes(self) -> None:
        for queue in self.queues.classes:
            assert len(queue.heads) <= 4 * max(len(queue.shapes), 1) + 65
            for shape in queue.shapes.values():
                assert len(shape.heap) <= 2 * shape.live + 17
                assert shape.live == sum(e[2].ticket == e[1] for e in shape.heap)
            assert queue.count == sum(s.live for s in queue.shapes.values())
        for profile in self.fleet.profiles.values():
            assert len(profile.heap) <= 4 * len(profile.agents) + 17


STEP = st.tuples(
    st.sampled_from(["push", "push", "take", "take", "finish", "discard", "join", "leave", "move"]),
    st.integers(0, 3),
    st.integers(0, 20),
    st.sampled_from(NAMES),
    st.sets(st.sampled_from(CAPABILITIES)).map(lambda s: tuple(sorted(s))),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=120), st.integers(0, 1000))
def test_the_first_that_anybody_can_run_goes_to_the_least_loaded(
    steps: list[tuple[str, int, int, str, tuple[str, ...]]], seed: int
) -> None:
    rng = Random(seed)
    bench = Bench()
    bench.agent(1, 2)
    incarnation = 1
    for kind, priority, order, name, extra in steps:
        waiting = [t for t in bench.tasks.values() if t.phase == READY]
        busy = [t for t in bench.tasks.values() if t.phase == RUNNING]
        if kind == "push":
            bench.push(priority, float(order), name, extra)
        elif kind == "finish" and busy:
            bench.finish(rng.choice(busy))
        elif kind == "discard" and waiting:
            bench.discard(rng.choice(waiting))
        elif kind == "join":
            incarnation += 1
            bench.agent(incarnation, 1 + order % 3, NAMES[: 1 + order % 3], extra)
        elif kind == "leave" and len(bench.fleet.agents) > 1:
            agent = rng.choice(list(bench.fleet.agents.values()))
            bench.fleet.leave(agent.incarnation)
            for task in list(agent.running.values()):
                bench.running_of[task.priority] -= 1
                del bench.tasks[task.id]
            bench.fleet.forget(agent)
        elif kind == "move" and waiting:
            task = rng.choice(waiting)
            bench.queues.discard(task)
            task.priority = priority
            bench.queues.push(task)
        else:
            expected = bench.expected()
            able = bench.able(expected) if expected else []
            least = min((a.busy / a.slots for a in able), default=None)
            found = bench.take()
            assert (found[0] if found else None) is expected
            if found:
                agent = found[1]
                assert agent in able
                assert (agent.busy - 1) / agent.slots == least
        bench.check_sizes()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 90), min_size=4, max_size=4).map(
        lambda f: [p * 90 // max(sum(f), 90) for p in f]
    ),
    st.integers(50, 400),
)
def test_every_waiting_class_gets_its_floor_and_the_highest_the_rest(
    percents: list[int], count: int
) -> None:
    floors = tuple(p / 100 for p in percents)
    bench = Bench(classes(floors))
    bench.agent(1, 10_000)
    for priority in range(4):
        for i in range(count):
            bench.push(priority, float(i))
    went = [0, 0, 0, 0]
    for n in range(1, count + 1):
        found = bench.take()
        assert found is not None
        went[found[0].priority] += 1
        for priority in range(4):
            # A class waits for a whole credit, and for the higher ones that have one too.
            assert went[priority] >= floors[priority] * n - 4
    assert went[0] >= count * (1 - sum(floors[1:])) - 4


def test_without_contest_nobody_pays() -> None:
    bench = Bench(classes((0.4, 0.3, 0.1, 0.05)))
    bench.agent(1, 1000)
    for i in range(100):
        bench.push(3, float(i))
    for _ in range(100):
        bench.take()
    assert bench.queues.credit == [0.0] * 4


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.integers(1, 12),
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.integers(0, 99),
)
def test_reserved_slots_stay_free_for_their_class(
    reserved: list[int], slots: int, arrivals: list[int], seed: int
) -> None:
    rng = Random(seed)
    bench = Bench(classes(reserved=tuple(reserved)))
    bench.agent(1, slots)
    for priority in arrivals:
        bench.push(priority, 0.0)
        while bench.take():
            pass
        for above in range(3):
            lower = sum(bench.running_of[above + 1 :])
            assert lower <= max(slots - sum(reserved[: above + 1]), 1)
        running = [t for t in bench.tasks.values() if t.phase == RUNNING]
        if running and rng.random() < 0.3:
            bench.finish(rng.choice(running))
    while bench.take():
        pass
    # Nothing above is kept from free slots by what is reserved for it.
    highest = [t for t in bench.tasks.values() if t.phase == READY and t.priority == 0]
    assert not highest or sum(bench.running_of) == slots


def test_a_reserve_as_large_as_the_fleet_does_not_starve_the_rest() -> None:
    bench = Bench(classes(reserved=(2, 0, 0, 0)))
    bench.agent(1, 1)
    bench.push(3, 0.0)
    assert bench.take() is not None


@pytest.mark.parametrize("busy_one", [1, 2])
def test_agents_of_different_kinds_share_the_load(busy_one: int) -> None:
    bench = Bench()
    bench.agent(1, 4, ("t.a",))
    bench.agent(2, 4, ("t.a", "t.b"), ("gpu",))
    bench.fleet.agents[busy_one].lingering.add(("other", 1))
    bench.push(0, 0.0)
    found = bench.take()
    assert found is not None
    assert found[1].incarnation == 3 - busy_one


def test_an_agent_that_is_left_alone_comes_back() -> None:
    bench = Bench()
    bench.agent(1, 1)
    agent = bench.fleet.agents[1]
    bench.push(0, 0.0)
    block(agent, 100.0)
    bench.queues.refresh(100.1)
    assert bench.queues.take(bench.running_of) is None
    bench.queues.refresh(100.3)
    assert bench.queues.take(bench.running_of) is not None


def test_blocking_grows_and_is_bounded() -> None:
    agent = Agent(0, 1, 1)
    waits = []
    for _ in range(8):
        block(agent, 0.0)
        waits.append(agent.blocked_until)
    assert waits[:3] == [0.2, 0.4, 0.8]
    assert waits[-1] == 5.0


def test_many_shapes_are_forgotten_when_empty() -> None:
    bench = Bench()
    bench.agent(1, 1)
    for i in range(2000):
        bench.discard(bench.push(1, 0.0, f"t.{i}"))
    assert len(bench.queues.classes[1].shapes) <= 257


@given(
    st.floats(0, 1e9),
    st.floats(0.001, 1e5),
    st.none() | st.floats(0, 2e9),
    st.floats(0, 1e4),
)
def test_an_order_stays_within_half_a_budget_of_the_arrival(
    arrival: float, budget: float, deadline: float | None, estimate: float
) -> None:
    order = order_of(arrival, budget, deadline=deadline, estimate=estimate)
    assert arrival - budget / 2 <= order <= arrival
    if deadline is None or deadline - 1.5 * estimate >= arrival:
        assert order == arrival


@pytest.mark.parametrize("count", [10, 5000])
def test_filling_at_once_gives_the_same_order(count: int) -> None:
    rng = Random(count)
    one, other = Bench(), Bench()
    for bench in (one, other):
        bench.agent(1, count)
    keys = [(rng.randrange(4), rng.random(), rng.choice(NAMES)) for _ in range(count)]
    for key in keys:
        one.push(*key)
    tasks = []
    for priority, order, name in keys:
        sub = Submission("x", name, priority, Origin(0, 0, 0, 0.0), b"")
        tasks.append(Task(sub, order, priority, 0, 0.0))
    other.queues.fill(tasks)
    took = [[], []]
    for bench, out in zip((one, other), took, strict=True):
        for i in range(count):
            bench.queues.refresh(0.0)
            found = bench.queues.take(bench.running_of)
            assert found is not None
            found[1].running[str(i)] = found[0]
            bench.queues.assigned(found[1])
            out.append((found[0].priority, found[0].order, found[0].sub.task))
    assert took[0] == took[1]
    assert [key[:2] for key in took[0]] == sorted(key[:2] for key in took[0])
