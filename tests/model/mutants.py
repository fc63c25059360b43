"""The protocol with one rule left out, each to be found by the simulation.

The first six are those that the design names; the others are about the checkpoint.
"""

from __future__ import annotations

from parts import Parts

from zkcoord.core import leader as leader_module
from zkcoord.core.checkpoint import Planner
from zkcoord.core.inbox import Decision, InboxRules
from zkcoord.core.leader import Leader
from zkcoord.core.outputs import Output
from zkcoord.core.records import Batch, Inbox, Position, Run, TermOpened
from zkcoord.core.replica import Replica, decode_batch
from zkcoord.errors import Deposed


class Credulous(Replica):
    """Takes whatever stands in the log."""

    def admits(self, batch: Batch) -> bool:
        return True


class CredulousLeader(Leader):
    def feed(self, offset: int, value: bytes) -> list[Output]:
        flight = self._flight
        if self._desk is None or (flight is not None and value == flight.value):
            return super().feed(offset, value)
        batch = decode_batch(offset, value)
        self.replica.position = offset + 1
        if batch.term > self.term:
            raise Deposed("a higher term")
        self.replica.fold.batch(batch, offset)
        return []


class NoVoidRule(Parts):
    replica = Credulous
    leader = CredulousLeader


class Hasty(Leader):
    """Sends when the append is acknowledged, before it has read the batch back."""

    def on_acknowledgement(self, offset: int) -> list[Output]:
        flight = self._flight
        assert flight is not None
        assert self._desk is not None
        self._desk.read_back(offset)
        effects, flight.effects = flight.effects, []
        return self._unsent.add(offset, self._packer.pack(effects, offset, flight.at, offset))


class ActsOnAcknowledgement(Parts):
    leader = Hasty


class Forgetful(Leader):
    def resend(self) -> list[Output]:
        self.replica.owed.clear()
        return []


class NoResending(Parts):
    leader = Forgetful


class Gullible(InboxRules):
    """Runs every order that is addressed to it."""

    def _run(self, order: Run, decision: Decision) -> None:
        self._held[order.id] = (order.fence, order.attempt)
        decision.run.append(order)


class NoDroppingOfRepeats(Parts):
    inbox = Gullible


class HighWater(InboxRules):
    """Drops what is older than the newest it has seen."""

    high = -1

    def take(self, record: Inbox) -> Decision:
        record.orders = [o for o in record.orders if type(o) is not Run or o.fence >= self.high]
        self.high = max([self.high, *(o.fence for o in record.orders if type(o) is Run)])
        return super().take(record)


class DroppingByHighWater(Parts):
    inbox = HighWater


class Presumptuous(Leader):
    """Writes into its opening how far it believes the inputs were consumed."""

    def __init__(self, replica: Replica, **how: object) -> None:
        super().__init__(replica, **how)  # type: ignore[arg-type]
        inputs = [(s, p, n) for (s, p), n in replica.state.inputs.items()]
        batch = Batch(1, self.term, 0, replica.state.at, inputs, -1, [TermOpened(self.name)])
        self._opening = leader_module._encode(batch)


class OffsetsInOpening(Parts):
    leader = Presumptuous


class Hurried(Leader):
    """Says that no order follows while the last ones wait to be read back."""

    def feed(self, offset: int, value: bytes) -> list[Output]:
        early: list[Output] = []
        if self._flight is not None:
            for agent in self._fleet.fresh:
                if agent.drains:
                    self._packer.greet(agent.partition, agent.incarnation, last=True)
            early = self._packer.reminders()
        return early + super().feed(offset, value)


class DismissesTooEarly(Parts):
    leader = Hurried


class EagerPlanner(Planner):
    """Publishes a position as soon as it is made."""

    def publish(self, sent: int) -> Position | None:
        return self._marks.popleft().position if self._marks else None


class EagerLeader(Leader):
    def __init__(self, replica: Replica, **how: object) -> None:
        super().__init__(replica, **how)  # type: ignore[arg-type]
        self._planner = EagerPlanner(1.0, 1.0)


class UnripePositions(Parts):
    leader = EagerLeader


class ImpatientPlanner(Planner):
    """Publishes a ripe position before the records that it relies on are acknowledged."""

    def publish(self, sent: int) -> Position | None:
        return super().publish(1 << 60)


class ImpatientLeader(Leader):
    def __init__(self, replica: Replica, **how: object) -> None:
        super().__init__(replica, **how)  # type: ignore[arg-type]
        self._planner = ImpatientPlanner(1.0, 1.0)


class UnacknowledgedPositions(Parts):
    leader = ImpatientLeader


DESIGN = [
    NoVoidRule,
    ActsOnAcknowledgement,
    NoResending,
    NoDroppingOfRepeats,
    DroppingByHighWater,
    OffsetsInOpening,
]
MORE = [UnripePositions, UnacknowledgedPositions, DismissesTooEarly]
