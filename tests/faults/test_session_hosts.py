"""Hosts that are dead, frozen, taken off the list, observers, or without a quorum."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from frame_relay import Frame, FrameRelay
from special_stack import SpecialStack, with_observer

from tests import waiting
from tests.integration.recipe_uses import WRITING
from zkcoord import (
    AcquireTimeout,
    ConfigError,
    EnsembleUnavailable,
    Lock,
    ReadOnlyServer,
    Session,
    SessionConfig,
    WaitTimeout,
)
from zkcoord.local.ports import HOST
from zkcoord.zk import hosts
from zkcoord.zk.hosts import Servers
from zkcoord.zk.requests import GetData

until = partial(waiting.until, seconds=60.0)


@pytest.fixture
def as_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts are tried in the order of the list."""
    monkeypatch.setattr(hosts.random, "shuffle", lambda _: None)


@pytest.fixture
def frozen() -> Iterator[list[str]]:
    """Two servers that take a connection and never say a word."""
    listeners = [socket.create_server((HOST, 0)) for _ in range(2)]
    yield [f"{HOST}:{listener.getsockname()[1]}" for listener in listeners]
    for listener in listeners:
        listener.close()


@pytest.fixture(scope="module")
def trio() -> Iterator[SpecialStack]:
    with with_observer() as stack:
        yield stack


# --- the order and the time for each ----------------------------------------------------------


def test_a_round_over_dead_hosts_takes_a_third_of_the_timeout_and_the_next_one_more() -> None:
    servers = Servers([(HOST, port) for port in (1, 2, 3)], 9.0)

    def budgets() -> list[float]:
        return [server.budget for _, server in servers.round()]

    assert budgets() == [1.0, 1.0, 1.0]
    servers.in_vain()
    assert budgets() == [2.0, 2.0, 2.0]
    servers.in_vain()
    servers.in_vain()
    assert budgets() == [3.0, 3.0, 3.0]  # never more than that third
    servers.answered(18.0)
    assert budgets() == [2.0, 2.0, 2.0]
    servers.answered(3600.0)
    assert sum(budgets()) == pytest.approx(10.0)
    servers.replace([(HOST, port) for port in range(1, 101)])
    servers.answered(3.0)
    assert set(budgets()) == {0.2}  # enough for one round trip, however many they are


def test_the_addresses_of_one_host_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (f"10.0.0.{number}", port)) for number in (1, 2, 3, 3)]

    monkeypatch.setattr(hosts.socket, "getaddrinfo", resolve)
    servers = Servers([("zk.example.org", 1), ("other.example.org", 2)], 18.0)
    tried = [server for _, server in servers.round()]
    assert [server.address[0] for server in tried] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"] * 2
    assert {server.budget for server in tried} == {1.0}


def test_the_host_tried_last_comes_last_in_the_next_round() -> None:
    servers = Servers([(HOST, port) for port in (1, 2, 3, 4)], 9.0)
    for _ in range(20):
        tried = [host for host, _ in servers.round()]
        host, _ = next(servers.round())  # a link to it stood, and broke
        assert host != tried[-1]
        assert [host for host, _ in servers.round()][-1] == host


def test_frozen_hosts_in_front_cost_no_more_than_their_share(
    zookeeper: str, frozen: list[str], as_listed: None
) -> None:
    with Session(",".join([*frozen, zookeeper]), timeout=9) as session:
        started = Session(",".join([*frozen, zookeeper]), timeout=9)
        started.start(timeout=4)  # a third, and some air; both hosts in full would take six
        assert started.nodes.exists("/") is not None
        assert session.connected
        started.close()


def test_names_that_cannot_be_resolved_do_not_stand_in_the_way(zookeeper: str) -> None:
    with Session(f"nowhere.invalid:2181,{zookeeper}", timeout=6) as session:
        assert session.connected
    with pytest.raises(EnsembleUnavailable, match=r"1\.5 s: nowhere\.invalid: "):
        Session("nowhere.invalid:2181", timeout=6).start(timeout=1.5)


# --- a list that changes ----------------------------------------------------------------------


def test_a_session_moves_when_its_host_is_taken_off_the_list(trio: SpecialStack) -> None:
    one, two, three = (server.address for server in trio.zookeepers)
    states: list[str] = []
    with Session(f"{one}/moves", timeout=10) as session:
        session.on_state(states.append)
        lease = Lock(session, "l").acquire(5)
        old = session.id
        session.set_hosts(f"{two},{one}")
        session.nodes.sync()
        assert states == []  # its host is still listed
        session.set_hosts(f"{two},{three}/moves")
        until(lambda: states == ["suspended", "connected"])
        assert session.id == old
        assert session.hosts == f"{two},{three}/moves"
        lease.check()
        assert session.nodes.exists(lease.path) is not None
        lease.release(5)


def test_requests_on_their_way_are_answered_before_the_session_moves(trio: SpecialStack) -> None:
    one, two, _ = (server.address for server in trio.zookeepers)
    with Session(f"{one}/busy", timeout=10) as session:
        writes = [session.nodes.create_future(f"/n{number}") for number in range(500)]
        session.set_hosts(two)
        assert len({write.wait().path for write in writes}) == 500


