"""What a session bounds: bytes of ephemeral paths, requests, watches."""

from __future__ import annotations

import gc
import socket

import pytest

from tests.waiting import until
from zkcoord import ConfigError, NameRefused, Session, SessionConfig, SessionFull
from zkcoord.core import ordering
from zkcoord.core.lease import Belief
from zkcoord.zk.clock import now
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.follow import Follower
from zkcoord.zk.loop import Worker


def test_ten_thousand_waiters_are_within_the_bound_and_twelve_thousand_are_not() -> None:
    bound = SessionConfig().ephemeral_bytes_max
    epoch = Epoch(1, Belief(now(), 10.0, 1.0), Worker("unused"), bound)

    def enter(count: int) -> None:
        for _ in range(count):
            request = ordering.encode_request(epoch.request())
            prefix = ordering.prefix(ordering.EXCLUSIVE, 1 << 60, request)
            path = f"/shop/locks/printer/{prefix}"
            epoch.reserve(path, len(path) + 11)

    enter(10_000)
    with pytest.raises(SessionFull, match="the bound is"):
        enter(2_000)


def test_a_request_over_the_servers_buffer_is_refused_before_it_is_sent(zookeeper: str) -> None:
    states: list[str] = []
    with Session(zookeeper, timeout=4) as session:
        session.on_state(states.append)
        transaction = session.nodes.transaction()
        for number in range(1200):
            transaction.check("/" + "n" * 900 + str(number))
        with pytest.raises(NameRefused, match=r"a request of \d+ bytes is too large"):
            transaction.commit()
        assert session.nodes.exists("/") is not None
        assert states == []  # the link stood all the time


@pytest.mark.parametrize(
    "fields",
    [
        {"timeout_s": "10"},
        {"timeout_s": -1},
        {"timeout_s": float("inf")},
        {"timeout_s": float("nan")},
        {"margin_s": float("nan")},
        {"margin_s": "1"},
        {"connect_timeout_s": None},
        {"connect_timeout_s": float("inf")},
        {"ephemeral_bytes_max": 2_000_000},
        {"value_bytes_max": 1_100_000},
    ],
)
def test_bounds_that_cannot_work_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        SessionConfig(**fields)  # type: ignore[arg-type]


def watches_of(server: str) -> int:
    """How many watches a server keeps, by its own word."""
    host, port = server.split("/", maxsplit=1)[0].split(":")
    with socket.create_connection((host, int(port)), 5) as link:
        link.sendall(b"wchs")
        link.shutdown(socket.SHUT_WR)
        text = b"".join(iter(lambda: link.recv(4096), b"")).decode()
    return int(text.rpartition("Total watches:")[2])


def test_watches_that_come_and_go_leave_nothing(zookeeper: str) -> None:
    with Session(zookeeper, timeout=10) as session:

        def come_and_go() -> None:
            seen: list[object] = []
            watches = [
                session.nodes.watch(f"/w{number}", lambda *_: seen.append(1))
                for number in range(100)
            ]
            until(lambda: len(seen) == 100)
            for watch in watches:
                watch.close()
            session.nodes.sync()
            until(lambda: len(session.link.watches) == 0)
            session.nodes.sync()  # the server has heard of it

        def followers() -> int:
            gc.collect()
            return sum(isinstance(one, Follower) for one in gc.get_objects())

        before, kept = followers(), watches_of(zookeeper)
        for _ in range(3):
            come_and_go()
        assert followers() == before
        assert watches_of(zookeeper) == kept
        for number in range(100):
            session.nodes.create(f"/w{number}")
        session.nodes.sync()
        assert not session.link.watches._fires
