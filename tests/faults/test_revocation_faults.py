"""Revoking and breaking while links drop."""

import pytest
from frame_relay import FrameRelay

from tests.waiting import until
from zkcoord.recipes import Lock, broken_locks
from zkcoord.recipes.breaking import break_lock
from zkcoord.recipes.revocation import revoke
from zkcoord.zk import Session

MULTI, SET_DATA = 14, 5


@pytest.mark.parametrize("reply_only", [True, False])
@pytest.mark.parametrize("opcode", [MULTI, SET_DATA])
def test_a_lost_reply_does_not_lose_or_double_what_was_done(
    zookeeper: str, opcode: int, reply_only: bool
) -> None:
    cut: list[int] = []

    def lose_the_reply(frame: object) -> bytes | None:
        asked = [f for f in relay.sent if f.link == 0 and f.number and f.xid == frame.xid]  # type: ignore[attr-defined]
        if frame.link == 0 and asked and asked[0].opcode == opcode:  # type: ignore[attr-defined]
            cut.append(1)
            relay.cut()
            return None
        return frame.body  # type: ignore[attr-defined,no-any-return]

    def lose_the_request(frame: object) -> bytes | None:
        if frame.link == 0 and frame.number and frame.opcode == opcode:  # type: ignore[attr-defined]
            cut.append(1)
            relay.cut()
            return None
        return frame.body  # type: ignore[attr-defined,no-any-return]

    chroot = "/" + zookeeper.split("/")[1]
    root = f"{chroot}/locks"
    heard: list[str] = []
    with (
        FrameRelay(zookeeper) as relay,
        Session(zookeeper, timeout=10) as holder,
        Session(relay.address, timeout=10) as operator,
    ):
        lease = Lock(holder, "gpu").acquire(timeout=5, on_revoke=lambda r: heard.append(r.reason))
        waiter = Lock(holder, "gpu").acquire_future(timeout=20)
        if reply_only:
            relay.down = lose_the_reply
        else:
            relay.up = lose_the_request
        asked = revoke(operator, "gpu", "please", root=root)
        assert [one.token for one in asked] == [lease.token]
        until(lambda: heard == ["please"])
        before = len(broken_locks(operator, limit=1000))
        break_lock(operator, "gpu", lease.token, "stuck", root=root)
        assert cut
        assert lease.lost.wait(5)
        second = waiter.wait()
        second.check()
        assert len(broken_locks(operator, limit=1000)) == before + 1
        second.release(timeout=5)
    assert heard == ["please"]


def test_a_holder_hears_what_was_said_while_its_link_was_down(zookeeper: str) -> None:
    heard: list[str] = []
    with (
        FrameRelay(zookeeper) as relay,
        Session(zookeeper, timeout=10) as other,
        Session(relay.address, timeout=10) as holder,
    ):
        root = "/" + zookeeper.split("/")[1] + "/locks"
        lock = Lock(holder, "gpu", root=root)
        lease = lock.acquire(timeout=5, on_revoke=lambda r: heard.append(r.reason))
        until(lambda: len(holder.link.watches) == 1)
        relay.cut()
        revoke(other, "gpu", "please")
        until(lambda: heard == ["please"])
        relay.cut()
        break_lock(other, "gpu", lease.token, "gone")
        assert lease.lost.wait(10)
