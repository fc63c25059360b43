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
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from zkcoord.config import SchedulerConfig
from zkcoord.core.inputs import Inputs
from zkcoord.core.outputs import Output
from zkcoord.core.records import AgentInfo, Pressure
from zkcoord.core.replica import Replica


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
        raise NotImplementedError

    # --- the log --------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether our opening was read back, so that we own the state."""
        raise NotImplementedError

    @property
    def position(self) -> int:
        """The next log offset to feed."""
        raise NotImplementedError

    def opening(self) -> bytes:
        """The record that opens the term. Append it once, again when the outcome is unknown."""
        raise NotImplementedError

    @property
    def in_flight(self) -> bytes | None:
        """The record that must be read back before the next is decided.

        When the outcome of its append is unknown, append these same bytes again: the first that
        lands counts, the others are void.
        """
        raise NotImplementedError

    def feed(self, offset: int, value: bytes) -> list[Output]:
        """Follow one record of the log; what may be sent now that it was read back.

        A batch without outputs is acknowledged by itself.

        Raises:
            Deposed: a higher term stands in the log. Throw this leader and its replica away.
            StaleTerm: before the opening was read back, a term not below ours was found.
            DecodeError: bytes that are no batch of a known version.
        """
        raise NotImplementedError

    def decide(self, inputs: Inputs, now: float) -> bytes | None:
        """Consume inputs and decide; the record to append, or None when nothing is to be done.

        `now` is wall-clock seconds. May be called only while nothing is in flight.
        """
        raise NotImplementedError

    # --- outputs --------------------------------------------------------------------------------

    def acknowledged(self, offset: int) -> None:
        """All outputs of the batch at log offset `offset` are acknowledged. In any order."""
        raise NotImplementedError

    def resend(self) -> list[Output]:
        """All outputs that are not acknowledged, in order. Once, right after :attr:`is_open`."""
        raise NotImplementedError

    def reminders(self, now: float) -> list[Output]:
        """Inbox records that come from no new fact: greetings, unconfirmed dispatches again.

        Nobody waits for their acknowledgement; what is lost is reminded of again. Cheap.
        """
        raise NotImplementedError

    # --- agents ---------------------------------------------------------------------------------

    def joined(self, partition: int, incarnation: int, info: AgentInfo) -> None:
        """An agent claimed an inbox partition."""
        raise NotImplementedError

    def updated(self, incarnation: int, info: AgentInfo) -> None:
        """An agent changed what it says of itself, such as `draining`."""
        raise NotImplementedError

    def left(self, incarnation: int) -> None:
        """An agent's claim is gone: its attempts are released by the next decision."""
        raise NotImplementedError

    def members_known(self) -> None:
        """All agents that live have been told; attempts of others are released from now on."""
        raise NotImplementedError

    # --- the shell's questions ------------------------------------------------------------------

    def room(self) -> tuple[int, int, int, int]:
        """How many more records per class intake may read now; 0 leaves them in their topic."""
        raise NotImplementedError

    def due(self, now: float) -> float:
        """Seconds until the next timer, at most 1."""
        raise NotImplementedError

    def pressure(self, now: float, unread: Sequence[int]) -> Pressure:
        """The queue's pressure; `unread` is the lag per class in records. Call once a second."""
        raise NotImplementedError

    @property
    def consumed(self) -> dict[tuple[int, int], int]:
        """Next offset per (source, partition), as far as it was read back in the log."""
        raise NotImplementedError

    def trim(self) -> int:
        """Log records below this offset are needed by no cold start (history is the shell's)."""
        raise NotImplementedError
