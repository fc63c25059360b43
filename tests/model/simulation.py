"""A seeded world in which the shipped core leads a queue while everything goes wrong.

Only the parts that the core does not have are modelled: the topics (lists), the election (a
counter), membership (a list of events), and a shell that follows the protocol in the leader's
docstring. Schedulers are paused, resumed and killed; appends are lost, land late, or land and are
not acknowledged; so are outputs, which are then sent again with all that follow; agents die, or go
on after their session has ended.

:meth:`World.run` ends with a verdict: a list of violations, empty when all is well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
from logreader import check_log

from zkcoord.config import QueueConfig, RetryPolicy, SchedulerConfig
from zkcoord.core.inbox import InboxRules
from zkcoord.core.inputs import Inputs
from zkcoord.core.leader import Leader
from zkcoord.core.outputs import POSITION_KEY, Output, Topic
from zkcoord.core.records import (
    AgentInfo,
    Cancel,
    DidFail,
    DidHave,
    DidReceive,
    DidReturn,
    DidStart,
    DidSucceed,
    Inbox,
    KeptTask,
    Origin,
    Position,
    Report,
    Reports,
    Run,
)
from zkcoord.core.replica import Replica
from zkcoord.errors import Deposed, StaleTerm

PARTITIONS = 3
REPORTS, CONTROL = 5, 4
CONFIG = QueueConfig(
    retry=RetryPolicy(attempts=4, delay_s=0.2, delay_s_max=1.0),
    crashes_max=4,
    unknown_task_s=5.0,
)
OWN = SchedulerConfig(
    received_s=1.0, checkpoint_after_s=1.0, checkpoint_every_s=1.0, cancel_s=2.0,
    batch_facts_max=12,
)  # fmt: skip
encode = msgspec.msgpack.encode
decode_inbox = msgspec.msgpack.Decoder(Inbox).decode
decode_kept = msgspec.msgpack.Decoder(KeptTask).decode
decode_position = msgspec.msgpack.Decoder(Position).decode


class Parts:
    """What a mutant replaces."""

    replica: type[Replica] = Replica
    leader: type[Leader] = Leader
    inbox: type[InboxRules] = InboxRules


class SimAgent:
    """An agent process: the shipped inbox rules, and handlers that end when the world says so."""

    def __init__(self, world: World, partition: int, incarnation: int) -> None:
        self.world = world
        self.partition = partition
        self.incarnation = incarnation
        self.info = AgentInfo(f"a{incarnation}", "h", 1, 2, ("t.work", "t.other"))
        self.rules = world.parts.inbox("q", incarnation)
        self.position = len(world.inbox[partition])
        self.running: dict[tuple[str, int], Run] = {}
        self.said: list[Report] = []
        self.paused = False
        self.stopping = 0  # steps that it goes on after its session ended

    def step(self) -> None:
        world, rng = self.world, self.world.rng
        topic = world.inbox[self.partition]
        for _ in range(rng.randrange(4)):
            if self.position < len(topic):
                self.read(topic[self.position])
                self.position += 1
        for key in [k for k in self.running if rng.random() < (0.5 if world.calm else 0.25)]:
            self.finish(self.running.pop(key))
        if self.said and rng.random() < 0.7:
            value = encode(
                Reports(1, self.partition, self.incarnation, "a", self.rules.term, self.said)
            )
            self.said = []
            world.topics[REPORTS].append(value)
            if rng.random() < 0.1 and not world.calm:  # the acknowledgement was lost: sent again
                world.topics[REPORTS].append(value)

    def read(self, value: bytes) -> None:
        rng = self.world.rng
        decision = self.rules.take(decode_inbox(value))
        for run in decision.run:
            self.running[run.id, run.attempt] = run
            self.world.ledger.append((run.id, run.attempt, self.incarnation, run.fence))
            if rng.random() < 0.5:
                self.said.append(DidReceive(run.id, run.attempt))
            if rng.random() < 0.3:
                self.said.append(DidStart(run.id, run.attempt, self.world.now))
        for id_, attempt in decision.repeated:
            self.said.append(DidReceive(id_, attempt))
        for id_, attempt in decision.superseded:
            self.running.pop((id_, attempt), None)
        for cancel in decision.cancel:
            self.cancel(cancel)
        if decision.have:
            self.said.append(DidHave(self.rules.held()))

    def cancel(self, order: Cancel) -> None:
        run = self.running.pop((order.id, order.attempt), None)
        if run is not None:
            self.fail(run, "cancelled")

    def finish(self, run: Run) -> None:
        chance = self.world.rng.random()
        now = self.world.now
        if self.world.calm or chance < 0.7:
            self.said.append(DidSucceed(run.id, run.attempt, b'"ok"', now, now))
        elif chance < 0.85:
            self.fail(run, "error")
            return
        elif chance < 0.88:
            self.fail(run, "discard")
            return
        elif chance < 0.9:
            self.fail(run, "malformed")
            return
        else:
            self.said.append(DidReturn(run.id, run.attempt, "no room"))
        self.rules.ended(run.id, run.attempt, run.fence)

    def fail(self, run: Run, kind: str) -> None:
        now = self.world.now
        self.said.append(DidFail(run.id, run.attempt, kind, "because", None, now, now))
        self.rules.ended(run.id, run.attempt, run.fence)


class Scheduler:
    """A scheduler process: the shell of the protocol around the shipped replica and leader."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.paused = False
        self.elected: int | None = None
        self.skew = world.rng.choice([0.0, 0.0, -3.0, 2.0])
        self.cold_start()

    def cold_start(self) -> None:
        """Come to life with nothing in memory."""
        world = self.world
        self.replica = world.parts.replica("q", CONFIG)
        self.leader: Leader | None = None
        entries = world.standing()
        position = entries.pop(POSITION_KEY, None)
        if position is not None and world.rng.random() < 0.8:
            self.replica.restore(decode_position(position), map(decode_kept, entries.values()))
        self.lanes: dict[tuple[int, int], deque[Output]] = {}
        self.open: dict[int, int] = {}

    def lead(self, term: int) -> None:
        rng = self.world.rng
        try:
            self.leader = self.world.parts.leader(
                self.replica, term=term, name=self.name, rng=Random(rng.random()), config=OWN
            )
        except StaleTerm:
            self.cold_start()
            return
        self.inputs = Inputs()
        self.read: dict[tuple[int, int], int] = {}
        self.resent = False
        self.seen = 0  # membership events
        self.appended: bytes | None = None
        self.patience = 0

    def step(self) -> None:
        if self.elected is not None:
            term, self.elected = self.elected, None
            self.cold_start_if_led()
            self.lead(term)
        if self.leader is None:
            self.follow(self.world.rng.randrange(5))
            return
        try:
            self.lead_on(self.leader)
        except Deposed:
            self.cold_start()

    def cold_start_if_led(self) -> None:
        if self.leader is not None:
            self.cold_start()

    def follow(self, count: int) -> None:
        log = self.world.log
        for _ in range(count):
            if self.replica.position < len(log):
                self.replica.feed(self.replica.position, log[self.replica.position])

    def lead_on(self, leader: Leader) -> None:
        world, rng = self.world, self.world.rng
        for _ in range(rng.randrange(1, 5)):
            if leader.position < len(world.log):
                self.queue(leader.feed(leader.position, world.log[leader.position]))
        if not leader.is_open:
            self.append(leader.opening())
            return
        if not self.resent:
            self.resent = True
            if leader.term > world.fence:
                world.fence = leader.term
            self.queue(leader.resend())
            self.read = dict(leader.consumed)
        self.hear_of_members(leader)
        if leader.in_flight is not None:
            self.append(leader.in_flight)
        else:
            self.take_inputs(leader)
            value = leader.decide(self.inputs, world.now + self.skew)
            if value is not None:
                self.append(value)
            self.queue(leader.reminders(world.now + self.skew))
        for lane in list(self.lanes):
            if rng.random() < 0.6:
                self.deliver(leader, lane)

    def append(self, value: bytes) -> None:
        """Append, and again when nothing was heard for a while."""
        world, rng = self.world, self.world.rng
        if value == self.appended:
            self.patience -= 1
            if self.patience > 0:
                return
        self.appended = value
        self.patience = rng.randrange(2, 6)
        chance = 1.0 if world.calm else rng.random()
        if chance < 0.08:
            return  # lost
        if chance < 0.2:
            world.later(lambda: world.log.append(value))  # lands late, never acknowledged
            return
        world.log.append(value)
        hasty = getattr(self.leader, "on_acknowledgement", None)  # a mutant's
        if hasty is not None and self.leader is not None and self.leader.is_open:
            self.queue(hasty(len(world.log) - 1))

    def take_inputs(self, leader: Leader) -> None:
        world, rng = self.world, self.world.rng
        room = leader.room()
        for source, topic in world.topics.items():
            at = self.read.get((source, 0), 0)
            if rng.random() < 0.05 and not world.calm:  # the reader began again
                at = leader.consumed.get((source, 0), 0)
                for queue in (*self.inputs.tasks, self.inputs.controls, self.inputs.reports):
                    for record in [r for r in queue if r.origin.source == source]:
                        queue.remove(record)
            count = rng.randrange(8) if source > 3 else min(room[source], rng.randrange(5))
            for offset in range(at, min(at + count, len(topic))):
                value = topic[offset]
                headers = [("ce_zkreplyto", b"0")] if source <= 3 and offset % 2 else []
                self.inputs.take(Origin(source, 0, offset, world.now), None, value, headers)
                at = offset + 1
            self.read[source, 0] = at

    def hear_of_members(self, leader: Leader) -> None:
        world, rng = self.world, self.world.rng
        if rng.random() < 0.5:
            return
        while self.seen < len(world.members):
            kind, partition, incarnation, info = world.members[self.seen]
            self.seen += 1
            if kind == "join":
                leader.joined(partition, incarnation, info)
            else:
                leader.left(incarnation)
        leader.members_known()

    def queue(self, outputs: list[Output]) -> None:
        for output in outputs:
            self.lanes.setdefault((output.topic, output.partition or 0), deque()).append(output)
            if output.offset >= 0:
                self.open[output.offset] = self.open.get(output.offset, 0) + 1

    def deliver(self, leader: Leader, lane: tuple[int, int]) -> None:
        """Send some of a lane; from the first that is not acknowledged on, all is sent again."""
        world, rng = self.world, self.world.rng
        waiting = self.lanes[lane]
        if lane[0] == Topic.CHECKPOINT and world.fence != leader.term:
            return  # fenced
        heard = True
        for output in list(waiting)[: rng.randrange(1, 5)]:
            chance = 1.0 if world.calm else rng.random()
            if lane[0] == Topic.CHECKPOINT and not heard:
                break  # one transaction after the other
            if chance >= 0.08:
                world.land(output)
            if chance < 0.16:
                heard = False
            if heard:
                waiting.popleft()
                self.acknowledge(leader, output.offset)

    def acknowledge(self, leader: Leader, offset: int) -> None:
        if offset < 0:
            return
        self.open[offset] -= 1
        if not self.open[offset]:
            del self.open[offset]
            leader.acknowledged(offset)

    def crash(self) -> None:
        """Everything in memory is gone; what was on its way may still land."""
        rng = self.world.rng
        if self.leader is not None:
            for lane, waiting in self.lanes.items():
                if lane[0] != Topic.CHECKPOINT and rng.random() < 0.3:
                    for output in list(waiting)[: rng.randrange(1, 4)]:
                        self.world.later(lambda output=output: self.world.land(output))
        self.elected = None
        self.paused = False
        self.cold_start()


