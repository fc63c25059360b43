"""What tests of semaphores share."""

from __future__ import annotations

from zkcoord.errors import (
    NodeMissing,
)
from zkcoord.recipes import Semaphore
from zkcoord.zk import Session

FOLDER = "/semaphores/jobs"


def jobs(session: Session, permits: int | None = 2) -> Semaphore:
    return Semaphore(session, "jobs", permits)


def queue(session: Session) -> list[str]:
    """The nodes in the queue."""
    try:
        return [name for name in session.nodes.children(FOLDER) if name[0] == "s"]
    except NodeMissing:
        return []


def nothing_left(session: Session) -> bool:
    """No znode, watch or byte in use."""
    epoch = session.link.epoch
    assert epoch is not None
    return (
        queue(session) == []
        and len(session.link.watches) == 0
        and session.ephemeral_bytes == 0
        and not epoch._members
        and not epoch.successors
        and not epoch.leaving
    )


def spied(session: Session) -> list[str]:
    """The verbs of what is sent from now on."""
    sent: list[str] = []
    submit = session.link._connection.submit

    def spy(call: object) -> None:
        sent.append(call.what.split()[0])  # type: ignore[attr-defined]
        submit(call)

    session.link._connection.submit = spy  # type: ignore[method-assign]
    return sent
