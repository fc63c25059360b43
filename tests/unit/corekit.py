"""A leader under a test's control: no world, no chance, one step at a time."""

from __future__ import annotations

from random import Random

import msgspec

from zkcoord.config import QueueConfig, SchedulerConfig
from zkcoord.core import attributes
from zkcoord.core.inputs import Inputs
from zkcoord.core.leader import Leader
from zkcoord.core.outputs import Output, Topic
from zkcoord.core.records import (
    AgentInfo,
    Batch,
    Cancel,
    Checkpointed,
    DidFail,
    DidSucceed,
    Fact,
    Inbox,
    Origin,
    Positioned,
    Report,
    Reports,
    Run,
    Source,
)
from zkcoord.core.replica import Replica

decode_batch = msgspec.msgpack.Decoder(Batch).decode
decode_inbox = msgspec.msgpack.Decoder(Inbox).decode
START = 1_000_000.0
ATTRIBUTES = {
    "reply": "ce_zkreplyto",
    "expires": "ce_expirytime",
    "not_before": "ce_zknotbefore",
    "requires": "ce_zkrequires",
    "attempts": "ce_zkmaxattempts",
}


class Stage:
    """One leader that is open, its log, and what it sent."""

    def __init__(
        self,
        config: QueueConfig | None = None,
        own: SchedulerConfig | None = None,
        *,
        replica: Replica | None = None,
        term: int = 1,
        log: list[bytes] | None = None,
    ) -> None:
        self.config = config or QueueConfig()
        self.own = own or SchedulerConfig()
        self.log = [] if log is None else log
        self.replica = replica or Replica("q", self.config)
        self.leader = Leader(
            self.replica, term=term, name=f"s{term}", rng=Random(7), config=self.own
        )
        self.now = START
        self.inputs = Inputs()
        self.offsets: dict[int, int] = {}
        self.outputs: list[Output] = []
        self.facts: list[Fact] = []
        self.log.append(self.leader.opening())
        self.follow()

    def follow(self) -> list[Output]:
        """Feed what the log has; what may be sent."""
        found: list[Output] = []
        while self.leader.position < len(self.log):
            found += self.leader.feed(self.leader.position, self.log[self.leader.position])
        self.outputs += found
        return found

    def agent(
        self,
        incarnation: int = 100,
        *,
        partition: int | None = None,
        slots: int = 4,
        tasks: tuple[str, ...] = ("t.work",),
        capabilities: tuple[str, ...] = (),
        draining: bool = False,
    ) -> None:
        info = AgentInfo(
            f"a{incarnation}", "h", 1, slots, tasks, capabilities=capabilities, draining=draining
        )
        place = incarnation - 100 if partition is None else partition
        self.leader.joined(place, incarnation, info)

    def take(self, source: int, value: bytes | None, headers: list | None = None) -> Origin:
        offset = self.offsets.get(source, 0)
        self.offsets[source] = offset + 1
        origin = Origin(source, 0, offset, self.now)
        self.inputs.take(origin, None, value, headers or [])
        return origin

    def submit(
        self,
        id_: str,
        *,
        task: str = "t.work",
        priority: int = Source.NORMAL,
        body: bytes | None = None,
        **attributes_: float | str | None,
    ) -> Origin:
        """A task arrives; `attributes_` by the names of ATTRIBUTES."""
        headers = [("ce_id", id_.encode())]
        for name, value in attributes_.items():
            is_time = name in ("expires", "not_before")
            text = attributes.timestamp(float(value or 0)) if is_time else str(value)
            headers.append((ATTRIBUTES[name], text.encode()))
        return self.take(priority, body or b'{"task": "%s"}' % task.encode(), headers)

    def report(self, *reports: Report, incarnation: int = 100) -> None:
        said = Reports(1, incarnation - 100, incarnation, "a", 1, list(reports))
        self.take(Source.REPORTS, msgspec.msgpack.encode(said))

    def control(self, action: str, id_: str = "", **more: object) -> None:
        self.take(Source.CONTROL, msgspec.json.encode({"action": action, "id": id_, **more}))

    def decide(self, later: float = 0.0) -> list[Fact]:
        """Let time pass and decide, without reading back; the facts about tasks."""
        self.now += later
        value = self.leader.decide(self.inputs, self.now)
        if value is None:
            return []
        self.log.append(value)
        facts = decode_batch(value).facts
        self.facts += facts
        return [fact for fact in facts if not isinstance(fact, Checkpointed | Positioned)]

    def step(self, later: float = 0.0) -> list[Fact]:
        """Let time pass, decide and read back; the facts."""
        facts = self.decide(later)
        self.follow()
        return facts

    def settle(self) -> None:
        """Everything sent so far is acknowledged."""
        for offset in sorted({output.offset for output in self.outputs if output.offset >= 0}):
            self.leader.acknowledged(offset)

    def sent(self, topic: Topic) -> list[Output]:
        return [output for output in self.outputs if output.topic == topic]

    def orders(self) -> list[Run | Cancel]:
        """All orders sent so far."""
        return [
            order
            for output in self.sent(Topic.INBOX)
            for order in decode_inbox(output.value).orders
        ]

    def runs(self) -> list[tuple[str, int]]:
        return [(order.id, order.attempt) for order in self.orders() if isinstance(order, Run)]

    def successor(self, term: int) -> Stage:
        """Another process that followed the log from its beginning, elected now."""
        replica = Replica("q", self.config)
        for offset, value in enumerate(self.log):
            replica.feed(offset, value)
        stage = Stage(self.config, self.own, replica=replica, term=term, log=self.log)
        stage.now = self.now
        stage.offsets = self.offsets
        return stage


def names(facts: list[Fact]) -> list[str]:
    return [type(fact).__name__ for fact in facts]


def succeed(id_: str, attempt: int = 1) -> DidSucceed:
    return DidSucceed(id_, attempt, b'"fine"', 1.0, 2.0)


def fail(id_: str, attempt: int = 1, kind: str = "error", delay: float | None = None) -> DidFail:
    return DidFail(id_, attempt, kind, "because", delay, 1.0, 2.0)


def running(config: QueueConfig | None = None, **task: object) -> Stage:
    """A stage on which task `a` runs its first attempt at agent 100."""
    stage = Stage(config)
    stage.agent()
    stage.leader.members_known()
    stage.submit("a", **task)  # type: ignore[arg-type]
    assert names(stage.step()) == ["Accepted", "Dispatched"]
    return stage
