"""Claiming an inbox: one partition of the inbox topic for one agent, by an ephemeral znode."""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from zkcoord.core.records import AgentInfo
from zkcoord.errors import (
    BrokerUnavailable,
    CoordinationError,
    EnsembleUnavailable,
    NodeExists,
    NodeMissing,
    SessionLost,
    TopicMismatch,
)
from zkcoord.kafka import Admin
from zkcoord.queue.administration import inbox_path
from zkcoord.queue.topics import INBOXES_MAX, Topics, grow_inboxes
from zkcoord.zk import Session, Signal
from zkcoord.zk.clock import now

_log = logging.getLogger(__name__)

_decode_info = msgspec.json.Decoder(AgentInfo).decode

TRIES = 50
TIMEOUT_S = 5.0

NAMESAKES_READ = 200
NAMESAKES_S = 1.0
"""Other claims that are looked at for agents of the same name, and how long that may take."""

OFFSETS_S = 5.0

Offsets: TypeAlias = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Claim:
    """An inbox partition that is this agent's until its session ends.

    Attributes:
        partition: of the inbox topic.
        incarnation: czxid of the znode; it rises with every claim, by anybody.
        position: offset from which records can be addressed to this incarnation.
        path: the znode.
        session: which holds it.
        lost: set when the session that made the claim is over. The session object renews itself,
            so it alone does not say.
    """

    partition: int
    incarnation: int
    position: int
    path: str
    session: Session
    lost: Signal

    def valid(self) -> bool:
        """Whether the claim can be believed at this moment."""
        # In this order: once the session was renewed, `valid_until` speaks of the new one.
        return self.session.valid_until > now() and not self.lost.is_set()

    def update(self, info: AgentInfo, timeout: float = TIMEOUT_S) -> None:
        """Tell the leader something new about the agent.

        Raises:
            CoordinationError: it was not told, or the outcome is unknown.
        """
        if self.lost.is_set():
            raise SessionLost(f"the claim {self.path} is gone with its session")
        self.session.nodes.set(self.path, msgspec.json.encode(info), timeout=timeout)

    def release(self, timeout: float = TIMEOUT_S) -> None:
        """Give the partition back; harmless when it is gone.

        Raises:
            CoordinationError: outcome unknown; it goes with the session at the latest.
        """
        try:
            if not self.lost.is_set():
                self.session.nodes.delete(self.path, timeout=timeout)
        except NodeMissing:
            return


def claim_inbox(
    session: Session, admin: Admin, topics: Topics, info: AgentInfo, rng: random.Random
) -> Claim:
    """Claim a free inbox; the topic grows when there is none.

    The end of the partition is read first and the claim made after it, so nothing that is
    addressed to the new incarnation can stand before `position`.

    Raises:
        CoordinationError: no inbox became free within many tries, or the topic is at its bound.
        EnsembleUnavailable, BrokerUnavailable: no server answered in time.
        TopicMismatch: the queue has no inbox topic.
    """
    folder = inbox_path(topics.queue)
    data = msgspec.json.encode(info)
    for _ in range(TRIES):
        offsets = _offsets(admin, topics)
        free = sorted(offsets.keys() - _taken(session, folder))
        if not free:
            _grow(admin, topics, len(offsets))
            continue
        partition = rng.choice(free)
        claim = _try(session, f"{folder}/{partition}", data, partition, offsets)
        if claim is not None:
            return claim
    raise CoordinationError(
        f"queue {topics.queue!r}: no inbox could be claimed in {TRIES} tries",
        hint=f"agents crowd in, or the session does not hold; look at {folder}",
    )


def warn_of_namesakes(claim: Claim, info: AgentInfo, rng: random.Random) -> None:
    """Say so in the log when another agent of the queue has this one's name.

    It hurts nothing, but logs and commands cannot tell the two apart. In large queues only
    `NAMESAKES_READ` of the others are looked at; a server that does not answer is not waited for.
    """
    folder, _, own = claim.path.rpartition("/")
    nodes = claim.session.nodes
    try:
        others = set(nodes.children(folder, timeout=NAMESAKES_S)) - {own}
        chosen = rng.sample(sorted(others), min(NAMESAKES_READ, len(others)))
        answers = [nodes.get_future(f"{folder}/{name}", timeout=NAMESAKES_S) for name in chosen]
    except CoordinationError:
        return
    for answer in answers:
        try:
            other = _decode_info(answer.wait()[0])
        except (CoordinationError, msgspec.MsgspecError, ValueError):
            continue  # it has left, or it is none of ours
        # The same process and start: this agent's claim of before, whose session has not ended yet.
        same = (other.host, other.pid, other.since) == (info.host, info.pid, info.since)
        if other.name == info.name and not same:
            _log.warning(
                "another agent of the queue is called %r too: process %d on %s; "
                "give each a name of its own (if that one has just died, its claim goes by itself)",
                info.name,
                other.pid,
                other.host,
            )
            return


def _offsets(admin: Admin, topics: Topics) -> Offsets:
    """Ask for the inboxes' ends; new partitions may need a moment to find their leader."""
    until = time.monotonic() + OFFSETS_S
    while True:
        try:
            return admin.offsets(topics.inbox, TIMEOUT_S)
        except (BrokerUnavailable, TopicMismatch):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _try(
    session: Session, path: str, data: bytes, partition: int, offsets: Offsets
) -> Claim | None:
    lost = session.lost
    if lost.is_set():  # between two sessions: the new one has a signal of its own
        lost.wait(0.1)
        session.nodes.exists("/", timeout=TIMEOUT_S)
        return None
    try:
        incarnation = session.nodes.create(
            path, data, ephemeral=True, makepath=True, timeout=TIMEOUT_S
        ).czxid
    except NodeExists:
        return None  # another agent was faster, or it is ours from a lost answer: it will go
    except SessionLost:
        return None
    if session.lost is not lost or lost.is_set():
        _log.info("the session was renewed while claiming %s; trying again", path)
        _forget(session, path)
        return None
    return Claim(partition, incarnation, offsets[partition][1], path, session, lost)


def _forget(session: Session, path: str) -> None:
    """Remove a claim of which it is not known to which session it belongs, if it is ours."""
    try:
        _, stat = session.nodes.get(path, timeout=TIMEOUT_S)
        if stat.owner == session.id:
            session.nodes.delete(path, stat.version, timeout=TIMEOUT_S)
    except (NodeMissing, SessionLost, EnsembleUnavailable):
        return  # gone, or it goes with its session


def _taken(session: Session, folder: str) -> set[int]:
    try:
        names = session.nodes.children(folder, timeout=TIMEOUT_S)
    except NodeMissing:
        return set()
    return {int(name) for name in names if name.isascii() and name.isdecimal()}


def _grow(admin: Admin, topics: Topics, count: int) -> None:
    if count >= INBOXES_MAX:
        raise CoordinationError(
            f"queue {topics.queue!r}: all {count} inboxes are claimed and there can be no more",
            hint="stop agents, or give each more slots",
        )
    total = min(INBOXES_MAX, count + max(1, count // 4))
    _log.info("all %d inboxes of queue %s are claimed: growing to %d", count, topics.queue, total)
    grow_inboxes(admin, topics, total)
