"""A seeded world in which the shipped core leads a queue while everything goes wrong.

Only the parts that the core does not have are modelled: the topics (lists), the election (a
counter), membership (a list of events), and a shell that follows the protocol in the leader's
docstring. Schedulers are paused, resumed and killed; appends are lost, land late, or land and are
not acknowledged; so are outputs, which are then sent again with all that follow; agents die, or go
on after their session has ended.

:meth:`World.run` ends with a verdict: a list of violations, empty when all is well.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import verdicts
from parts import CONTROL, PARTITIONS, Parts
from sim_agent import SimAgent
from sim_scheduler import Scheduler

from zkcoord.core import attributes
from zkcoord.core.outputs import Output, Topic
from zkcoord.core.records import AgentInfo, Headers


class World:
    """Topics, election, membership, time, and the order in which things happen."""

    def __init__(self, seed: int, parts: Parts | None = None, *, tasks: int = 14) -> None:
        self.rng = Random(seed)
        self.parts = parts or Parts()
        self.now = 1000.0
        self.calm = False
        self.in_order = seed % 2 == 0  # a lost output may be overtaken by those behind it, or not
        self.log: list[bytes] = []
        self.topics: dict[int, list[tuple[bytes, Headers]]] = {k: [] for k in range(6)}
        self.inbox: dict[int, list[bytes]] = {p: [] for p in range(PARTITIONS)}
        self.sent: list[Output] = []
        self.entries: list[tuple[bytes, bytes | None]] = []
        self.fence = -1
        self.term = 0
        self.members: list[tuple[str, int, int, AgentInfo | None]] = []
        self.ledger: list[tuple[str, int, int, int]] = []
        self.late: list[tuple[str, int, int]] = []  # orders after the word that none follows
        self.dismissed = 0
        self.finished: set[tuple[str, int, int, int]] = set()
        self.pending: list[tuple[float, Callable[[], Any]]] = []
        self.incarnation = 100
        self.agents: list[SimAgent] = []
        self.schedulers = [Scheduler(self, f"s{i}") for i in range(self.rng.choice([2, 3]))]
        self.tasks_left = tasks
        self.leading: Scheduler | None = None
        self.cold_checks: list[str] = []

    # --- topics ---

    def later(self, act: Callable[[], Any]) -> None:
        self.pending.append((self.now + self.rng.random() * 4, act))

    def land(self, output: Output) -> None:
        if output.topic == Topic.INBOX:
            self.inbox[output.partition].append(output.value)
        elif output.topic == Topic.CHECKPOINT:
            self.entries.append((output.key, output.value))
        else:
            self.sent.append(output)

    def standing(self) -> dict[bytes, bytes]:
        """The checkpoint topic, compacted."""
        last: dict[bytes, bytes] = {}
        for key, value in self.entries:
            if value is None:
                last.pop(key, None)
            else:
                last[key] = value
        return last

    # --- what happens ---

    def elect(self) -> None:
        """The leader's session ended; somebody else, or the same one again, gets a new term."""
        self.term += 1
        able = [s for s in self.schedulers if not s.paused] or self.schedulers
        self.leading = self.rng.choice(able)
        self.leading.elected = self.term

    def submit(self) -> None:
        """A producer writes a record: mostly a task, sometimes with a deadline or a delay."""
        rng = self.rng
        self.tasks_left -= 1
        topic = self.topics[rng.randrange(4)]
        chance = rng.random()
        if chance < 0.06:
            topic.append((b"\xff not json", []))
            return
        name = "t.nobody" if chance < 0.1 else rng.choice(["t.work", "t.other"])
        headers: Headers = []
        if rng.random() < 0.5:
            headers.append(("ce_zkreplyto", b"0"))
        if rng.random() < 0.15:
            at = self.now + rng.random() * 6 - 0.5
            headers.append(("ce_expirytime", attributes.timestamp(at).encode()))
        if rng.random() < 0.1:
            at = self.now + rng.random() * 3
            headers.append(("ce_zknotbefore", attributes.timestamp(at).encode()))
        if rng.random() < 0.25:
            # An id that another record may have too, live or not.
            headers.append(("ce_id", b"same-%d" % rng.randrange(2)))
        topic.append((msgspec.json.encode({"task": name, "args": []}), headers))

    def control(self) -> None:
        rng = self.rng
        known = [
            id_ for s in self.schedulers for id_ in s.replica.state.tasks if rng.random() < 0.5
        ]
        id_ = rng.choice(known) if known else "nobody"
        action = rng.choice(["cancel", "cancel", "reprioritize", "pause", "resume", "nonsense"])
        order = {"action": action, "id": id_, "priority": rng.randrange(4)}
        self.topics[CONTROL].append((msgspec.json.encode(order), []))

    def join(self) -> None:
        taken = {a.partition for a in self.agents if not a.stopping}
        free = [p for p in range(PARTITIONS) if p not in taken]
        if free:
            self.incarnation += 1
            agent = SimAgent(self, self.rng.choice(free), self.incarnation)
            self.agents.append(agent)
            self.members.append(("join", agent.partition, agent.incarnation, agent.info))

    def lose_agent(self) -> None:
        live = [a for a in self.agents if not a.stopping]
        if live:
            agent = self.rng.choice(live)
            self.members.append(("left", agent.partition, agent.incarnation, None))
            agent.paused = False
            agent.stopping = self.rng.choice([1, 1, 5, 20])

    def drain_agent(self) -> None:
        """An agent says that it is about to leave; it goes once it heard that no order follows."""
        staying = [a for a in self.agents if not a.stopping and not a.draining]
        if staying:
            agent = self.rng.choice(staying)
            agent.draining = True
            agent.info = msgspec.structs.replace(agent.info, draining=True)
            self.members.append(("drain", agent.partition, agent.incarnation, agent.info))

    def leave(self, agent: SimAgent) -> None:
        """A drained agent's claim is gone; it still reads its inbox for a while."""
        if not agent.stopping:
            self.dismissed += 1
            self.members.append(("left", agent.partition, agent.incarnation, None))
            agent.stopping = 20

    def disturb(self) -> None:
        rng = self.rng
        chance = rng.random()
        if chance < 0.012:
            self.elect()
        elif chance < 0.03:
            rng.choice(self.schedulers).paused = True
        elif chance < 0.05:
            rng.choice(self.schedulers).paused = False
        elif chance < 0.056:
            rng.choice(self.schedulers).crash()
        elif chance < 0.066:
            self.lose_agent()
        elif chance < 0.1:
            self.join()
        elif chance < 0.12 and self.agents:
            rng.choice(self.agents).paused ^= True
        elif chance < 0.14:
            self.control()
        elif chance < 0.155:
            self.drain_agent()
        leading = self.leading
        absent = (
            leading is None or leading.paused or (leading.leader is None and not leading.elected)
        )
        if absent and rng.random() < 0.1:
            self.elect()

    def step(self) -> None:
        rng = self.rng
        self.now += rng.random() * 0.2
        if not self.calm:
            self.disturb()
            if self.tasks_left and rng.random() < 0.15:
                self.submit()
        elif not any(not agent.stopping and not agent.draining for agent in self.agents):
            self.join()
        due = [p for p in self.pending if p[0] <= self.now]
        if due:
            self.pending = [p for p in self.pending if p[0] > self.now]
            for _, act in due:
                act()
        for scheduler in self.schedulers:
            if not scheduler.paused and rng.random() < 0.8:
                scheduler.step()
        for agent in list(self.agents):
            if agent.stopping:
                agent.stopping -= 1
                if not agent.stopping:
                    self.agents.remove(agent)
                    continue
            if not agent.paused:
                agent.step()

    # --- the verdict ---

    def run(self, steps: int = 160) -> list[str]:
        """Run, heal, come to rest; what was violated."""
        for _ in range(steps):
            self.step()
            if self.rng.random() < 0.02:
                self.cold_checks += verdicts.cold_start(self)
        self.heal()
        for _ in range(1500):
            self.step()
            if self.is_at_rest():
                break
        else:
            return [f"it does not come to rest: {self.restless()}", *verdicts.all_of(self)]
        for _ in range(60):
            self.step()
        return verdicts.all_of(self)

    def heal(self) -> None:
        self.calm = True
        while self.tasks_left:
            self.submit()
        self.topics[CONTROL].append((msgspec.json.encode({"action": "resume"}), []))
        for scheduler in self.schedulers:
            scheduler.paused = False
        for agent in self.agents:
            agent.paused = False
        self.join()
        leading = self.leading
        if leading is None or (leading.leader is None and leading.elected is None):
            self.elect()

    def is_at_rest(self) -> bool:
        leading = self.leading
        leader = leading.leader if leading is not None else None
        if leader is None:
            if leading is None or leading.elected is None:
                self.elect()
            return False
        return bool(
            leader.is_open
            and leader.in_flight is None
            and not leader.replica.state.tasks
            and not self.pending
            and not any(leading.lanes.values())
            and all(leader.consumed.get((s, 0), 0) == len(t) for s, t in self.topics.items())
        )

    def restless(self) -> str:
        leader = self.leading.leader if self.leading else None
        if leader is None:
            return "no leader"
        live = {
            t.id: (t.status(self.now), t.attempt, t.partition, t.incarnation)
            for t in leader.replica.state.tasks.values()
        }
        return f"live {live}, open {leader.is_open}, consumed {leader.consumed}"
