"""What a repr says: class, name, state; never a value or a secret, and never an error."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from zkcoord import DigestConfig, SessionConfig
from zkcoord.errors import CoordinationError
from zkcoord.recipes import (
    Barrier,
    Counter,
    DoubleBarrier,
    Election,
    FastCounter,
    Lock,
    Membership,
    MultiLock,
    NodeCache,
    Pool,
    ReadWriteLock,
    RLock,
    Semaphore,
    TreeCache,
)
from zkcoord.zk import Session

NAMES = [f"n{number}" for number in range(9)]

MADE: list[tuple[Callable[[Session], Any], str]] = [
    (lambda s: Lock(s, "gpu-0"), "Lock 'gpu-0'"),
    (lambda s: RLock(s, "gpu-0"), "RLock 'gpu-0'"),
    (lambda s: ReadWriteLock(s, "docs"), "ReadWriteLock 'docs'"),
    (lambda s: ReadWriteLock(s, "docs").read, "LockFace 'docs', read"),
    (lambda s: ReadWriteLock(s, "docs").write, "LockFace 'docs', write"),
    (lambda s: Semaphore(s, "gpus", 3), "Semaphore 'gpus', permits 3"),
    (lambda s: Semaphore(s, "gpus"), "Semaphore 'gpus', permits as stored"),
    (lambda s: Pool(s, "gpus", ["a", "b"]), "Pool 'gpus', slots a, b"),
    (lambda s: Pool(s, "gpus"), "Pool 'gpus', slots as stored"),
    (lambda s: Pool(s, "gpus", NAMES), "Pool 'gpus', slots n0, n1, n2, n3, n4, … 9 in all"),
    (lambda s: MultiLock(s, ["b", "a"]), "MultiLock 'a, b'"),
    (lambda s: MultiLock(s, NAMES), "MultiLock 'n0, n1, n2, n3, n4, … 9 in all'"),
    (lambda s: Barrier(s, "ready"), "Barrier 'ready'"),
    (lambda s: DoubleBarrier(s, "step", 4), "DoubleBarrier 'step', size 4"),
    (lambda s: Counter(s, "/hits"), "Counter '/hits'"),
    (lambda s: FastCounter(s, "/hits"), "FastCounter '/hits'"),
    (lambda s: Election(s, "nightly"), "Election 'nightly', idle"),
    (lambda s: Membership(s, "/web"), "Membership '/web'"),
]


@pytest.mark.parametrize(("make", "said"), MADE, ids=[said for _, said in MADE])
def test_of_every_recipe(session: Session, make: Callable[[Session], Any], said: str) -> None:
    thing = make(session)
    assert repr(thing) == f"<{said}, session connected>"
    session.close()
    assert repr(thing) == f"<{said}, session closed>"


def test_of_a_session_through_its_life(zookeeper: str) -> None:
    digest = DigestConfig(username="ops", password="pa55word")
    session = Session(zookeeper, config=SessionConfig(digest=digest), name="one")
    head = f"<Session {zookeeper!r} named 'one', "
    assert repr(session) == head + "not connected yet>"
    with session:
        assert re.fullmatch(re.escape(head) + r"connected, id 0x[0-9a-f]+>", repr(session))
    assert repr(session).startswith(head + "closed, id 0x")
    assert repr(Session("a:1")) == "<Session 'a:1', not connected yet>"
    for told in (session, session.config, session.link, session.nodes):
        assert "pa55word" not in repr(told)


def test_of_a_lease(session: Session) -> None:
    lease = Lock(session, "gpu-0").acquire(10)
    head = f"<Lease 'lock gpu-0', token {lease.token}, "
    assert re.fullmatch(re.escape(head) + r"valid for \d+\.\d s>", repr(lease))
    lease.release(10)
    assert repr(lease) == head + "released>"
    other = Lock(session, "gpu-1").acquire(10)
    session.close()
    assert repr(other) == f"<Lease 'lock gpu-1', token {other.token}, lost: session>"


def test_of_a_leader_and_its_election(session: Session) -> None:
    election = Election(session, "nightly")
    leadership = election.campaign(10, b"s3cret")
    assert repr(election) == "<Election 'nightly', leading, session connected>"
    assert repr(leadership).startswith(f"<Leadership 'election nightly', token {leadership.token}")
    assert "s3cret" not in repr(leadership) + repr(election)
    leadership.release(10)
    assert repr(election) == "<Election 'nightly', idle, session connected>"


def test_of_a_member(session: Session) -> None:
    presence = Membership(session, "/web").keep("blue", b"s3cret")
    assert "s3cret" not in repr(presence)
    assert re.fullmatch(r"<Presence '/web/blue', join(ing|ed), session connected>", repr(presence))
    presence.close()
    assert repr(presence) == "<Presence '/web/blue', closed, session connected>"


def test_of_caches(session: Session) -> None:
    session.nodes.create("/a", b"s3cret")
    node, tree = NodeCache(session, "/a"), TreeCache(session, "/a")
    node.wait_ready()
    tree.wait_ready()
    assert repr(node) == "<NodeCache '/a', version 0, session connected>"
    assert repr(tree) == "<TreeCache '/a', nodes 1, current, session connected>"
    with NodeCache(session, "/none") as none:
        none.wait_ready()
        assert repr(none) == "<NodeCache '/none', missing, session connected>"
    session.close()
    assert repr(node).endswith("session closed>")
    assert repr(tree).endswith("session closed>")


def test_of_a_promise(session: Session, other: Session) -> None:
    lease = Lock(other, "gpu-0").acquire(10)
    waiting = Lock(session, "gpu-0").acquire_future(60)
    assert repr(waiting) == "<Promise pending>"
    waiting.cancel()
    assert repr(waiting) == "<Promise cancelled>"
    late = Lock(session, "gpu-0").acquire_future(0)
    with pytest.raises(CoordinationError):
        late.result(30)
    assert repr(late) == "<Promise failed: AcquireTimeout>"
    data = session.nodes.get_future("/")
    data.result(30)
    assert re.fullmatch(r"<Promise done: \w+>", repr(data))
    lease.release(10)


def test_a_forked_child_may_look(session: Session) -> None:
    lease = Lock(session, "gpu-0").acquire(10)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, f"{session!r} {lease!r}".encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    said = os.read(read, 1000).decode()
    os.close(read)
    assert "closed, id" in said
    assert "lost: session" in said
    lease.release(10)
