"""A create whose reply is lost, and a server that refuses when it is asked again.

The link drops with the reply, and before it is back the folder's access list has changed. Whatever
is still permitted is used, nothing is asked without end, and nothing stays behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from frame_relay import Frame, FrameRelay

from tests import waiting
from zkcoord.errors import AccessDenied
from zkcoord.recipes import Lock, Membership, MultiLock, Semaphore
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise

CREATES = {14, 15}
READ_ONLY = "world:anyone:rda"
NOTHING = "world:anyone:da"

Ask = Callable[[Session], Promise[Any]]

ASKING: dict[str, tuple[str, Ask]] = {
    "lock": ("/place/gpu", lambda s: Lock(s, "gpu", root="/place").acquire_future(10)),
    "permit": (
        "/place/gpu",
        lambda s: Semaphore(s, "gpu", permits=1, root="/place").acquire_future(1, 10),
    ),
    "multilock": (
        "/place/gpu",
        lambda s: MultiLock(s, ["cpu", "gpu"], root="/place").acquire_future(10),
    ),
    "member": ("/place", lambda s: Membership(s, "/place").join_future("gpu", timeout=10)),
}


until = partial(waiting.until, seconds=20.0)


class Place:
    """A folder, a session that comes through a relay, and an operator that does not."""

    def __init__(self, operator: Session, relay: FrameRelay, session: Session, path: str) -> None:
        self.operator = operator
        self.relay = relay
        self.session = session
        self.path = path

    def creates(self) -> int:
        return sum(frame.opcode in CREATES for frame in self.relay.requests())

    def lose(self, acl: str, *, arrives: bool) -> None:
        """The next create's reply, or the create itself, is lost; then the list is this."""
        xids: list[int] = []

        def up(frame: Frame) -> bytes | None:
            if not xids and frame.number and frame.xid > 0 and frame.opcode in CREATES:
                xids.append(frame.xid)
                if not arrives:
                    return drop()
            return frame.body

        def down(frame: Frame) -> bytes | None:
            return drop() if frame.link == 0 and xids == [frame.xid] else frame.body

        def drop() -> None:
            self.operator.nodes.set_acl(self.path, acl)
            self.relay.cut()

        self.relay.up, self.relay.down = up, down

    def empty(self) -> bool:
        return not self.operator.nodes.children(self.path)

    def assert_quiet(self) -> None:
        """Round trips pass, and none of them is a create."""
        before = self.creates()
        for _ in range(20):
            self.session.nodes.exists("/")
        assert self.creates() - before <= 1


@contextmanager
def place(zookeeper: str, path: str) -> Iterator[Place]:
    """The chroot belongs to both, so that paths are the same."""
    below = "/" + zookeeper.partition("/")[2]
    with (
        Session(zookeeper, timeout=20) as operator,
        FrameRelay(zookeeper) as relay,
        Session(relay.address + below, timeout=20) as session,
    ):
        for folder in ("/place", "/place/gpu", "/place/cpu"):
            if path != "/place" or folder == "/place":
                operator.nodes.create(folder)
        yield Place(operator, relay, session, path)


@pytest.mark.parametrize("kind", ASKING)
def test_what_was_made_before_the_refusal_is_found_and_used(zookeeper: str, kind: str) -> None:
    path, ask = ASKING[kind]
    with place(zookeeper, path) as here:
        if kind == "permit":
            ask(here.session).wait().release(timeout=5)  # the limit is stored
        here.lose(READ_ONLY, arrives=True)
        lease = ask(here.session).wait()
        lease.check()
        assert len(here.operator.nodes.children(path)) == 1
        assert lease.token == here.operator.nodes.exists(lease.path).czxid  # type: ignore[union-attr]
        assert lease.release(timeout=5)
        here.assert_quiet()
        assert here.empty()
        assert here.session.ephemeral_bytes == 0


@pytest.mark.parametrize("kind", ASKING)
def test_what_was_not_made_is_refused_and_asked_no_more(zookeeper: str, kind: str) -> None:
    path, ask = ASKING[kind]
    with place(zookeeper, path) as here:
        here.lose(READ_ONLY, arrives=False)
        with pytest.raises(AccessDenied):
            ask(here.session).wait()
        here.assert_quiet()
        assert here.empty()
        until(lambda: here.session.ephemeral_bytes == 0)


@pytest.mark.parametrize("kind", ["lock", "permit", "multilock"])
def test_what_may_not_be_seen_is_deleted_once_it_may(zookeeper: str, kind: str) -> None:
    path, ask = ASKING[kind]
    with place(zookeeper, path) as here:
        here.lose(NOTHING, arrives=True)
        with pytest.raises(AccessDenied):
            ask(here.session).wait()
        here.assert_quiet()
        here.operator.nodes.set_acl(path, "open")
        until(here.empty)
        until(lambda: here.session.ephemeral_bytes == 0)