class World:
    """Topics, election, membership, time, and the order in which things happen."""

    def __init__(self, seed: int, parts: Parts | None = None, *, tasks: int = 14) -> None:
        self.rng = Random(seed)
        self.parts = parts or Parts()
        self.now = 1000.0
        self.calm = False
        self.log: list[bytes] = []
        self.topics: dict[int, list[bytes]] = {k: [] for k in range(6)}
        self.inbox: dict[int, list[bytes]] = {p: [] for p in range(PARTITIONS)}
        self.sent: list[Output] = []
        self.entries: list[tuple[bytes, bytes | None]] = []
        self.fence = -1
        self.term = 0
        self.members: list[tuple[str, int, int, AgentInfo | None]] = []
        self.ledger: list[tuple[str, int, int, int]] = []
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
        rng = self.rng
        self.tasks_left -= 1
        priority = rng.randrange(4)
        topic = self.topics[priority]
        chance = rng.random()
        if chance < 0.06:
            topic.append(b"\xff not json")
            return
        name = "t.nobody" if chance < 0.1 else rng.choice(["t.work", "t.other"])
        event: dict[str, Any] = {"task": name, "args": []}
        if rng.random() < 0.15:
            # An id that another record may have too, live or not.
            event = {
                "specversion": "1.0", "type": "zkcoord.task.submit.v1", "source": "/m",
                "id": f"same-{rng.randrange(3)}", "data": event,
            }  # fmt: skip
            value = msgspec.json.encode(event)
        else:
            value = msgspec.json.encode(event)
        topic.append(value)

    def control(self) -> None:
        rng = self.rng
        source = rng.randrange(4)
        names = ("critical", "high", "normal", "low")
        id_ = f"{names[source]}/0/{rng.randrange(6)}"
        action = rng.choice(["cancel", "reprioritize", "pause", "resume", "nonsense"])
        self.topics[CONTROL].append(
            msgspec.json.encode({"action": action, "id": id_, "priority": rng.randrange(4)})
        )

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
        leading = self.leading
        if leading is None or leading.paused or (leading.leader is None and not leading.elected):
            if rng.random() < 0.1:
                self.elect()

    def step(self) -> None:
        rng = self.rng
        self.now += rng.random() * 0.2
        if not self.calm:
            self.disturb()
            if self.tasks_left and rng.random() < 0.15:
                self.submit()
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
                self.check_cold_start()
        self.heal()
        for _ in range(1500):
            self.step()
            if self.is_at_rest():
                break
        else:
            return [f"it does not come to rest: {self.restless()}", *self.verdict()]
        for _ in range(60):
            self.step()
        return self.verdict()

    def heal(self) -> None:
        self.calm = True
        while self.tasks_left:
            self.submit()
        self.topics[CONTROL].append(msgspec.json.encode({"action": "resume"}))
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

    def check_cold_start(self) -> None:
        """A fold from the checkpoint gives what a fold of the whole log gives."""
        entries = self.standing()
        position = entries.pop(POSITION_KEY, None)
        if position is None:
            return
        cold, full = self.parts.replica("q", CONFIG), self.parts.replica("q", CONFIG)
        cold.restore(decode_position(position), map(decode_kept, entries.values()))
        for offset, value in enumerate(self.log):
            full.feed(offset, value)
            cold.feed(offset, value)
        one, other = cold.state.image(), full.state.image()
        if one != other or (cold.term, cold.n) != (full.term, full.n):
            names = [name for name in one if one[name] != other[name]]
            self.cold_checks.append(
                f"cold start differs in {names}: "
                + "; ".join(f"{one[name]} != {other[name]}" for name in names)
            )
        sent = full.state.sent
        owed = [said for entry in full.owed if entry[0] >= sent and (said := owing(entry))[1]]
        held = [owing(entry) for entry in cold.owed if entry[0] >= sent]
        if [said for said in owed if said not in held]:
            self.cold_checks.append(f"cold start owes {held}, not {owed}")

    def verdict(self) -> list[str]:
        found = check_log(enumerate(self.log))
        wrong = list(found.problems) + self.cold_checks
        if found.lost:
            wrong.append(f"lost: {found.lost}")
        for source in range(4):
            for offset in range(len(self.topics[source])):
                if (source, 0, offset) not in found.origins:
                    wrong.append(f"record {source}/0/{offset} was never decided")
        wrong += self.check_ledger(found.dispatched)
        wrong += self.check_sent(found)
        wrong += self.check_folds()
        return wrong

    def check_ledger(self, dispatched: set[tuple[str, int, int]]) -> list[str]:
        wrong = [
            f"{start} started without a dispatch that stands"
            for start in self.ledger
            if start[:3] not in dispatched
        ]
        starts = [start[:3] for start in self.ledger if start[:3] in dispatched]
        # An id may be used again once its task has ended; the fence tells the two apart.
        twice = [s for s in set(self.ledger) if self.ledger.count(s) > 1]
        return wrong + [f"{start} started twice" for start in twice if start[:3] in starts]

    def check_sent(self, found: Any) -> list[str]:
        wrong = []
        told: set[tuple[str, int]] = set()
        for output in self.sent:
            if output.topic == Topic.RESULTS:
                result = msgspec.json.decode(output.value)
                id_, fact = result["id"], result["fact"]
            else:
                headers = {name: (value or b"").decode() for name, value in output.headers}
                id_, fact = headers.get("zkdead_id"), headers["zkdead_fact"]
            offset, index = map(int, fact.split("."))
            if (offset, index) not in found.facts:
                wrong.append(f"an output speaks of fact {fact} about {id_}, which is void")
            elif output.topic == Topic.RESULTS:
                told.add((id_, offset))
        for life in found.lives.values():
            for state, offset, _, _ in life.ends:
                if life.reply is not None and (life.id, offset) not in told:
                    wrong.append(f"{life.id} {state} at {offset}: its submitter was never told")
        buried = sum(1 for o in {self._letter(o) for o in self.sent if o.topic == Topic.DEAD})
        expected = found.rejected + found.refused + found.count("dead")
        if buried != expected:
            wrong.append(f"{buried} dead letters for {expected} facts")
        return wrong

    @staticmethod
    def _letter(output: Output) -> bytes:
        return next(value or b"" for name, value in output.headers if name == "zkdead_fact")

    def check_folds(self) -> list[str]:
        fresh = self.parts.replica("q", CONFIG)
        for offset, value in enumerate(self.log):
            fresh.feed(offset, value)
        wrong = []
        for scheduler in self.schedulers:
            leader = scheduler.leader
            if leader is not None and (leader is not self.leading.leader or leader.in_flight):
                continue
            if leader is None:
                scheduler.follow(len(self.log))
            elif leader.position < len(self.log):
                continue
            state = scheduler.replica.state
            inputs = dict(leader.consumed) if leader is not None else state.inputs
            image = {**state.image(), "inputs": inputs}
            if image != fresh.state.image():
                wrong.append(f"the fold of {scheduler.name} differs")
        return wrong


def owing(entry: tuple[int, float, list]) -> tuple[int, list[tuple[str, Any]]]:
    """An owed batch in plain words: what must be sent, for whom."""
    offset, _, effects = entry
    said = []
    for cause, about, _ in effects:
        name = type(cause).__name__
        if name not in ("Checkpointed", "Tombstones", "Positioned"):
            said.append((name, getattr(about, "id", None)))
    return offset, said
