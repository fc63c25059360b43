"""The agents of a queue as their leader sees them: soft state, never in the log.

Agents that know the same tasks and offer the same capabilities form one *profile*, so that finding
out who may run a task costs O(profiles), not O(agents).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeAlias

from zkcoord.core.records import AgentInfo
from zkcoord.core.tasks import Task

if TYPE_CHECKING:
    from zkcoord.core.dispatch import Shape

Entry: TypeAlias = "tuple[float, int, int, Agent]"

BLOCK_S = 0.2
"""How long an agent gets nothing after it gave an attempt back; doubles while it goes on."""
BLOCK_S_MAX = 5.0
UNSENT = -1.0
"""Stands for the time at which an earlier leader sent an order."""


class Agent:
    """One incarnation of an agent.

    Attributes:
        partition: of the inbox topic; `incarnation` is the token of its claim.
        live: membership knows it. An attempt may be with an incarnation that is gone.
        running: its current attempts by task id.
        unconfirmed: those not reported received, with the time they were last sent, in that order.
        lingering: (id, attempt) that ended for the queue while the agent may still run them; they
            take a slot until the agent answers for them.
        blocked_until: it gave work back and gets none until then.
    """

    __slots__ = (
        "block",
        "blocked_until",
        "incarnation",
        "info",
        "lingering",
        "live",
        "number",
        "partition",
        "profile",
        "running",
        "stamp",
        "unconfirmed",
    )

    def __init__(self, partition: int, incarnation: int, number: int) -> None:
        self.partition = partition
        self.incarnation = incarnation
        self.number = number
        self.live = False
        self.info: AgentInfo | None = None
        self.profile: Profile | None = None
        self.running: dict[str, Task] = {}
        self.unconfirmed: dict[str, float] = {}
        self.lingering: set[tuple[str, int]] = set()
        self.blocked_until = 0.0
        self.block = 0.0
        self.stamp = 0

    @property
    def slots(self) -> int:
        """How many tasks it runs at a time; 0 while it drains or is not live."""
        info = self.info
        return 0 if info is None or self.drains or not self.live else info.slots

    @property
    def drains(self) -> bool:
        """Whether it said that it is about to leave: what is lost with it is no task's fault."""
        return self.info is not None and self.info.draining

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return len(self.running) + len(self.lingering)


class Profile:
    """Agents that may run the same tasks.

    Attributes:
        heap: agents with a free slot, least loaded first, with entries that went stale.
        parked: shapes that wait for a free slot here.
    """

    __slots__ = ("agents", "capabilities", "heap", "parked", "tasks")

    def __init__(self, tasks: frozenset[str], capabilities: frozenset[str]) -> None:
        self.tasks = tasks
        self.capabilities = capabilities
        self.agents: set[Agent] = set()
        self.heap: list[Entry] = []
        self.parked: list[Shape] = []

    def can_run(self, task: str, requires: tuple[str, ...]) -> bool:
        """Whether its agents know the task and offer what it requires."""
        return task in self.tasks and self.capabilities.issuperset(requires)

    def first(self) -> Entry | None:
        """The least loaded agent with a free slot."""
        heap = self.heap
        while heap:
            entry = heap[0]
            if entry[2] == entry[3].stamp:
                return entry
            heapq.heappop(heap)
        return None


