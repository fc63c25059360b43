"""The doctor's checks against servers that answer what the test says."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from zkcoord.inspector.checks import brokers, ensemble
from zkcoord.inspector.checks.finding import Finding


class Answering:
    """A TCP server that answers every connection with the same bytes, then closes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            with closing(link):
                link.recv(4096)
                link.sendall(self.answer)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(10)


@pytest.fixture
def answering() -> Iterator[list[Answering]]:
    servers: list[Answering] = []
    yield servers
    for server in servers:
        server.close()


def srvr(mode: str, version: str = "3.9.5") -> bytes:
    return (
        f"Zookeeper version: {version}-abc, built on 2026-01-01\n"
        f"Latency min/avg/max: 0/1.5/20\nMode: {mode}\nNode count: 5\n"
    ).encode()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_is_no_zookeeper_is_said_to_be_none(answering: list[Answering], answer: bytes) -> None:
    server = Answering(answer)
    answering.append(server)
    finding = next(iter(ensemble._servers(server.address)))
    assert finding.status == "FAIL"
    assert "no ZooKeeper" in finding.observed
    assert "address" in finding.advice


def look(hosts: str) -> list[tuple[str, str]]:
    return [(f.status, f.observed) for f in ensemble._servers(hosts)]


def test_one_standalone_server_is_a_warning(answering: list[Answering]) -> None:
    answering.append(Answering(srvr("standalone")))
    assert look(answering[0].address + "/chroot") == [
        ("ok", "standalone, version 3.9.5, latency 0/1.5/20 ms (min/avg/max since its start)"),
        ("warn", "one standalone server"),
    ]


def test_a_full_ensemble_is_fine_and_one_missing_server_a_warning(
    answering: list[Answering],
) -> None:
    answering += [Answering(srvr(mode)) for mode in ("leader", "follower", "follower")]
    hosts = ",".join(server.address for server in answering)
    assert look(hosts)[-1] == ("ok", "3 of 3 named servers serve")
    hosts = f"{answering[0].address},{answering[1].address},127.0.0.1:1"
    findings = look(hosts)
    assert findings[-1] == ("warn", "2 of 3 named servers serve")
    assert findings[2][0] == "warn"


def test_no_server_is_a_failure() -> None:
    findings = look("127.0.0.1:1")
    assert [status for status, _ in findings] == ["FAIL", "FAIL"]
    assert findings[1][1] == "0 of 1 named servers serve"


def test_a_server_without_quorum_is_quoted(answering: list[Answering]) -> None:
    answering.append(Answering(b"This ZooKeeper instance is not currently serving requests\n"))
    assert look(answering[0].address) == [
        ("warn", "This ZooKeeper instance is not currently serving requests"),
        ("FAIL", "0 of 1 named servers serve"),
    ]


def test_an_old_server_is_a_failure(answering: list[Answering]) -> None:
    answering.append(Answering(srvr("standalone", "3.4.14")))
    (found, _) = ensemble._servers(answering[0].address)
    assert (found.status, "3.4.14" in found.observed, "upgrade" in found.advice) == (
        "FAIL",
        True,
        True,
    )


def api_versions(create_topics_from: int) -> bytes:
    entries = struct.pack(">hhh", 0, 0, 12) + struct.pack(">hhh", 19, create_topics_from, 7)
    body = struct.pack(">ihi", 1, 0, 2) + entries
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    ("answer", "status", "observed"),
    [
        (api_versions(2), "ok", "Kafka 4 or later"),
        (api_versions(0), "warn", "a release before Kafka 4"),
        (b"HTTP/1.1 400 Bad Request\r\n", "FAIL", "is not Kafka's"),
        (b"", "FAIL", "it closed the connection"),
        (struct.pack(">i", 10) + struct.pack(">ihi", 1, 35, 0), "FAIL", "error 35"),
    ],
)
def test_a_broker_by_what_it_answers(
    answering: list[Answering], answer: bytes, status: str, observed: str
) -> None:
    answering.append(Answering(answer))
    found = brokers._broker(answering[0].address)
    assert found.status == status
    assert observed in found.observed


def test_an_advertised_address_that_is_out_of_reach_is_a_failure() -> None:
    found = brokers._broker("127.0.0.1:1")
    assert found.status == "FAIL"
    assert "advertised.listeners" in found.advice


@pytest.mark.parametrize(
    ("there", "status"),
    [(100.2, "ok"), (99.6, "ok"), (101.4, "ok"), (98.0, "warn"), (103.0, "warn")],
)
def test_clocks_are_compared_within_what_can_be_known(there: float, status: str) -> None:
    found: Finding = ensemble.clock(there, before=100.0, after=101.0, whose="it")
    assert found.status == status
