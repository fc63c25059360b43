"""Semaphores and pools while networks and sessions fail. Servers are real; nothing is mocked."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from frame_relay import Frame, FrameRelay
from kazoo.client import KazooClient

from tests.waiting import until
from zkcoord.errors import AcquireTimeout, LeaseLost, NodeMissing, SessionLost
from zkcoord.local import Proxy, Stack, probe
from zkcoord.local.ports import HOST
from zkcoord.recipes import Pool, Semaphore
from zkcoord.zk import Session
from zkcoord.zk.clock import now

FOLDER = "/semaphores/jobs"
TAKEN = "/pools/gpus/slots"
EXISTS, GET, CREATE, MULTI = 3, 4, 15, 14


def nodes(session: Session, folder: str = FOLDER) -> list[str]:
    """The children, without the folder of slots."""
    try:
        return [name for name in session.nodes.children(folder) if name != "slots"]
    except NodeMissing:
        return []


@contextmanager
def behind_a_proxy(zookeeper: str, timeout: float) -> Iterator[tuple[Proxy, Session]]:
    host, chroot = zookeeper.split("/")
    with (
        Proxy(host) as proxy,
        Session(f"{proxy.address}/{chroot}", timeout=timeout, name="cut off") as session,
    ):
        yield proxy, session
        proxy.heal()


@pytest.fixture
def other(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, timeout=10, name="other") as session:
        yield session


def test_a_cut_off_holder_knows_that_it_lost_before_another_gets_in(
    zookeeper: str, other: Session
) -> None:
    with behind_a_proxy(zookeeper, timeout=2) as (proxy, session):
        lost_at: list[float] = []
        granted_at: list[float] = []
        lease = Semaphore(session, "jobs", 2).acquire(weight=2, timeout=5)
        slot = Pool(session, "gpus", ["gpu-0"]).acquire(timeout=5)
        for held in (lease, slot):
            held.lost.on_set(lambda: lost_at.append(now()))
        futures = [
            Semaphore(other, "jobs", 2).acquire_future(timeout=20),
            Pool(other, "gpus", ["gpu-0"]).acquire_future(timeout=20),
        ]
        for future in futures:
            future.on_done(lambda: granted_at.append(now()))
        proxy.blackhole()
        later = [future.wait() for future in futures]
        assert max(lost_at) < min(granted_at)
        assert len(lost_at) == 2
        for before, after in zip((lease, slot), later, strict=True):
            assert after.token > before.token
            with pytest.raises(LeaseLost):
                before.check()
            after.release()


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_link_that_breaks_after_any_byte_leaves_one_node_for_each_holder(
    zookeeper: str, other: Session, direction: str
) -> None:
    with behind_a_proxy(zookeeper, timeout=10) as (proxy, session):
        semaphore = Semaphore(session, "jobs", 2)

        def whole() -> int:
            before = proxy.bytes_down if direction == "down" else proxy.bytes_up
            semaphore.acquire(timeout=10).release(timeout=10)
            return (proxy.bytes_down if direction == "down" else proxy.bytes_up) - before

        whole()
        size, sid, cuts = whole(), session.id, 0
        for count in range(0, size + 1, max(1, size // 25)):
            done = proxy.cut_after(count, direction=direction)  # type: ignore[arg-type]
            lease = semaphore.acquire(timeout=10)
            lease.check()
            until(lambda: len(nodes(other)) == 1)
            assert other.nodes.get(lease.path)[1].czxid == lease.token
            lease.release(timeout=10)
            cuts += done.is_set()
            proxy.heal()
            until(lambda: nodes(other) == [])
            assert session.ephemeral_bytes == 0
        assert cuts >= 15
        assert session.id == sid


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_link_that_breaks_after_any_byte_gives_one_slot(
    zookeeper: str, other: Session, direction: str
) -> None:
    with behind_a_proxy(zookeeper, timeout=10) as (proxy, session):
        pool = Pool(session, "gpus", ["gpu-0", "gpu-1"])

        def whole() -> int:
            before = proxy.bytes_down if direction == "down" else proxy.bytes_up
            pool.acquire(timeout=10).release(timeout=10)
            return (proxy.bytes_down if direction == "down" else proxy.bytes_up) - before

        whole()
        size, cuts = whole(), 0
        for count in range(0, size + 1, max(1, size // 25)):
            done = proxy.cut_after(count, direction=direction)  # type: ignore[arg-type]
            lease = pool.acquire(timeout=10)
            lease.check()
            until(lambda lease=lease: nodes(other, TAKEN) == [lease.slot])
            assert other.nodes.get(lease.path)[1].czxid == lease.token
            lease.release(timeout=10)
            cuts += done.is_set()
            proxy.heal()
            until(lambda: nodes(other, TAKEN) == [] and nodes(other, "/pools/gpus") == [])
            assert session.ephemeral_bytes == 0
        assert cuts >= 15


def test_a_claim_whose_reply_is_lost_is_known_by_its_value(zookeeper: str, other: Session) -> None:
    """The transaction is sent again, fails, and what stands there is known to be ours."""
    lost: list[int] = []

    def lose_the_reply(frame: Frame) -> bytes | None:
        asked = [f for f in relay.sent if f.link == 0 and f.number and f.xid == frame.xid]
        if frame.link == 0 and asked and asked[0].opcode == MULTI:
            lost.append(frame.xid)
            relay.cut()
            return None
        return frame.body

    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=10) as session:
        chroot = zookeeper.split("/")[1]
        pool = Pool(session, "gpus", ["gpu-0", "gpu-1"], root=f"/{chroot}/pools")
        pool.acquire(timeout=5).release(timeout=5)
        relay.down = lose_the_reply
        lease = pool.acquire(timeout=5)
        assert lost
        assert [f.opcode for f in relay.requests() if f.link == 1] == [MULTI, GET]
        assert nodes(other, TAKEN) == [lease.slot]
        assert nodes(other, "/pools/gpus") == []
        assert other.nodes.get(f"{TAKEN}/{lease.slot}")[1].czxid == lease.token


def test_a_blip_costs_a_waiter_one_question_and_the_first_one_for_each_holder(
    zookeeper: str,
) -> None:
    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=10) as session:
        root = "/" + zookeeper.split("/")[1]
        semaphore = Semaphore(session, "jobs", 2, root=root)
        held = [semaphore.acquire(timeout=5) for _ in range(2)]
        futures = [semaphore.acquire_future(timeout=60) for _ in range(30)]
        until(lambda: len(session.link.watches) == 32)
        relay.cut()

        def again() -> list[int]:
            return [frame.opcode for frame in relay.requests() if frame.link == 1]

        until(lambda: len(again()) >= 32 and len(session.link.watches) == 32)
        assert sorted(again()) == [EXISTS] * 2 + [GET] * 30
        for lease in held:
            lease.release()
        for future in futures:
            future.wait().release()


def test_timeouts_hold_in_a_partition_and_nothing_is_left_after_it(
    zookeeper: str, other: Session
) -> None:
    with behind_a_proxy(zookeeper, timeout=6) as (proxy, session):
        semaphore, pool = Semaphore(session, "jobs", 1), Pool(session, "gpus", ["gpu-0"])
        kept = [Semaphore(other, "jobs", 1).acquire(timeout=5)]
        kept.append(Pool(other, "gpus", ["gpu-0"]).acquire(timeout=5))  # type: ignore[arg-type]
        waiting = [semaphore.acquire_future(timeout=1.0), pool.acquire_future(timeout=1.0)]
        until(lambda: len(nodes(other)) == 2 and len(nodes(other, "/pools/gpus")) == 1)
        begun = now()
        proxy.blackhole()
        for ask in (semaphore, pool):
            for timeout in (0.3, 0):
                with pytest.raises(AcquireTimeout):
                    ask.acquire(timeout=timeout)  # type: ignore[attr-defined]
        for future in waiting:
            with pytest.raises(AcquireTimeout):
                future.wait()
        assert semaphore.acquire_future().cancel()
        assert pool.acquire_future().cancel()
        assert now() - begun < 5
        proxy.heal()
        until(lambda: len(nodes(other)) == 1 and nodes(other, "/pools/gpus") == [])
        until(lambda: session.connected and session.ephemeral_bytes == 0)
        assert len(session.link.watches) == 0
        for lease in kept:
            lease.release()


def test_a_session_that_is_ended_from_elsewhere_grants_its_own_waiter_nothing(
    zookeeper: str, other: Session
) -> None:
    """Its holder goes, which the waiter watches, and in the same instant the waiter's node."""
    for _ in range(5):
        with Session(zookeeper, timeout=10, name="ended") as session:
            semaphore = Semaphore(session, "jobs", 1)
            lease = semaphore.acquire(timeout=5)
            waiting = semaphore.acquire_future(timeout=20)
            until(lambda session=session: len(session.link.watches) == 2)
            behind = Semaphore(other, "jobs", 1).acquire_future(timeout=20)
            until(lambda: len(nodes(other)) == 3)
            expire(session, zookeeper)
            with pytest.raises((SessionLost, LeaseLost)):
                waiting.wait()
            with pytest.raises(LeaseLost):
                lease.check()
            behind.wait().release(timeout=5)


