"""An agent of the simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parts import REPORTS, decode_inbox, encode

from zkcoord.core.records import (
    AgentInfo,
    Cancel,
    DidFail,
    DidHave,
    DidReceive,
    DidReturn,
    DidStart,
    DidSucceed,
    Report,
    Reports,
    Run,
)

if TYPE_CHECKING:
    from simulation import World


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
        self.draining = False
        self.dismissed = False

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
            world.topics[REPORTS].append((value, []))
            if rng.random() < 0.1 and not world.calm:  # the acknowledgement was lost: sent again
                world.later(lambda: world.topics[REPORTS].append((value, [])))
        if self.dismissed and not self.running and not self.said:
            world.leave(self)

    def read(self, value: bytes) -> None:
        rng = self.world.rng
        decision = self.rules.take(decode_inbox(value))
        for run in decision.run:
            if self.dismissed:
                self.world.late.append((run.id, run.attempt, self.incarnation))
            if self.draining:
                self.said.append(DidReturn(run.id, run.attempt, "drained", run.fence))
                self.rules.ended(run.id, run.attempt, run.fence)
                continue
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
        self.dismissed = self.dismissed or (self.draining and decision.last)
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
            self.said.append(DidSucceed(run.id, run.attempt, b'"ok"', now, now, run.fence))
            self.world.finished.add((run.id, run.attempt, self.incarnation, run.fence))
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
            self.said.append(DidReturn(run.id, run.attempt, "no room", run.fence))
        self.rules.ended(run.id, run.attempt, run.fence)

    def fail(self, run: Run, kind: str) -> None:
        now = self.world.now
        self.said.append(DidFail(run.id, run.attempt, kind, "because", None, now, now, run.fence))
        self.rules.ended(run.id, run.attempt, run.fence)
