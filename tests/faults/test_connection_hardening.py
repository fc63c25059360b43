"""Each change to kazoo's connection, shown on plain kazoo (the fault is there) and on ours."""

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from frame_relay import Frame, FrameRelay
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import AuthFailedError, ConnectionDropped

from zkcoord.errors import EnsembleUnavailable
from zkcoord.local import Proxy
from zkcoord.zk import Session
from zkcoord.zk.clock import now


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for a condition, with a deadline."""
    assert comes_true(condition, seconds), "the condition did not come true"


def comes_true(condition: Callable[[], object], seconds: float) -> bool:
    pause = threading.Event()
    deadline = now() + seconds
    while not condition():
        if now() >= deadline:
            return False
        pause.wait(0.01)
    return True


@contextmanager
def plain(hosts: str, **options: object) -> Iterator[KazooClient]:
    client = KazooClient(hosts, **options)
    client.start(timeout=15)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def in_background(run: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


class Busy:
    """Keeps asking something, without waiting for answers."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._stop = threading.Event()
        self._thread = in_background(self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            self._ask()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5)


# --- 1. xids ------------------------------------------------------------------------------------


def test_plain_kazoo_gives_out_its_xids_again_after_a_reconnect(zookeeper: str) -> None:
    with FrameRelay(zookeeper) as relay, plain(relay.address, timeout=4) as client:
        for _ in range(3):
            client.exists("/")
        relay.cut()
        until(lambda: relay.sent[-1].link == 1)
        client.retry(client.exists, "/")
        xids = [frame.xid for frame in relay.requests()]
        assert len(set(xids)) < len(xids)


def test_our_xids_never_start_again(zookeeper: str) -> None:
    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=4) as session:
        for _ in range(3):
            session.nodes.exists("/")
        relay.cut()
        until(lambda: relay.sent[-1].link == 1)
        session.nodes.exists("/")
        xids = [frame.xid for frame in relay.requests()]
        assert xids == list(range(1, len(xids) + 1))


def test_our_xids_wrap_from_the_largest_to_one(zookeeper: str) -> None:
    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=4) as session:
        session.link._connection._xid_last = 2**31 - 3
        for _ in range(4):
            session.nodes.exists("/")
        assert [frame.xid for frame in relay.requests()][-4:] == [2**31 - 2, 2**31 - 1, 1, 2]


# --- 2. a busy client in a blackhole ------------------------------------------------------------


def test_plain_kazoo_stays_connected_in_a_blackhole_while_it_is_busy(zookeeper: str) -> None:
    host, chroot = zookeeper.split("/")
    with Proxy(host) as proxy, plain(f"{proxy.address}/{chroot}", timeout=2) as client:
        busy = Busy(lambda: client.exists_async("/"))
        proxy.blackhole()
        assert not comes_true(lambda: client.state != KazooState.CONNECTED, seconds=4)
        busy.stop()
        proxy.heal()


def test_our_link_drops_in_a_blackhole_although_it_is_busy(zookeeper: str) -> None:
    host, chroot = zookeeper.split("/")
    states: list[str] = []
    with Proxy(host) as proxy, Session(f"{proxy.address}/{chroot}", timeout=4) as session:
        session.on_state(states.append)
        busy = Busy(lambda: session.nodes.exists_future("/"))
        proxy.blackhole()
        until(lambda: "lost" in states)
        assert states == ["suspended", "lost"]  # the link first, by its silence
        busy.stop()
        proxy.heal()


def test_our_pings_go_on_under_load(zookeeper: str) -> None:
    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=2) as session:
        busy = Busy(lambda: session.nodes.exists_future("/"))
        until(lambda: sum(frame.xid == -2 for frame in relay.sent if frame.number) >= 2)
        busy.stop()


# --- 3, 6. lost at the deadline, in the partition -----------------------------------------------


def test_plain_kazoo_is_not_lost_before_the_partition_heals(zookeeper: str) -> None:
    host, chroot = zookeeper.split("/")
    with Proxy(host) as proxy, plain(f"{proxy.address}/{chroot}", timeout=2) as client:
        client.create("/mine", ephemeral=True)
        proxy.blackhole()
        with plain(zookeeper, timeout=10) as other:
            until(lambda: not other.exists("/mine"))  # the server gave it up
        assert client.state == KazooState.SUSPENDED
        proxy.heal()
        until(lambda: client.state == KazooState.LOST)


@pytest.mark.parametrize("busy", [True, False])
def test_we_are_lost_in_the_partition_before_the_server_gives_up(
    zookeeper: str, busy: bool
) -> None:
    host, chroot = zookeeper.split("/")
    lost_at: list[float] = []
    with (
        Proxy(host) as proxy,
        Session(zookeeper, timeout=10) as other,
        Session(f"{proxy.address}/{chroot}", timeout=2) as session,
    ):
        session.nodes.create("/mine", ephemeral=True)
        session.lost.on_set(lambda: lost_at.append(now()))
        old = session.id
        work = Busy(lambda: session.nodes.exists_future("/") if busy else None)
        proxy.blackhole()
        deadline = session.valid_until
        until(lambda: other.nodes.exists("/mine") is None)
        gone_at = now()
        assert lost_at
        assert lost_at[0] < gone_at
        assert session.valid_until - deadline < 2  # only what was on its way moved it on
        work.stop()
        with pytest.raises(EnsembleUnavailable):  # and not before the next link stands
            session.nodes.create("/mine", ephemeral=True, timeout=0.2)
        proxy.heal()
        until(lambda: session.connected)
        assert session.id != old
        assert not session.lost.is_set()
        session.nodes.create("/mine", ephemeral=True)


