"""The folder of a lock is made by whoever finds it missing; nobody overtakes because of it."""

import threading
from collections.abc import Callable

from frame_relay import Frame, FrameRelay

from zkcoord.recipes import Lock
from zkcoord.zk import Session
from zkcoord.zk.clock import now

CREATE, CREATE_CONTAINER = 15, 19


def comes_true(condition: Callable[[], object], seconds: float) -> bool:
    pause = threading.Event()
    deadline = now() + seconds
    while not condition():
        if now() >= deadline:
            return False
        pause.wait(0.01)
    return True


def test_who_comes_while_the_folder_is_made_stays_behind_who_found_it_missing(
    zookeeper: str,
) -> None:
    opened = threading.Event()

    def hold(frame: Frame) -> bytes:
        """Hold back the answer to the folder's making, and all that comes after it."""
        asked = [f for f in relay.sent if f.number and f.xid == frame.xid]
        if frame.number and asked and asked[0].opcode == CREATE_CONTAINER:
            assert opened.wait(10)
        return frame.body

    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=20) as session:
        root = "/" + zookeeper.split("/")[1]
        relay.down = hold
        first = Lock(session, "gpu", root=root).acquire_future(timeout=15)
        assert comes_true(
            lambda: any(f.opcode == CREATE_CONTAINER for f in relay.requests()), seconds=5
        )
        creates = sum(f.opcode == CREATE for f in relay.requests())
        second = Lock(session, "gpu", root=root).acquire_future(timeout=15)
        comes_true(  # where it could overtake, it does so now
            lambda: sum(f.opcode == CREATE for f in relay.requests()) > creates, seconds=0.3
        )
        opened.set()
        first.wait().check()
        assert not second.done()
        first.result().release()
        second.wait().release()
