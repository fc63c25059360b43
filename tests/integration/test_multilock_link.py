"""Several locks at once while the link drops at every point. The server is real."""

from collections.abc import Callable
from functools import partial

from tests import waiting
from tests.faults.frame_relay import Frame, FrameRelay
from zkcoord.errors import NodeMissing
from zkcoord.recipes import MultiLock
from zkcoord.zk import Session
from zkcoord.zk.requests import Multi

NAMES = ("a", "b", "c")


until = partial(waiting.until, seconds=20.0)


def queue(session: Session, name: str, root: str = "/locks") -> list[str]:
    try:
        return session.nodes.children(f"{root}/{name}")
    except NodeMissing:
        return []


def lengths(session: Session, names: str = "abc") -> list[int]:
    return [len(queue(session, name)) for name in names]


def test_a_lost_reply_is_resolved_by_writing_again(zookeeper: str, session: Session) -> None:
    """Both transactions went through: the first one's nodes count, the second one's go."""
    xids: list[int] = []

    def note(frame: Frame) -> bytes:
        if frame.number and frame.opcode == Multi.opcode:
            xids.append(frame.xid)
        return frame.body

    def lose(frame: Frame) -> bytes | None:
        if frame.link == 0 and xids[:1] == [frame.xid]:
            relay.cut()
            return None
        return frame.body

    chroot = zookeeper.partition("/")[2]
    root = f"/{chroot}/locks"
    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=10) as cut_off:
        locks = MultiLock(cut_off, NAMES, root=root)
        locks.acquire(timeout=5).release(timeout=5)
        relay.up, relay.down = note, lose
        lease = locks.acquire(timeout=5)
        assert len(xids) == 2
        until(lambda: lengths(session) == [1, 1, 1])
        paths = [path.removeprefix(f"/{chroot}") for path in lease.paths]
        assert {session.nodes.get(path)[1].czxid for path in paths} == {lease.token}
        lease.release(timeout=5)
        until(lambda: not any(lengths(session)) and cut_off.ephemeral_bytes == 0)


def test_a_link_that_drops_at_any_frame_costs_no_lock_and_leaves_nothing(
    zookeeper: str, session: Session
) -> None:
    """Every frame of acquire and release in turn, on its way up and on its way down."""
    chroot = zookeeper.partition("/")[2]
    left = [0]
    ways = {"up": 0, "down": 0}

    def cutter(way: str) -> Callable[[Frame], bytes | None]:
        def change(frame: Frame) -> bytes | None:
            if frame.number and left[0] and ways[way]:
                left[0] -= 1
                if left[0] == 0:
                    relay.cut()
                    return None
            return frame.body

        return change

    cuts = 0
    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=10) as cut_off:
        locks = MultiLock(cut_off, NAMES, root=f"/{chroot}/locks")
        locks.acquire(timeout=5).release(timeout=5)
        relay.up, relay.down = cutter("up"), cutter("down")
        for way in ways:
            for frame in range(1, 10):
                ways.update(up=way == "up", down=way == "down")
                left[0] = frame
                with locks.hold(timeout=10) as lease:
                    lease.check()
                    until(lambda: lengths(session) == [1, 1, 1])
                until(lambda: not any(lengths(session)) and cut_off.ephemeral_bytes == 0)
                cuts += left[0] == 0
                left[0] = 0
    assert cuts >= 10  # the frames of one acquire and release, without those of its watches


def test_a_release_whose_reply_is_lost_is_repeated(zookeeper: str, session: Session) -> None:
    chroot = zookeeper.partition("/")[2]
    cut: list[int] = []

    def lose(frame: Frame) -> bytes | None:
        if not cut and frame.number and frame.opcode == Multi.opcode:
            cut.append(frame.xid)
        return frame.body

    def drop(frame: Frame) -> bytes | None:
        if cut == [frame.xid]:
            relay.cut()
            return None
        return frame.body

    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=10) as cut_off:
        lease = MultiLock(cut_off, NAMES, root=f"/{chroot}/locks").acquire(timeout=5)
        relay.up, relay.down = lose, drop
        assert lease.release(timeout=10)
        assert lengths(session) == [0, 0, 0]
        assert cut_off.ephemeral_bytes == 0