class Fleet:
    """All agents.

    Attributes:
        agents: by incarnation.
        version: rises when it may have changed who can run what.
        slots: of all agents that take work.
        lost: agents that are gone while attempts were with them.
        complete: all live agents have been told.
        fresh: agents that have not been greeted in this term, or not since they drain.
    """

    def __init__(self) -> None:
        self.agents: dict[int, Agent] = {}
        self.profiles: dict[tuple[frozenset[str], frozenset[str]], Profile] = {}
        self.version = 0
        self.slots = 0
        self.lost: list[Agent] = []
        self.fresh: list[Agent] = []
        self.complete = False
        self._dirty: set[Agent] = set()
        self._number = 0

    @property
    def live(self) -> int:
        """How many agents live."""
        return sum(agent.live for agent in self.agents.values())

    @property
    def has_blocked(self) -> bool:
        """Whether an agent is left alone for a while, or has not been looked at again yet."""
        return bool(self._dirty)

    def known(self, task: str) -> bool:
        """Whether any live agent knows the task."""
        return any(task in profile.tasks for profile in self.profiles.values())

    def holder(self, partition: int, incarnation: int) -> Agent:
        """The agent with an attempt, which membership may not know."""
        agent = self.agents.get(incarnation)
        if agent is None:
            self._number += 1
            agent = self.agents[incarnation] = Agent(partition, incarnation, self._number)
            if self.complete:
                self.lost.append(agent)
        return agent

    def join(self, partition: int, incarnation: int, info: AgentInfo) -> None:
        """An agent claimed a partition, or changed what it says of itself."""
        agent = self.agents.get(incarnation)
        if agent is None:
            self._number += 1
            agent = self.agents[incarnation] = Agent(partition, incarnation, self._number)
        if not agent.live or (info.draining and not agent.drains):
            self.fresh.append(agent)
        self._leave_profile(agent)
        agent.live = True
        agent.info = info
        key = (frozenset(info.tasks), frozenset(info.capabilities))
        profile = self.profiles.get(key)
        if profile is None:
            profile = self.profiles[key] = Profile(*key)
        profile.agents.add(agent)
        agent.profile = profile
        self.slots += agent.slots
        self._dirty.add(agent)
        self.version += 1

    def leave(self, incarnation: int) -> None:
        """An agent's claim is gone."""
        agent = self.agents.get(incarnation)
        if agent is None or not agent.live:
            return
        self._leave_profile(agent)
        agent.live = False
        agent.stamp += 1
        agent.lingering.clear()
        self.lost.append(agent)
        self.version += 1

    def close_ranks(self) -> None:
        """All live agents have been told: the others are gone."""
        self.complete = True
        self.lost += [a for a in self.agents.values() if not a.live and a not in self.lost]

    def forget(self, agent: Agent) -> None:
        """An agent that is gone has no attempts left."""
        if self.agents.get(agent.incarnation) is agent:
            del self.agents[agent.incarnation]

    def touch(self, agent: Agent) -> None:
        """The agent's load fell, or it may take work again."""
        self._dirty.add(agent)

    def refresh(self, now: float) -> list[Shape]:
        """Order by load again where it changed; the shapes that may have a free slot now."""
        woken: list[Shape] = []
        later = []
        for agent in self._dirty:
            agent.stamp += 1
            profile = agent.profile
            if profile is None or not agent.live:
                continue
            if agent.blocked_until > now:
                later.append(agent)
                continue
            slots, busy = agent.slots, agent.busy
            if busy < slots:
                entry = (busy / slots, agent.number, agent.stamp, agent)
                heapq.heappush(profile.heap, entry)
                if len(profile.heap) > 4 * len(profile.agents) + 16:
                    profile.heap = [e for e in profile.heap if e[2] == e[3].stamp]
                    heapq.heapify(profile.heap)
                if profile.parked:
                    woken += profile.parked
                    profile.parked = []
        self._dirty = set(later)
        return woken

    def _leave_profile(self, agent: Agent) -> None:
        profile = agent.profile
        if profile is None:
            return
        self.slots -= agent.slots
        profile.agents.discard(agent)
        agent.profile = None
        if not profile.agents:
            del self.profiles[profile.tasks, profile.capabilities]


def block(agent: Agent, now: float) -> None:
    """The agent gave work back: leave it alone for a while, longer if it did so just before."""
    is_again = now - agent.blocked_until <= 2 * agent.block
    agent.block = min(BLOCK_S_MAX, 2 * agent.block) if agent.block and is_again else BLOCK_S
    agent.blocked_until = now + agent.block
