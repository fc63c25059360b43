"""A session that has much to compute keeps its link: pings go out between the calls of its loop."""

from __future__ import annotations

from tests.faults.frame_relay import FrameRelay
from tests.waiting import until
from zkcoord.recipes import Lock
from zkcoord.zk import Session
from zkcoord.zk.clock import now

PING_XID = -2
CALL_S = 0.002


def spin() -> None:
    """Compute for a moment."""
    end = now() + CALL_S
    while now() < end:
        pass


def test_pings_go_out_while_thousands_of_calls_run(zookeeper: str) -> None:
    address, _, chroot = zookeeper.partition("/")
    with FrameRelay(address) as relay, Session(f"{relay.address}/{chroot}", timeout=4) as session:
        lease = Lock(session, "gpu").acquire(timeout=10)
        begun, left = session.id, [int(1.2 * session.negotiated_timeout / CALL_S)]
        relay.sent.clear()

        def step() -> None:
            spin()
            left[0] -= 1
            if left[0] > 0:
                session.link.loop.post(step)

        session.nodes.exists_future("/").on_done(step)  # where the link's own thread is at it
        until(lambda: left[0] <= 0, seconds=60)
        assert sum(frame.xid == PING_XID for frame in list(relay.sent)) >= 2
        assert session.id == begun
        lease.check()
        lease.release(timeout=10)
