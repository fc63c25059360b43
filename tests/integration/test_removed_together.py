"""A holder's node and a waiter's, of one session, that go in one instant.

That is what happens when somebody ends the session from elsewhere; here an operator does it, so
that the session lives on and hears of it for certain. (Candidates of an election stand again.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.waiting import until
from zkcoord.errors import LeaseLost
from zkcoord.recipes import Lock, MultiLock, ReadWriteLock, Semaphore
from zkcoord.zk import Promise, Session

ASKING: dict[str, Callable[[Session], Promise[Any]]] = {
    "lock": lambda s: Lock(s, "a").acquire_future(20),
    "writer": lambda s: ReadWriteLock(s, "a").write.acquire_future(20),
    "several": lambda s: MultiLock(s, ["a", "b"]).acquire_future(20),
    "permit": lambda s: Semaphore(s, "a", permits=1).acquire_future(1, 20),
}


@pytest.mark.parametrize("kind", ASKING)
def test_a_waiter_is_not_granted_when_it_went_with_its_holder(
    session: Session, other: Session, kind: str
) -> None:
    held = ASKING[kind](session).wait()
    future = ASKING[kind](session)
    folders = {path.rpartition("/")[0] for path in getattr(held, "paths", [held.path])}

    def nodes() -> list[str]:
        found = [f"{one}/{name}" for one in folders for name in other.nodes.children(one)]
        return [path for path in found if other.nodes.get(path)[1].owner == session.id]

    until(lambda: len(nodes()) == 2 * len(folders) and len(session.link.watches) > 0)
    session.nodes.sync()
    assert not future.done()
    together = other.nodes.transaction()
    for path in nodes():
        together.delete(path)
    together.commit()
    with pytest.raises(LeaseLost) as caught:
        future.wait()
    assert caught.value.reason == "removed"
    assert held.lost.wait(10)
    until(lambda: session.ephemeral_bytes == 0 and len(session.link.watches) == 0)
