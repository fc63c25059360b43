"""A signal's handler that raises in the middle of an acquire: nothing is left behind.

Handlers run between any two calls of the main thread, so the error is raised out of calls that an
acquire makes, before or after they have done their work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.waiting import until
from zkcoord.errors import NodeMissing
from zkcoord.recipes import (
    Election,
    Lock,
    Membership,
    MultiLock,
    Pool,
    ReadWriteLock,
    RLock,
    Semaphore,
)
from zkcoord.recipes.hold import Hold
from zkcoord.recipes.shared_queue import SharedQueue
from zkcoord.recipes.waiting import Waiting
from zkcoord.zk import Session
from zkcoord.zk.link import Link
from zkcoord.zk.loop import Loop
from zkcoord.zk.outbox import Outbox
from zkcoord.zk.promise import Promise
from zkcoord.zk.pump import Pump

Acquire = Callable[[Session], Any]
FACES: dict[str, tuple[str, Acquire]] = {
    "Lock": ("/locks/a", lambda s: Lock(s, "a").acquire(20)),
    "Lock.hold": ("/locks/a", lambda s: Lock(s, "a").hold(20).__enter__()),
    "handoffs": ("/locks/a", lambda s: Lock(s, "a", local_handoffs=3).acquire(20)),
    "RLock": ("/locks/a", lambda s: RLock(s, "a").acquire(20)),
    "reader": ("/locks/a", lambda s: ReadWriteLock(s, "a").read.acquire(20)),
    "writer": ("/locks/a", lambda s: ReadWriteLock(s, "a").write.acquire(20)),
    "MultiLock": ("/locks/a", lambda s: MultiLock(s, ["a", "b"]).acquire(20)),
    "Semaphore": ("/semaphores/a", lambda s: Semaphore(s, "a", permits=1).acquire(1, 20)),
    "Pool": ("/pools/a", lambda s: Pool(s, "a", ["x"]).acquire(20)),
    "Election": ("/elections/a", lambda s: Election(s, "a").campaign(20)),
}
POINTS: dict[str, tuple[type, str]] = {
    "a call is handed over": (Link, "submit"),
    "bytes are written": (Pump, "_flush"),
    "the bell is rung": (Outbox, "ring"),
    "the queue is joined": (SharedQueue, "add"),
    "the deadline is set": (Waiting, "_arm"),
    "a timer is set": (Loop, "call_at"),
    "somebody will wait": (Promise, "wait"),
}
ENDS: dict[str, tuple[type, str]] = {"a block is left": (Hold, "_leave")}


class Strike:
    """Raises KeyboardInterrupt once, on this thread, out of the n-th call of a method."""

    def __init__(self, patch: pytest.MonkeyPatch, point: str, moment: str, nth: int) -> None:
        owner, name = (POINTS | ENDS)[point]
        original = getattr(owner, name)
        main = threading.get_ident()
        self.calls = 0
        self.armed = True

        def struck(this: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != main or not self.armed:
                return original(this, *args, **kwargs)
            self.calls += 1
            due = self.calls == nth
            if due:
                self.armed = False
            if due and moment == "before":
                raise KeyboardInterrupt
            result = original(this, *args, **kwargs)
            if due:
                raise KeyboardInterrupt
            return result

        patch.setattr(owner, name, struck)


def nothing_left(session: Session) -> bool:
    epoch = session.link.epoch
    assert epoch is not None
    waiting = any(queue._members for queue in epoch.queues.values())
    return not (session.link.watches or session.ephemeral_bytes or epoch._members or waiting)


def standing(session: Session, folder: str) -> list[str]:
    try:
        return [n for n in session.nodes.children(folder) if n not in {"slots", "limit"}]
    except NodeMissing:
        return []


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("face", FACES)
def test_nothing_is_left_of_an_acquire_whose_handler_raises(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch, face: str, point: str
) -> None:
    folder, acquire = FACES[face]
    acquire(session).release(timeout=5)  # the folders are there
    joins = point == "the queue is joined"  # in one step with what notes it
    for moment, nth in product(("before",) if joins else ("before", "after"), (1, 2)):
        with monkeypatch.context() as patch:
            strike = Strike(patch, point, moment, nth)
            try:
                acquire(session).release(timeout=5)
            except KeyboardInterrupt:
                assert not strike.armed
            strike.armed = False
        until(lambda: nothing_left(session) and not standing(other, folder))
        acquire(other).release(timeout=5)  # nothing of it stands in the way


def test_an_inner_hold_that_is_cut_off_does_not_undo_the_outer(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RLock(session, "a")
    with lock.hold(timeout=5) as outer:
        for point, moment in (("somebody will wait", "before"), ("somebody will wait", "after")):
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                Strike(patch, point, moment, 1)
                lock.acquire()
            assert lock.depth == 1
            outer.check()


def test_leaving_an_inner_block_that_is_cut_off_undoes_one_hold(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RLock(session, "a")
    with lock.hold(timeout=5) as outer:
        for moment in ("before", "after"):
            inner = lock.hold()
            inner.__enter__()
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                Strike(patch, "a block is left", moment, 1)
                inner.__exit__(None, None, None)
            assert lock.depth == 1
            outer.check()


def test_a_member_that_nobody_got_is_not_a_member(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = Membership(session, "/members")
    for moment in ("before", "after"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            Strike(patch, "somebody will wait", moment, 1)
            members.join("a")
        until(lambda: not standing(other, "/members"))
    members.join("a").release(timeout=5)


def test_leaving_a_block_is_carried_out_when_a_handler_raises_in_it(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = Lock(session, "a")
    for point in ("a block is left", "a call is handed over", "bytes are written"):
        for moment in ("before", "after"):
            hold: Hold[Any] = lock.hold(timeout=5)
            hold.__enter__()
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                Strike(patch, point, moment, 1)
                hold.__exit__(None, None, None)
            until(lambda: not standing(other, "/locks/a"))
    until(lambda: session.ephemeral_bytes == 0)
