"""A single request is written on the thread that asks, when that changes no order. No server."""

import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest
from kazoo.client import KazooClient

from zkcoord.config import SessionConfig
from zkcoord.zk.call import Call
from zkcoord.zk.connection import HardenedConnection, QuietHandler
from zkcoord.zk.hosts import read_hosts
from zkcoord.zk.requests import Exists

SESSION = 7


class Standing(HardenedConnection):
    """A connection whose thread is parked, over a pair of sockets."""

    def __init__(self, link: socket.socket) -> None:
        client = KazooClient(handler=QuietHandler())
        client._stopped.clear()
        client._session_id = SESSION
        servers, _ = read_hosts("127.0.0.1:1")
        super().__init__(client, cast("Any", None), SessionConfig(), hosts=servers)
        self._host = servers[0]
        self._socket = link
        self._parked = True

    @property
    def waiting(self) -> int:
        return len(self._outbox)


@pytest.fixture
def ends() -> Iterator[tuple[Standing, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield Standing(ours), theirs


def call(path: str = "/a", session: int | None = SESSION) -> Call:
    return Call(Exists(path), lambda _result, _error: None, f"exists {path}", session=session)


def arrived(end: socket.socket) -> bytes:
    try:
        return end.recv(1 << 16)
    except BlockingIOError:
        return b""


def test_one_is_written_at_once_and_awaits_its_reply(ends: tuple[Standing, socket.socket]) -> None:
    connection, server = ends
    asked = call()
    connection.submit(asked)
    assert arrived(server).endswith(b"/a\0")
    assert connection.waiting == 0
    assert list(connection._inflight) == [asked]
    assert asked.sent > 0


def test_who_comes_while_others_wait_comes_behind_them(
    ends: tuple[Standing, socket.socket],
) -> None:
    connection, server = ends
    connection._outbox.add(call("/first"))
    connection.submit(call("/second"))
    assert arrived(server) == b""
    assert connection.waiting == 2


@pytest.mark.parametrize("why", ["not parked", "another session", "given up", "many", "stopping"])
def test_it_is_left_to_the_thread(ends: tuple[Standing, socket.socket], why: str) -> None:
    connection, server = ends
    asked = call(session=SESSION + 1 if why == "another session" else SESSION)
    if why == "not parked":
        connection._parked = False
    elif why == "given up":
        connection.abandon(SESSION)
    elif why == "many":
        for _ in range(4):
            connection.submit(call("/before"))
        arrived(server)
    elif why == "stopping":
        connection.close_session()
    connection.submit(asked)
    assert arrived(server) == b""
    assert connection.waiting == 1


def test_what_the_socket_does_not_take_is_kept_in_order(
    ends: tuple[Standing, socket.socket],
) -> None:
    connection, server = ends
    with pytest.raises(BlockingIOError):
        while True:
            connection._socket.send(b"x" * 65536)
    connection.submit(call("/first"))
    connection.submit(call("/second"))  # behind the rest of the first one
    assert len(connection._inflight) == 1
    assert connection.waiting == 1
    assert bytes(connection._out).endswith(b"/first\0")
    assert connection._outbox._rung
    server.close()
