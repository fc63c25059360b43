"""Which task goes next, and to whom.

Between classes: floors, then strict priority. While several classes could go, each of them earns
its floor as credit with every dispatch; the highest class with a whole credit goes and pays for it;
when nobody has one, the highest class goes for free. So every class that waits gets at least its
floor of the contested dispatches, and the highest gets all the rest. (Credits: the guaranteed part
of latency-rate scheduling, after Stiliadis and Varma, "Latency-rate servers", 1998.)

Inside a class: by `order`, which was fixed when the task was accepted, then by sequence. Tasks of
one class that the same agents can run form a *shape*, with a heap of its own: a task that nobody
can run just now never stands in the way of one that somebody can.

Taking one costs O(classes + profiles + log n). Entries of tasks that left the queue are dropped
when they come up, and swept when they outnumber the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from zkcoord.config import ClassConfig
from zkcoord.core.fleet import Agent, Fleet, Profile
from zkcoord.core.tasks import READY, Task

Entry: TypeAlias = tuple[float, int, Task]
Head: TypeAlias = "tuple[float, int, Shape]"

CREDIT_MAX = 4.0
"""Enough that a class loses no credit while each of the higher ones spends theirs first."""
SHAPES_MAX = 256
"""Empty shapes beyond this are forgotten."""


def order_of(
    arrival: float, budget_s: float, *, deadline: float | None = None, estimate: float = 0.0
) -> float:
    """A task's key within its class: its arrival, or its latest start if that is earlier.

    Clamped to half the delay budget around the arrival, so that declaring a tight deadline gains at
    most that much, and nobody waits behind later arrivals for longer.
    """
    if deadline is None:
        return arrival
    latest_start = deadline - 1.5 * estimate
    half = budget_s / 2
    return min(max(min(arrival, latest_start), arrival - half), arrival + half)


class Shape:
    """Waiting tasks of one class that the same agents can run.

    Attributes:
        heap: (order, ticket, task), with entries that went stale.
        live: how many entries did not.
        profiles: who can run them, as of fleet version `version`.
        parked: nobody who can run them had a free slot when last looked at.
        unknown_since: since when no live agent knows the task, None when one does.
    """

    __slots__ = (
        "heap",
        "live",
        "parked",
        "priority",
        "profiles",
        "requires",
        "task",
        "unknown_since",
        "version",
    )

    def __init__(self, priority: int, task: str, requires: tuple[str, ...]) -> None:
        self.priority = priority
        self.task = task
        self.requires = requires
        self.heap: list[Entry] = []
        self.live = 0
        self.profiles: list[Profile] = []
        self.version = -1
        self.parked = False
        self.unknown_since: float | None = None

    def __lt__(self, other: Shape) -> bool:
        return False  # among heads, two entries that are equal up to here speak of one shape

    def head(self) -> Entry | None:
        """The first entry, after dropping stale ones."""
        heap = self.heap
        while heap:
            entry = heap[0]
            if entry[2].ticket == entry[1]:
                return entry
            heapq.heappop(heap)
        return None


class ClassQueue:
    """The waiting tasks of one class.

    Attributes:
        work: expected duration of all of them together, seconds.
        count: how many.
    """

    __slots__ = ("count", "heads", "shapes", "work")

    def __init__(self) -> None:
        self.shapes: dict[tuple[str, tuple[str, ...]], Shape] = {}
        self.heads: list[Head] = []
        self.count = 0
        self.work = 0.0


class Dispatch:
    """All waiting tasks that may go now, and the choice of the next.

    Args:
        classes: what each class is promised.
        fleet: the agents.
    """

    def __init__(self, classes: Sequence[ClassConfig], fleet: Fleet) -> None:
        self.classes = tuple(ClassQueue() for _ in classes)
        self.credit = [0.0] * len(classes)
        self._floors = tuple(c.floor for c in classes)
        self._reserved = tuple(c.reserved_slots for c in classes)
        self._has_reserve = any(self._reserved)
        self._fleet = fleet
        self._ticket = 0
        self._version = -1

    @property
    def waiting(self) -> int:
        """How many tasks wait for a slot."""
        return sum(c.count for c in self.classes)

    def push(self, task: Task) -> None:
        """A task may go from now on."""
        self._ticket += 1
        task.ticket = ticket = self._ticket
        queue = self.classes[task.priority]
        sub = task.sub
        shape = queue.shapes.get((sub.task, sub.requires))
        if shape is None:
            shape = self._shape(queue, task)
        entry = (task.order, ticket, task)
        heapq.heappush(shape.heap, entry)
        shape.live += 1
        queue.count += 1
        queue.work += task.estimate
        if shape.heap[0] is entry and not shape.parked:
            heapq.heappush(queue.heads, (task.order, ticket, shape))

    def fill(self, tasks: Iterable[Task]) -> None:
        """Push many at once into empty queues: O(n)."""
        for task in tasks:
            self._ticket += 1
            task.ticket = self._ticket
            queue = self.classes[task.priority]
            shape = queue.shapes.get((task.sub.task, task.sub.requires))
            if shape is None:
                shape = self._shape(queue, task)
            shape.heap.append((task.order, self._ticket, task))
            shape.live += 1
            queue.count += 1
            queue.work += task.estimate
        for queue in self.classes:
            for shape in queue.shapes.values():
                heapq.heapify(shape.heap)
                self._show(queue, shape)

    def discard(self, task: Task) -> None:
        """A task that was pushed may no longer go."""
        if not task.ticket:
            return
        task.ticket = 0
        queue = self.classes[task.priority]
        shape = queue.shapes[task.sub.task, task.sub.requires]
        self._left(queue, shape, task)
        if len(shape.heap) > 2 * shape.live + 16:
            shape.heap = [entry for entry in shape.heap if entry[2].ticket == entry[1]]
            heapq.heapify(shape.heap)
        if not shape.parked:
            self._show(queue, shape)

    def refresh(self, now: float) -> None:
        """Look at the agents again. Call before a series of :meth:`take`."""
        woken = self._fleet.refresh(now)
        if self._version != self._fleet.version:
            self._version = self._fleet.version
            woken = [s for q in self.classes for s in q.shapes.values()]
        for shape in woken:
            if shape.parked:
                shape.parked = False
                self._show(self.classes[shape.priority], shape)

    def take(self, running_of: Sequence[int]) -> tuple[Task, Agent] | None:
        """The next task and the agent that is to run it, or None when nothing can go.

        `running_of` is how many attempts of each class are running.
        """
        open_: list[tuple[int, Shape, Agent]] = []
        for priority, queue in enumerate(self.classes):
            if queue.heads and not (self._has_reserve and self._is_capped(priority, running_of)):
                found = self._open_head(queue)
                if found is not None:
                    open_.append((priority, *found))
        if not open_:
            return None
        priority, shape, agent = open_[0] if len(open_) == 1 else self._contest(open_)
        return self._pop(self.classes[priority], shape), agent

    def assigned(self, agent: Agent) -> None:
        """The agent took one more attempt: order it by its new load."""
        profile = agent.profile
        if profile is None:
            return
        slots, busy = agent.slots, agent.busy
        agent.stamp += 1
        if busy < slots:
            entry = (busy / slots, agent.number, agent.stamp, agent)
            if profile.heap and profile.heap[0][3] is agent:
                heapq.heapreplace(profile.heap, entry)
            else:
                heapq.heappush(profile.heap, entry)

    def oldest(self, priority: int) -> float | None:
        """About when the longest waiting task of a class was accepted."""
        heads = [
            head[2].accepted
            for shape in self.classes[priority].shapes.values()
            if (head := shape.head()) is not None
        ]
        return min(heads, default=None)

    def unknown(self, now: float, wait_s: float) -> list[Task]:
        """Tasks that no live agent has known for `wait_s`, at most 1000. Call once in a while."""
        found: list[Task] = []
        someone = self._fleet.live > 0
        for queue in self.classes:
            for shape in queue.shapes.values():
                if not shape.live or not someone or self._fleet.known(shape.task):
                    shape.unknown_since = None
                    continue
                if shape.unknown_since is None:
                    shape.unknown_since = now
                if now - shape.unknown_since >= wait_s:
                    # Orders are near arrivals, so the longest waiting stand at the front.
                    front = heapq.nsmallest(1000 - len(found), shape.heap)
                    found += [
                        task
                        for _, ticket, task in front
                        if task.ticket == ticket and now - task.accepted >= wait_s
                    ]
        return found

    # --- inside ---------------------------------------------------------------------------------

    def _shape(self, queue: ClassQueue, task: Task) -> Shape:
        if len(queue.shapes) >= SHAPES_MAX:
            # A shape that is parked is known to a profile by reference; it may go all the same.
            queue.shapes = {key: shape for key, shape in queue.shapes.items() if shape.live}
        key = (task.sub.task, task.sub.requires)
        shape = queue.shapes[key] = Shape(task.priority, *key)
        return shape

    def _show(self, queue: ClassQueue, shape: Shape) -> None:
        """Enter the shape's head among the heads of its class."""
        head = shape.head()
        if head is not None:
            heapq.heappush(queue.heads, (head[0], head[1], shape))
            if len(queue.heads) > 4 * len(queue.shapes) + 64:
                heads = {id(s): s for _, _, s in queue.heads if not s.parked}
                queue.heads = [
                    (top[0], top[1], s) for s in heads.values() if (top := s.head()) is not None
                ]
                heapq.heapify(queue.heads)

    def _left(self, queue: ClassQueue, shape: Shape, task: Task) -> None:
        shape.live -= 1
        queue.count -= 1
        queue.work = queue.work - task.estimate if queue.count else 0.0

    def _pop(self, queue: ClassQueue, shape: Shape) -> Task:
        task = heapq.heappop(shape.heap)[2]
        task.ticket = 0
        self._left(queue, shape, task)
        heapq.heappop(queue.heads)
        self._show(queue, shape)
        return task

    def _open_head(self, queue: ClassQueue) -> tuple[Shape, Agent] | None:
        """The first shape of the class that somebody can run now, on top of its heads."""
        heads = queue.heads
        while heads:
            _, ticket, shape = heads[0]
            head = None if shape.parked else shape.head()
            if head is None or head[1] != ticket:
                heapq.heappop(heads)
                continue
            agent = self._agent_for(shape)
            if agent is not None:
                return shape, agent
            heapq.heappop(heads)
            shape.parked = True
            for profile in shape.profiles:
                profile.parked.append(shape)
        return None

    def _agent_for(self, shape: Shape) -> Agent | None:
        if shape.version != self._fleet.version:
            shape.version = self._fleet.version
            shape.profiles = [
                p for p in self._fleet.profiles.values() if p.can_run(shape.task, shape.requires)
            ]
        best = None
        for profile in shape.profiles:
            entry = profile.first()
            if entry is not None and (best is None or entry < best):
                best = entry
        return None if best is None else best[3]

    def _is_capped(self, priority: int, running_of: Sequence[int]) -> bool:
        """Whether the class would take a slot that is reserved for a higher one.

        Classes below i may fill all slots but those reserved for classes up to i, and one in any
        case, so that a reserve as large as the fleet does not stop them for good.
        """
        lower = sum(running_of)
        free = self._fleet.slots
        for i in range(priority):
            lower -= running_of[i]
            free -= self._reserved[i]
            if lower >= max(free, 1):
                return True
        return False

    def _contest(self, open_: list[tuple[int, Shape, Agent]]) -> tuple[int, Shape, Agent]:
        credit, floors = self.credit, self._floors
        for priority, _, _ in open_:
            credit[priority] = min(credit[priority] + floors[priority], CREDIT_MAX)
        for choice in open_:
            if credit[choice[0]] >= 1.0:
                credit[choice[0]] -= 1.0
                return choice
        return open_[0]


def is_waiting(task: Task) -> bool:
    """Whether the task stands in the dispatch queue."""
    return task.phase == READY and task.ticket != 0
