"""The lock delay while links drop."""

import pytest

from tests.waiting import until
from zkcoord.errors import NodeMissing
from zkcoord.local import Proxy
from zkcoord.recipes import Lock
from zkcoord.zk import Session


def nodes(session: Session) -> list[str]:
    try:
        return session.nodes.children("/locks/gpu")
    except NodeMissing:
        return []


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_link_that_breaks_after_any_byte_is_no_unclean_end(
    zookeeper: str, direction: str
) -> None:
    host, chroot = zookeeper.split("/")
    with (
        Proxy(host) as proxy,
        Session(zookeeper, timeout=10) as other,
        Session(f"{proxy.address}/{chroot}", timeout=10) as session,
    ):
        lock = Lock(session, "gpu", lock_delay=60)
        lock.acquire(timeout=10).release(timeout=10)
        before = proxy.bytes_down if direction == "down" else proxy.bytes_up
        lock.acquire(timeout=10).release(timeout=10)
        whole = (proxy.bytes_down if direction == "down" else proxy.bytes_up) - before
        cuts = 0
        for count in range(0, whole + 1, max(1, whole // 25)):
            done = proxy.cut_after(count, direction=direction)  # type: ignore[arg-type]
            lease = lock.acquire(timeout=10)
            lease.check()
            lease.release(timeout=10)
            cuts += done.is_set()
            proxy.heal()
            until(lambda: nodes(other) == [])
            assert session.ephemeral_bytes == 0
        assert cuts >= 15


def test_a_request_given_up_in_a_partition_leaves_no_mark(zookeeper: str) -> None:
    """The mark may be on its way when the deadline comes: it goes with the node."""
    host, chroot = zookeeper.split("/")
    with (
        Proxy(host) as proxy,
        Session(zookeeper, timeout=10) as other,
        Session(f"{proxy.address}/{chroot}", timeout=10) as session,
    ):
        lock = Lock(session, "gpu", lock_delay=60)
        lock.acquire(timeout=10).release(timeout=10)
        submit = session.link._connection.submit

        def spy(call: object) -> None:
            submit(call)
            if call.what.startswith("mark"):  # type: ignore[attr-defined]
                proxy.blackhole(up=False, down=True)

        session.link._connection.submit = spy
        future = lock.acquire_future(timeout=1.0)
        until(future.done)
        assert future.exception() is not None
        session.link._connection.submit = submit
        proxy.heal()
        until(lambda: nodes(other) == [] and session.ephemeral_bytes == 0)