def test_one_way_is_enough_for_a_partition(zookeeper: str) -> None:
    """Requests arrive and answers do not: the server goes on believing, we must not."""
    host, chroot = zookeeper.split("/")
    with Proxy(host) as proxy, Session(f"{proxy.address}/{chroot}", timeout=2) as session:
        lost = session.lost
        proxy.blackhole(up=False, down=True)
        assert lost.wait(4)
        proxy.heal()
        until(lambda: session.connected)


# --- 4. the negotiated timeout ------------------------------------------------------------------


def test_plain_kazoo_keeps_the_timeout_it_asked_for(zookeeper: str) -> None:
    with plain(zookeeper, timeout=3600) as client:
        assert client._session_timeout == 3_600_000


def test_we_know_what_the_server_granted(zookeeper: str) -> None:
    with Session(zookeeper, timeout=3600) as session:
        assert session.negotiated_timeout == 120


# --- 5. another session, silently ---------------------------------------------------------------


def forget_the_session(frame: Frame) -> bytes:
    """Turn a reconnect's handshake into that of a new client."""
    if frame.number == 0 and frame.link > 0:
        return frame.body[:16] + bytes(8) + struct.pack("!i", 16) + bytes(16) + frame.body[-1:]
    return frame.body


def test_plain_kazoo_does_not_notice_another_session(zookeeper: str) -> None:
    with (
        FrameRelay(zookeeper, up=forget_the_session) as relay,
        plain(relay.address, timeout=4) as client,
    ):
        states: list[str] = []
        client.add_listener(states.append)
        old = client.client_id[0]
        relay.cut()
        until(lambda: client.client_id and client.client_id[0] != old)
        assert KazooState.LOST not in states


def test_we_take_another_session_for_the_end_of_ours(zookeeper: str) -> None:
    with (
        FrameRelay(zookeeper, up=forget_the_session) as relay,
        Session(relay.address, timeout=4) as session,
    ):
        epoch = session.link.epoch
        assert epoch is not None
        relay.cut()
        assert epoch.lost.wait(4)
        until(lambda: session.id != epoch.id)
        assert "another session" in epoch.reason


# --- 7. authentication --------------------------------------------------------------------------


class HoldAuthentication:
    """Holds the answers to authentication back until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.came = threading.Event()

    def __call__(self, frame: Frame) -> bytes:
        if frame.number and frame.xid == -4:
            self.came.set()
            assert self.open.wait(10)
        return frame.body


def test_plain_kazoo_is_connected_before_it_is_authenticated(zookeeper: str) -> None:
    hold = HoldAuthentication()
    with FrameRelay(zookeeper, down=hold) as relay:
        client = KazooClient(relay.address, timeout=10, auth_data=[("digest", "me:secret")])
        client.start_async()
        assert hold.came.wait(10)
        assert client.connected
        hold.open.set()
        client.stop()
        client.close()


def test_we_are_connected_only_once_authenticated(zookeeper: str) -> None:
    hold = HoldAuthentication()
    with FrameRelay(zookeeper, down=hold) as relay:
        session = Session(relay.address, timeout=10)
        session.link._client.auth_data.add(("digest", "me:secret"))
        started = session.start_future()
        assert hold.came.wait(10)
        assert not session.connected
        assert not started.done()
        hold.open.set()
        started.wait()
        session.close()


def drop_once(error: Exception) -> Callable[..., None]:
    """SASL during which the server drops the link, the first time."""
    tried: list[object] = []

    def authenticate(host: str, timeout: float) -> None:
        tried.append(host)
        if len(tried) == 1:
            raise error

    return authenticate


def test_plain_kazoo_ends_for_ever_when_a_link_drops_during_sasl(zookeeper: str) -> None:
    client = KazooClient(zookeeper.split("/", maxsplit=1)[0], timeout=4)
    client._connection.sasl_options = {}
    client._connection._authenticate_with_sasl = drop_once(AuthFailedError("gone"))
    client.start_async()
    until(client._connection.connection_stopped.is_set)
    assert not client.connected
    client.stop()
    client.close()


def test_we_try_again_when_a_link_drops_during_sasl(zookeeper: str) -> None:
    session = Session(zookeeper, timeout=4)
    session.link._connection.sasl_options = {}
    session.link._connection._authenticate_with_sasl = drop_once(ConnectionDropped("gone"))
    session.start()
    assert session.connected
    session.close()


# --- and: asking never blocks -------------------------------------------------------------------


def test_plain_kazoo_blocks_who_asks_without_a_link(zookeeper: str) -> None:
    with Proxy(zookeeper.split("/", maxsplit=1)[0]) as proxy:
        client = KazooClient(proxy.address, timeout=4)
        client.start(timeout=15)
        proxy.refuse()
        proxy.cut()
        until(lambda: client.state == KazooState.SUSPENDED)
        asking = in_background(lambda: [client.exists_async("/") for _ in range(5000)])
        asking.join(1.5)
        assert asking.is_alive()
        proxy.heal()
        asking.join(10)
        client.stop()
        client.close()


def test_asking_us_without_a_link_does_not_block_and_is_answered_later(zookeeper: str) -> None:
    with (
        Proxy(zookeeper.split("/", maxsplit=1)[0]) as proxy,
        Session(proxy.address, timeout=10) as session,
    ):
        proxy.refuse()
        proxy.cut()
        until(lambda: not session.connected)
        answers: list[object] = []
        asking = in_background(
            lambda: answers.extend(session.nodes.exists_future("/") for _ in range(5000))
        )
        asking.join(5)
        assert not asking.is_alive()
        proxy.heal()
        until(lambda: all(answer.done() for answer in answers))  # type: ignore[attr-defined]
