"""A scheduler process of the simulation: the shell's protocol around the shipped core."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from parts import CONFIG, OWN, decode_kept, decode_position

from zkcoord.core.inputs import Inputs
from zkcoord.core.leader import Leader
from zkcoord.core.outputs import POSITION_KEY, Output, Topic
from zkcoord.core.records import Origin
from zkcoord.errors import Deposed, StaleTerm

if TYPE_CHECKING:
    from simulation import World


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
            world.fence = max(world.fence, leader.term)
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
                value, headers = topic[offset]
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
            elif kind == "drain":
                leader.updated(incarnation, info)
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
            elif world.in_order:
                break  # nothing that follows may overtake it
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
