"""A queue's leader: turns inputs into batches of facts, and facts read back into outputs.

The protocol, which the shell follows::

    leader = Leader(replica, term=lease.token, name=..., rng=Random())     # may raise StaleTerm
    append(leader.opening())
    while not leader.is_open: leader.feed(...)        # everything the log holds, up to our opening
    send(leader.resend())                             # what earlier leaders may not have sent
    leader.joined(...) for all agents; leader.members_known()
    forever:
        leader.joined/updated/left as membership changes
        inputs.take(...) what was read, no more than leader.room() per class
        if leader.in_flight is None: append(leader.decide(inputs, now)) unless it is None
        for each record of the log: send(leader.feed(offset, value))
        send(leader.reminders(now))
        leader.acknowledged(offset) when all outputs of the batch at `offset` are acknowledged

Deciding applies the facts at once, so the next inputs meet the state that the batch will give. That
is speculative: if the batch never comes back in its term, this leader was deposed, and its state is
thrown away with it. Nothing leaves :meth:`Leader.feed` before it was read back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random

import msgspec

from zkcoord.config import SchedulerConfig
from zkcoord.core import answers, intake, upkeep
from zkcoord.core.apply import Effects
from zkcoord.core.checkpoint import Planner
from zkcoord.core.desk import Desk
from zkcoord.core.fleet import BLOCK_S, Fleet
from zkcoord.core.inputs import Inputs
from zkcoord.core.outputs import Output, Packer
from zkcoord.core.records import (
    VERSION,
    AgentInfo,
    Batch,
    Cancel,
    Checkpointed,
    Positioned,
    Pressure,
    TermOpened,
)
from zkcoord.core.replica import Replica, decode_batch
from zkcoord.core.unsent import Unsent
from zkcoord.errors import Deposed, StaleTerm

LAZY_S = 0.25
"""How long consumed offsets and a watermark without facts may wait for a batch of their own."""
TICK_S = 1.0
KEEP_S = 0.1
REMIND_S = 0.25
BOOKKEEPING = (Checkpointed, Positioned)

_encode = msgspec.msgpack.Encoder().encode


class _Flight(msgspec.Struct):
    """A batch that was decided and not read back."""

    value: bytes
    n: int
    at: float
    effects: Effects
    inputs: list[tuple[int, int, int]]
    position: int = -1  # log offset of the checkpoint position it publishes


class Leader:
    """Leads a queue for one term. Takes over `replica`: nobody else may use it from now on.

    Args:
        replica: a follower of the log; the nearer to the log's end, the sooner the take-over.
        term: the election's token.
        name: of the scheduler process, for readers of the log.
        rng: source of the jitter of retry delays.
        config: how this process behaves.

    Raises:
        StaleTerm: `term` is not above the highest term in the log.
    """

    def __init__(
        self,
        replica: Replica,
        *,
        term: int,
        name: str,
        rng: Random,
        config: SchedulerConfig | None = None,
    ) -> None:
        if term <= replica.term:
            raise StaleTerm(
                f"queue {replica.queue}: the election gave term {term}, but the log has term "
                f"{replica.term} already",
                hint="ZooKeeper was wiped or restored from a backup, so its transaction ids ran "
                "backwards: restore it to a later state, or move the queue to a new log",
            )
        self.term = term
        self.name = name
        self.replica = replica
        self._config = config if config is not None else SchedulerConfig()
        self._rng = rng
        self._fleet = Fleet()
        self._packer = Packer(replica.queue, replica.config, term)
        self._planner = Planner(self._config.checkpoint_after_s, self._config.checkpoint_every_s)
        self._desk: Desk | None = None
        self._flight: _Flight | None = None
        self._unsent = Unsent()
        self._consumed: dict[tuple[int, int], int] = {}
        self._trim = replica.start
        self._positions: deque[tuple[int, int]] = deque()  # (batch, position) not written yet
        self._ticked = self._kept = self._batched = self._reminded = float("-inf")
        opening = Batch(VERSION, term, 0, replica.state.at, [], -1, [TermOpened(name)])
        self._opening = _encode(opening)

    # --- the log --------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether our opening was read back, so that we own the state."""
        return self._desk is not None

    @property
    def position(self) -> int:
        """The next log offset to feed."""
        return self.replica.position

    def opening(self) -> bytes:
        """The record that opens the term. Append it once, again when the outcome is unknown."""
        return self._opening

    @property
    def in_flight(self) -> bytes | None:
        """The record that must be read back before the next is decided.

        When the outcome of its append is unknown, append these same bytes again: the first that
        lands counts, the others are void.
        """
        if self._desk is None:
            return self._opening
        return None if self._flight is None else self._flight.value

    def feed(self, offset: int, value: bytes) -> list[Output]:
        """Follow one record of the log; what may be sent now that it was read back.

        A batch without outputs is acknowledged by itself.

        Raises:
            Deposed: a higher term stands in the log. Throw this leader and its replica away.
            DecodeError: bytes that are no batch of a known version.
        """
        replica = self.replica
        if offset < replica.position:
            return []
        if self._desk is None:
            self._follow(offset, value)
            return []
        flight = self._flight
        if flight is not None and value == flight.value:
            return self._landed(self._desk, flight, offset)
        batch = decode_batch(offset, value)
        replica.position = offset + 1
        if replica.admits(batch):
            raise self._deposed(batch.term, offset)
        replica.voids += 1
        return []

    def decide(self, inputs: Inputs, now: float) -> bytes | None:
        """Consume inputs and decide; the record to append, or None when nothing is to be done.

        `now` is wall-clock seconds. May be called only while nothing is in flight.
        """
        desk = self._desk
        if desk is None or self._flight is not None:
            raise RuntimeError("decide: read back what is in flight first")
        if self._unsent.is_full:
            return None
        desk.begin(now)
        now = desk.now
        keeping = now - self._kept >= KEEP_S
        if keeping:
            self._kept = now
            self._look_back(desk)
        upkeep.take_losses(desk)
        upkeep.take_timers(desk)
        stops: list[tuple[int, int, Cancel]] = []
        answers.take_reports(desk, inputs, stops)
        for partition, incarnation, order in stops:
            self._packer.stop(partition, incarnation, order)
        intake.take_controls(desk, inputs)
        intake.take_tasks(desk, inputs)
        if now - self._ticked >= TICK_S:
            self._ticked = now
            upkeep.take_unknown(desk)
        upkeep.fill_slots(desk)
        return self._close(desk, keeping=keeping)

    # --- outputs --------------------------------------------------------------------------------

    def acknowledged(self, offset: int) -> None:
        """All outputs of the batch at log offset `offset` are acknowledged. In any order."""
        self._unsent.acknowledged(offset)

    def resend(self) -> list[Output]:
        """What no watermark covers, in order: earlier leaders may not have sent it.

        Once, right after :attr:`is_open`. During its own term the shell keeps what it sent.
        """
        replica = self.replica
        if self._desk is None or self._flight is not None:
            raise RuntimeError("resend: after the opening was read back, before the first decision")
        outputs: list[Output] = []
        for offset, at, effects in replica.owed:
            outputs += self._unsent.add(
                offset, self._packer.pack(effects, offset, at, replica.position - 1)
            )
        replica.owed.clear()
        return outputs

    def reminders(self, now: float) -> list[Output]:
        """Inbox records that come from no new fact: greetings, unconfirmed dispatches again.

        Nobody waits for their acknowledgement; what is lost is reminded of again. Cheap.
        :meth:`feed` adds them too now and then.
        """
        if self._desk is None or self._flight is not None:
            return []
        self._reminded = now
        fleet, packer = self._fleet, self._packer
        after = self._config.received_s
        for agent in fleet.agents.values():
            if agent.live and agent.unconfirmed:
                tasks = upkeep.unconfirmed(agent, now, after)
                if tasks:
                    packer.remind(tasks)
        if fleet.fresh:
            for agent in fleet.fresh:
                packer.greet(agent.partition, agent.incarnation, last=agent.drains)
            fleet.fresh = []
        return packer.reminders()

    # --- agents ---------------------------------------------------------------------------------

    def joined(self, partition: int, incarnation: int, info: AgentInfo) -> None:
        """An agent claimed an inbox partition."""
        self._fleet.join(partition, incarnation, info)

    def updated(self, incarnation: int, info: AgentInfo) -> None:
        """An agent changed what it says of itself, such as `draining`."""
        agent = self._fleet.agents.get(incarnation)
        if agent is not None:
            self._fleet.join(agent.partition, incarnation, info)

    def left(self, incarnation: int) -> None:
        """An agent's claim is gone: its attempts are released by the next decision."""
        self._fleet.leave(incarnation)
        self._packer.forget(incarnation)

    def members_known(self) -> None:
        """All agents that live have been told; attempts of others are released from now on."""
        self._fleet.close_ranks()

    # --- the shell's questions ------------------------------------------------------------------

    def room(self) -> tuple[int, int, int, int]:
        """How many more records per class intake may read now; 0 leaves them in their topic."""
        desk = self._desk
        if desk is None:
            return 0, 0, 0, 0
        critical, high, normal, low = (
            desk.admission.room(desk.state, k, queue.count)
            for k, queue in enumerate(desk.queues.classes)
        )
        return critical, high, normal, low

    def due(self, now: float) -> float:
        """Seconds until the next timer, at most 1."""
        desk = self._desk
        if desk is None:
            return 1.0
        wait = 1.0
        time = desk.timers.next()
        if time is not None:
            wait = min(wait, time - now)
        if self._fleet.has_blocked and desk.queues.waiting:
            wait = min(wait, BLOCK_S)
        if desk.consumed or self._unsent.has_news(desk.state, self._sent()):
            wait = min(wait, self._batched + LAZY_S - now)
        return max(wait, 0.0)

    def pressure(self, now: float, unread: Sequence[int]) -> Pressure:
        """The queue's pressure; `unread` is the lag per class in records. Call once a second."""
        desk = self._desk
        if desk is None:
            raise RuntimeError("pressure: after the opening was read back")
        return desk.admission.pressure(now, self.term, desk.state, desk.queues, self._fleet, unread)

    @property
    def consumed(self) -> dict[tuple[int, int], int]:
        """Next offset per (source, partition), as far as it was read back in the log."""
        return self._consumed

    def trim(self) -> int:
        """Log records below this offset are needed by no cold start (history is the shell's)."""
        sent = self._sent()
        while self._positions and self._positions[0][0] < sent:
            self._trim = self._positions.popleft()[1]
        return self._trim

    # --- inside ---------------------------------------------------------------------------------

    def _deposed(self, term: int, offset: int) -> Deposed:
        return Deposed(
            f"queue {self.replica.queue}: term {term} opened at log offset {offset}, "
            f"term {self.term} is over"
        )

    def _follow(self, offset: int, value: bytes) -> None:
        """Before the opening was read back: a follower like any other."""
        replica = self.replica
        batch = replica.feed(offset, value)
        if batch is None or batch.term < self.term:
            return
        if batch.term > self.term:
            raise self._deposed(batch.term, offset)
        self._consumed = dict(replica.state.inputs)
        self._desk = Desk(replica.state, self._fleet, replica.config, self._config, self._rng)

    def _landed(self, desk: Desk, flight: _Flight, offset: int) -> list[Output]:
        """Our batch came back, and nothing void about it: no higher term stands before it."""
        replica = self.replica
        self._flight = None
        replica.position = offset + 1
        replica.n = flight.n
        desk.read_back(offset)
        for source, partition, next_ in flight.inputs:
            self._consumed[source, partition] = next_
        if flight.position >= 0:
            self._positions.append((offset, flight.position))
        self._planner.note(flight.at, offset)
        outputs: list[Output] = []
        if flight.effects:
            packed = self._packer.pack(flight.effects, offset, flight.at, offset)
            outputs = self._unsent.add(offset, packed)
        if flight.at - self._reminded >= REMIND_S:
            outputs += self.reminders(flight.at)  # under load there may be no other moment
        return outputs

    def _sent(self) -> int:
        """The watermark that may be claimed now."""
        return self._unsent.watermark(self.replica.position)

    def _look_back(self, desk: Desk) -> None:
        """Candidates for the checkpoint's position, while the state is just what was read back."""
        planner, replica = self._planner, self.replica
        planner.ripen(desk.state, replica.position)
        if planner.wants_mark(desk.state, desk.now):
            position = desk.state.position(replica.position, self.term, replica.n, self._consumed)
            planner.mark(position, desk.now)

    def _close(self, desk: Desk, *, keeping: bool) -> bytes | None:
        """Add what the checkpoint asks for and make the batch, if there is anything to say."""
        now = desk.now
        sent = self._sent()
        position = self._checkpoint(desk, sent) if keeping else -1
        if not desk.facts:
            is_late = now - self._batched >= LAZY_S
            if not is_late or not (desk.consumed or self._unsent.has_news(desk.state, sent)):
                return None
        self._batched = now
        inputs = [(source, part, next_) for (source, part), next_ in desk.consumed.items()]
        desk.consumed = {}
        effects = desk.finish_batch(sent)
        batch = Batch(VERSION, self.term, self.replica.n + 1, now, inputs, sent, desk.facts)
        value = _encode(batch)
        self._flight = _Flight(value, batch.n, now, effects, inputs, position)
        self._planner.is_idle &= all(type(f) in BOOKKEEPING for f in desk.facts)
        return value

    def _checkpoint(self, desk: Desk, sent: int) -> int:
        """Decide about checkpoint records; the position that is published, or -1."""
        planner = self._planner
        found = planner.publish(sent)
        if found is not None:
            desk.write(Positioned(found), 200 + 300 * len(found.ended))
        if not desk.full(0.75):
            upkeep.keep_old(desk, planner.due(desk.state, desk.now))
        return -1 if found is None else found.offset
