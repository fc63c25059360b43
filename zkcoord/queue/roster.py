"""Which agents live: the claims on inbox partitions, brought to the leader's loop."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TypeAlias

import msgspec

from zkcoord.core.leader import Leader
from zkcoord.core.records import AgentInfo
from zkcoord.errors import EnsembleUnavailable
from zkcoord.queue.administration import inbox_path
from zkcoord.recipes import Joined, Left, Membership, Updated
from zkcoord.zk import Session

log = logging.getLogger("zkcoord.queue")

Diff: TypeAlias = Joined | Left | Updated

REREAD_S = 0.5

_decode = msgspec.json.Decoder(AgentInfo).decode


class Roster:
    """Collects membership changes until the loop applies them.

    Args:
        session: the leader's.
        queue: its name.
    """

    def __init__(self, session: Session, queue: str) -> None:
        self._changes: deque[Diff] = deque()
        self._told: set[int] = set()
        self._membership = Membership(session, inbox_path(queue))
        self._watch = self._membership.watch(self._heard)

    def complete(self, leader: Leader, timeout: float) -> None:
        """Tell the leader everybody who lives now, and that it knows them all.

        Only then may it release attempts of agents that are not there: not earlier, so that no
        running attempt is given away because its agent was merely not listed yet.

        Raises:
            EnsembleUnavailable: not within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise EnsembleUnavailable(f"the agents were not listed within {timeout:g} s")
            # Read after the watch was set: whoever is listed was told, will be, or has gone since.
            present = {member.token for member in self._membership.members(left)}
            again = time.monotonic() + REREAD_S
            while not present <= self._told and time.monotonic() < again:
                time.sleep(0.001)
            if present <= self._told:
                break
        self.apply(leader)
        leader.members_known()

    def apply(self, leader: Leader) -> bool:
        """Tell the leader what changed; whether anything did. Never blocks.

        Raises:
            CoordinationError: the watch ended by itself, such as AccessDenied.
        """
        if self._watch.error is not None:
            raise self._watch.error
        changes = self._changes
        changed = bool(changes)
        while changes:
            self._tell(leader, changes.popleft())
        return changed

    def close(self) -> None:
        """Stop watching."""
        self._watch.close()

    def _heard(self, change: Diff) -> None:
        """On the session's dispatcher thread."""
        self._changes.append(change)
        if isinstance(change, Joined):
            self._told.add(change.token)
        elif isinstance(change, Left):
            self._told.discard(change.token)

    def _tell(self, leader: Leader, change: Diff) -> None:
        if isinstance(change, Left):
            leader.left(change.token)
            return
        partition = _partition(change.name)
        info = _info(change)
        if partition is None or info is None:
            log.warning("claim %r in the inbox folder is not an agent's: ignored", change.name)
        elif isinstance(change, Joined):
            leader.joined(partition, change.token, info)
        else:
            leader.updated(change.token, info)


def _partition(name: str) -> int | None:
    return int(name) if name.isascii() and name.isdecimal() and len(name) < 7 else None


def _info(change: Joined | Updated) -> AgentInfo | None:
    try:
        return _decode(change.data)
    except msgspec.MsgspecError:
        return None