def test_nothing_more_is_asked_of_a_host_that_is_taken_off_the_list(trio: SpecialStack) -> None:
    """Or a session that is never idle would never move."""
    one, two, _ = (server.address for server in trio.zookeepers)
    answered = threading.Event()

    def hold_back(frame: Frame) -> bytes:
        assert answered.wait(20)
        return frame.body

    with FrameRelay(one) as relay, Session(f"{relay.address}/left", timeout=10) as session:
        relay.down = hold_back
        before = len(relay.requests())
        on_its_way = session.nodes.exists_future("/")
        until(lambda: len(relay.requests()) > before)
        session.set_hosts(two)
        later = session.nodes.get_future("/")
        until(lambda: not session.link._connection._outbox._rung)
        answered.set()
        assert on_its_way.wait() is not None
        assert later.wait()[0] == b""
        assert session.hosts == f"{two}/left"
        assert GetData.opcode not in {frame.opcode for frame in relay.requests()}


def test_a_session_that_reaches_nobody_is_helped_by_other_hosts(
    trio: SpecialStack, frozen: list[str]
) -> None:
    session = Session(frozen[0] + "/helped", timeout=9)
    started = session.start_future(timeout=20)
    session.set_hosts(trio.zookeepers[0].address)
    started.wait()
    assert session.nodes.exists("/") is not None
    session.close()


def test_another_root_and_hosts_that_cannot_work_are_refused(trio: SpecialStack) -> None:
    with Session(trio.zookeeper + "/here", timeout=10) as session:
        for wrong in (f"{HOST}:1/there", "", "a b:1", f"{HOST}:99999"):
            with pytest.raises(ConfigError):
                session.set_hosts(wrong)
        assert session.hosts == trio.zookeeper + "/here"
        assert session.connected


# --- observers, frozen servers, servers without a quorum ---------------------------------------


def test_an_observer_serves_and_when_it_freezes_the_session_moves(trio: SpecialStack) -> None:
    observer = trio.zookeepers[2]
    with Session(f"{observer.address}/seen", timeout=9) as session:
        lease = Lock(session, "l").acquire(5)
        old = session.id
        session.set_hosts(trio.zookeeper)
        observer.pause()
        try:
            until(lambda: not session.connected)
            until(lambda: session.connected)
            assert session.id == old
            lease.check()
        finally:
            observer.resume()
        lease.release(5)


def test_a_server_without_a_quorum_is_not_shown_our_session(zookeeper: str) -> None:
    """It would refuse every session but its own. What is asked for is in the first frame."""

    def held_back(frame: Frame) -> bytes | None:
        with_quorum = frame.number == 0 and not frame.body[-1]
        if gone and with_quorum:
            relay.cut()
            return None
        return frame.body

    gone: list[bool] = []
    config = SessionConfig(timeout_s=10, read_only=True)
    with FrameRelay(zookeeper, up=held_back) as relay, Session(relay.address, config=config) as us:
        ours = us.id
        gone.append(True)
        relay.cut()

        def greetings(*, read_only: bool) -> list[tuple[int, bytes]]:
            """Session and password of those that were sent since."""
            first = [f.body for f in relay.sent if f.number == 0 and f.link > 0]
            return [
                (*struct.unpack_from("!q", body, 16), body[28:44])
                for body in first
                if body[-1] == read_only
            ]

        until(lambda: greetings(read_only=True) and greetings(read_only=False))
        assert set(greetings(read_only=True)) == {(0, bytes(16))}
        assert {session for session, _ in greetings(read_only=False)} == {ours}
        gone.clear()
        until(lambda: us.connected)
        assert us.id == ours


def test_a_server_without_a_quorum_is_read_only_when_asked_for(trio: SpecialStack) -> None:
    left, right, observer = trio.zookeepers
    root = trio.zookeeper + "/calm"
    states: list[str] = []
    config = SessionConfig(timeout_s=6, read_only=True)
    with Session(root, config=config) as session:
        session.on_state(states.append)
        session.nodes.create("/a", b"1")
        lease = Lock(session, "l").acquire(5)
        left.extra_lines = {**left.extra_lines, "localSessionsEnabled": "true"}
        left.restart()
        observer.kill()
        right.kill()
        until(lambda: session.read_only)
        assert session.connected
        assert session.nodes.get("/a", timeout=20)[0] == b"1"
        with pytest.raises(ReadOnlyServer, match="set /a"):
            session.nodes.set("/a", b"2")
        assert lease.lost.wait(10)  # it keeps nothing alive
        with pytest.raises((EnsembleUnavailable, TimeoutError)):
            Lock(session, "l").acquire(0.3)
        for use in WRITING.values():
            with pytest.raises((EnsembleUnavailable, AcquireTimeout, WaitTimeout)):
                use(session, "l", "/calm-place", 0.1).wait()
        until(lambda: states.count("read_only") > 1)  # it looks for a quorum now and then
        until(lambda: session.read_only)
        assert session.nodes.get("/a", timeout=20)[0] == b"1"
        with pytest.raises(EnsembleUnavailable):
            Session(left.address, timeout=4).start(timeout=1)
        with Session(left.address + "/calm", config=config) as late:
            assert late.read_only
            assert late.id == 0
        right.start()
        until(lambda: states[-1] == "connected", seconds=90)
        assert not session.read_only
        assert session.nodes.set("/a", b"2").version == 1
        Lock(session, "l").acquire(10).release(5)
        assert session.nodes.children("/locks/l") == []
        assert session.nodes.exists("/calm-place") is None
        assert session.ephemeral_bytes == 0
