"""The lock while networks, servers and processes fail. Servers are real; nothing is mocked."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from frame_relay import FrameRelay
from kazoo.client import KazooClient

from tests.waiting import until
from zkcoord.errors import AcquireTimeout, LeaseLost, NodeMissing, SessionLost
from zkcoord.local import Proxy, Stack
from zkcoord.recipes import Election, Lock, Membership
from zkcoord.zk import Session
from zkcoord.zk.clock import now

PROGRAM = Path(__file__).parent / "programs" / "hold_lock.py"
CREATE, EXISTS, CHILDREN = 15, 3, 8


def queue(session: Session, folder: str = "/locks/gpu") -> list[str]:
    try:
        return session.nodes.children(folder)
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


class Child:
    """A process that runs hold_lock.py."""

    def __init__(self, hosts: str, name: str, timeout: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), hosts, name, str(timeout)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.read() == "asked"

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.read()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def spawn(zookeeper: str) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def start(timeout: float = 2) -> Child:
        children.append(Child(zookeeper, "gpu", timeout))
        return children[-1]

    yield start
    for child in children:
        child.end()


@pytest.mark.parametrize("busy", [True, False])
def test_a_cut_off_holder_knows_that_it_lost_before_another_gets_in(
    zookeeper: str, other: Session, busy: bool
) -> None:
    with behind_a_proxy(zookeeper, timeout=2) as (proxy, session):
        lease = Lock(session, "gpu").acquire(timeout=5)
        lost_at: list[float] = []
        lease.lost.on_set(lambda: lost_at.append(now()))
        future = Lock(other, "gpu").acquire_future(timeout=20)
        granted_at: list[float] = []
        future.on_done(lambda: granted_at.append(now()))
        stop = threading.Event()

        def work() -> None:
            while not stop.wait(0.2):
                session.nodes.exists_future("/")

        thread = threading.Thread(target=work)
        if busy:
            thread.start()
        proxy.blackhole()
        second = future.wait()
        assert lost_at
        assert lost_at[0] < granted_at[0]
        assert second.token > lease.token
        with pytest.raises(LeaseLost, match="session"):
            lease.check()
        with pytest.raises(LeaseLost):
            lease.release()
        stop.set()
        if busy:
            thread.join(5)
        proxy.heal()
        until(lambda: session.connected)
        second.check()
        second.release(timeout=5)
        Lock(session, "gpu").acquire(timeout=5).release(timeout=5)  # afresh, on a new session
        assert queue(other) == []


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_link_that_breaks_after_any_byte_leaves_one_holder_and_no_orphan(
    zookeeper: str, other: Session, direction: str
) -> None:
    with behind_a_proxy(zookeeper, timeout=10) as (proxy, session):
        lock = Lock(session, "gpu")
        lock.acquire(timeout=10).release(timeout=10)
        before = proxy.bytes_down if direction == "down" else proxy.bytes_up
        lock.acquire(timeout=10).release(timeout=10)
        after = proxy.bytes_down if direction == "down" else proxy.bytes_up
        whole, sid = after - before, session.id
        cuts = 0
        for count in range(0, whole + 1, max(1, whole // 40)):
            done = proxy.cut_after(count, direction=direction)  # type: ignore[arg-type]
            lease = lock.acquire(timeout=10)
            lease.check()
            nodes = sorted(queue(other), key=lambda node: node.rpartition(".")[2])
            assert lease.path.endswith(nodes[0])
            _, stat = other.nodes.get(lease.path)
            assert stat.czxid == lease.token
            lease.release(timeout=10)
            cuts += done.is_set()
            proxy.heal()
            until(lambda: queue(other) == [])
            assert session.ephemeral_bytes == 0
        assert cuts >= 30
        assert session.id == sid


def test_an_uncertain_create_is_resolved_by_writing_again(zookeeper: str, other: Session) -> None:
    """The reply to a create is lost: the same request is created again, then listed."""

    def lose_the_reply(frame: object) -> bytes | None:
        asked = [f for f in relay.sent if f.link == 0 and f.number and f.xid == frame.xid]  # type: ignore[attr-defined]
        if frame.link == 0 and asked and asked[0].opcode == CREATE:  # type: ignore[attr-defined]
            relay.cut()
            return None
        return frame.body  # type: ignore[attr-defined,no-any-return]

    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=10) as session:
        chroot = zookeeper.split("/")[1]
        lock = Lock(session, "gpu", root=f"/{chroot}/locks")
        lock.acquire(timeout=5).release(timeout=5)
        relay.sent.clear()
        relay.down = lose_the_reply
        lease = lock.acquire(timeout=5)
        asked = [frame for frame in relay.requests() if frame.link == 1]
        assert [frame.opcode for frame in asked[:2]] == [CREATE, CHILDREN]
        first = next(f for f in relay.requests() if f.link == 0 and f.opcode == CREATE)
        assert first.body[8:] == asked[0].body[8:]  # the same request, so both are known as ours
        until(lambda: len(queue(other)) == 1)  # the second node is gone again
        assert lease.path.endswith(queue(other)[0])
        assert other.nodes.get(lease.path.removeprefix(f"/{chroot}"))[1].czxid == lease.token


def test_a_blip_costs_each_waiter_one_question_and_no_listing(zookeeper: str) -> None:
    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=10) as session:
        root = "/" + zookeeper.split("/")[1]
        lock = Lock(session, "gpu", root=root)
        first = lock.acquire(timeout=5)
        futures = [lock.acquire_future(timeout=60) for _ in range(50)]
        until(lambda: len(session.link.watches) == 50)
        relay.cut()

        def again() -> list[int]:
            return [frame.opcode for frame in relay.requests() if frame.link == 1]

        until(lambda: len(again()) >= 50 and len(session.link.watches) == 50)
        assert again() == [EXISTS] * 50
        first.release()
        for future in futures:
            future.wait().release()


def test_timeouts_hold_in_a_partition_and_nothing_is_left_after_it(
    zookeeper: str, other: Session
) -> None:
    with behind_a_proxy(zookeeper, timeout=6) as (proxy, session):
        held = Lock(session, "held").acquire(timeout=5)
        waiter = Lock(other, "gpu").acquire(timeout=5)
        waiting = Lock(session, "gpu").acquire_future(timeout=1.0)
        until(lambda: len(queue(other)) == 2)
        sid = session.id
        begun = now()
        proxy.blackhole()
        with pytest.raises(AcquireTimeout):
            Lock(session, "gpu").acquire(timeout=0.3)
        with pytest.raises(AcquireTimeout):
            Lock(session, "gpu").acquire(timeout=0)
        assert not held.release(timeout=0.2)
        with pytest.raises(AcquireTimeout):
            waiting.wait()
        cancelled = Lock(session, "gpu").acquire_future()
        assert cancelled.cancel()
        assert now() - begun < 3.5  # 0.3 + at most 1 + 0.2 + what is left of 1.0
        proxy.heal()
        until(lambda: len(queue(other)) == 1 and queue(other, "/locks/held") == [])
        until(lambda: session.connected and session.ephemeral_bytes == 0)
        assert session.id == sid
        assert len(session.link.watches) == 0
        waiter.release()


def test_a_stopped_process_finds_out_before_it_writes(
    zookeeper: str, other: Session, spawn: Callable[..., Child]
) -> None:
    other.nodes.create("/data", b"")
    child = spawn()
    token = int(child.read().split()[1])
    assert child.ask("check") == "done"
    assert child.ask("write") == "done"
    child.send(signal.SIGSTOP)
    lease = Lock(other, "gpu").acquire(timeout=20)
    assert lease.token > token
    child.send(signal.SIGCONT)
    assert child.ask("check") == "lost session"
    assert child.ask("write") in {"NodeMissing", "SessionLost"}
    assert other.nodes.get("/data")[0] == b"child"
    lease.check()


def test_a_process_stopped_for_less_than_the_timeout_keeps_its_lease(
    zookeeper: str, other: Session, spawn: Callable[..., Child]
) -> None:
    child = spawn(timeout=6)
    assert child.read().startswith("held")
    child.send(signal.SIGSTOP)
    threading.Event().wait(1.0)
    child.send(signal.SIGCONT)
    assert child.ask("check") == "done"


def test_a_killed_holder_makes_room_for_the_next(
    zookeeper: str, other: Session, spawn: Callable[..., Child]
) -> None:
    child = spawn()
    assert child.read().startswith("held")
    future = Lock(other, "gpu").acquire_future(timeout=20)
    until(lambda: len(queue(other)) == 2)
    child.send(signal.SIGKILL)
    future.wait().check()


def test_a_killed_waiter_wakes_only_its_successor_and_grants_nothing(
    zookeeper: str, other: Session, spawn: Callable[..., Child]
) -> None:
    first = Lock(other, "gpu").acquire(timeout=5)
    child = spawn()
    until(lambda: len(queue(other)) == 2)
    third = Lock(other, "gpu").acquire_future(timeout=20)
    fourth = Lock(other, "gpu").acquire_future(timeout=20)
    until(lambda: len(queue(other)) == 4)
    child.send(signal.SIGKILL)
    until(lambda: len(queue(other)) == 3)
    other.nodes.sync()
    assert not third.done()
    assert not fourth.done()
    first.release()
    third.wait().release()
    fourth.wait().release()


def test_expiry_ends_every_handle_and_the_new_session_adopts_nothing(
    zookeeper: str, other: Session
) -> None:
    with Session(zookeeper, timeout=10, name="expired") as session:
        lease = Lock(session, "gpu").acquire(timeout=5)
        member = Membership(session, "/members").join("me")
        Lock(other, "second").acquire(timeout=5)
        waiting = Lock(session, "second").acquire_future()
        until(lambda: len(queue(other, "/locks/second")) == 2)
        term = Election(session, "boss").campaign(timeout=5)
        old, lost = session.id, session.lost
        expire(session, zookeeper)
        assert lost.wait(10)
        for handle in (lease, member, term):
            assert handle.lost.wait(1)
            with pytest.raises(LeaseLost):
                handle.check()
        with pytest.raises(SessionLost):
            waiting.wait()
        until(lambda: session.connected and session.id != old)
        again = Lock(session, "gpu").acquire(timeout=5)
        assert again.token > lease.token
        assert again.path != lease.path
        assert Membership(session, "/members").join("me").token > member.token


def expire(session: Session, zookeeper: str) -> None:
    """Close a session from elsewhere, with its id and password."""
    client = session.link._client
    thief = KazooClient(
        zookeeper.split("/", maxsplit=1)[0], client_id=(client._session_id, client._session_passwd)
    )
    thief.start(timeout=15)
    thief.stop()
    thief.close()


def test_a_hundred_timeouts_leave_no_watch_on_the_server(zookeeper: str, other: Session) -> None:
    Lock(other, "gpu").acquire(timeout=5)
    threads = threading.active_count()
    with Session(zookeeper, timeout=10) as session:
        for _ in range(100):
            with pytest.raises(AcquireTimeout):
                Lock(session, "gpu").acquire(timeout=0.01)
        until(lambda: len(queue(other)) == 1 and len(session.link.watches) == 0)
        session.nodes.sync()
        assert "/locks/gpu/" not in four_letters(zookeeper, b"wchp")
        assert session.ephemeral_bytes == 0
        assert not session.link._expectants._calls
    assert threading.active_count() == threads


def four_letters(zookeeper: str, word: bytes) -> str:
    host, port = zookeeper.split("/", maxsplit=1)[0].rsplit(":", 1)
    answer = b""
    with socket.create_connection((host, int(port)), 5) as link:
        link.sendall(word)
        while piece := link.recv(65536):
            answer += piece
    chroot = "/" + zookeeper.split("/")[1]
    return "\n".join(line for line in answer.decode().splitlines() if chroot in line)


def test_a_server_that_restarts_keeps_the_lease(own_stack: Stack) -> None:
    with Session(own_stack.zookeeper, timeout=20) as session:
        lease = Lock(session, "gpu").acquire(timeout=5)
        waiting = Lock(session, "gpu").acquire_future(timeout=60)
        own_stack.zookeepers[0].restart()
        until(lambda: session.connected, seconds=20)
        lease.check()
        lease.release(timeout=10)
        waiting.wait().release(timeout=10)


def test_a_killed_leader_of_an_ensemble_costs_nobody_the_lease(ensemble: Stack) -> None:
    with (
        Session(
            ensemble.zookeeper, timeout=100
        ) as session,  # elections take long on a busy machine
        Session(ensemble.zookeeper, timeout=100) as second,
    ):
        lease = Lock(session, "gpu").acquire(timeout=10)
        future = Lock(second, "gpu").acquire_future(timeout=200)
        leader = next(server for server in ensemble.zookeepers if "leader" in mode(server.address))
        leader.kill()
        session.nodes.sync(timeout=90)
        lease.check()
        lease.release(timeout=90)
        granted = future.wait()
        granted.check()
        assert granted.token > lease.token


def mode(address: str) -> str:
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 5) as link:
        link.sendall(b"srvr")
        return link.recv(65536).decode()
