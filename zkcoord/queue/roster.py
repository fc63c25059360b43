"""Which agents live: the claims on inbox partitions, brought to the leader's loop."""

from __future__ import annotations

import logging
from collections import deque
from typing import TypeAlias

import msgspec

from zkcoord.core.leader import Leader
from zkcoord.core.records import AgentInfo
from zkcoord.queue.administration import inbox_path
from zkcoord.recipes import Joined, Left, Membership, Updated
from zkcoord.zk import Session

log = logging.getLogger("zkcoord.queue")

Change: TypeAlias = Joined | Left | Updated

_decode = msgspec.json.Decoder(AgentInfo).decode


class Roster:
    """Collects membership changes until the loop applies them.

    Args:
        session: the leader's.
        queue: its name.
    """

    def __init__(self, session: Session, queue: str) -> None:
        self._changes: deque[Change] = deque()
        self._complete = False
        self._watch = Membership(session, inbox_path(queue)).watch(self._changes.append)

    def apply(self, leader: Leader) -> bool:
        """Tell the leader what changed; whether anything did. Never blocks.

        Once everybody who lived at the start is told, the leader may release the attempts of
        agents that are not there: not earlier, so that no running attempt is given away because
        its agent was merely not listed yet.
        """
        complete = self._complete or self._watch.ready.is_set()  # before the changes are taken
        changes = self._changes
        changed = bool(changes)
        while changes:
            self._tell(leader, changes.popleft())
        if complete and not self._complete:
            self._complete = changed = True
            leader.members_known()
        return changed

    def close(self) -> None:
        """Stop watching."""
        self._watch.close()

    def _tell(self, leader: Leader, change: Change) -> None:
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