def expire(session: Session, zookeeper: str) -> None:
    """Close a session from elsewhere, with its id and password."""
    client = session.link._client
    thief = KazooClient(
        zookeeper.split("/", maxsplit=1)[0], client_id=(client._session_id, client._session_passwd)
    )
    lost = session.lost
    thief.start(timeout=15)
    thief.stop()
    thief.close()
    assert lost.wait(10)


def test_a_killed_leader_of_an_ensemble_costs_nobody_a_permit_or_a_slot(ensemble: Stack) -> None:
    with (
        Session(
            ensemble.zookeeper, timeout=100
        ) as session,  # elections take long on a busy machine
        Session(ensemble.zookeeper, timeout=100) as second,
    ):
        lease = Semaphore(session, "jobs", 1).acquire(timeout=10)
        slot = Pool(session, "gpus", ["gpu-0"]).acquire(timeout=10)
        futures = [
            Semaphore(second, "jobs", 1).acquire_future(timeout=200),
            Pool(second, "gpus", ["gpu-0"]).acquire_future(timeout=200),
        ]
        until(lambda: len(second.link.watches) == 4)
        modes = {one: probe.zookeeper_mode(HOST, one.port) for one in ensemble.zookeepers}
        next(one for one, mode in modes.items() if mode == "leader").kill()
        session.nodes.sync(timeout=90)
        for held, future in zip((lease, slot), futures, strict=True):
            held.check()
            held.release(timeout=90)
            granted = future.wait()
            granted.check()
            assert granted.token > held.token
