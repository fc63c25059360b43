"""Is a server ready? One answered request says so; an open port does not.

ZooKeeper: the four-letter word ``srvr`` answers with a ``Mode:`` line once the server serves.
Kafka: a Metadata request (version 1 of the Kafka protocol's API 3) lists the live brokers.
"""

from __future__ import annotations

import contextlib
import socket
import struct

_METADATA, _METADATA_VERSION, _CORRELATION = 3, 1, 7
_ANSWER_BYTES_MAX = 1 << 20


def four_letters(host: str, port: int, word: str, *, timeout: float = 2.0) -> str:
    """Send a four-letter word to a ZooKeeper server and return its answer.

    Raises:
        OSError: the server does not answer in `timeout` seconds.
    """
    with socket.create_connection((host, port), timeout) as link:
        link.settimeout(timeout)
        link.sendall(word.encode())
        parts: list[bytes] = []
        while sum(map(len, parts)) < _ANSWER_BYTES_MAX and (part := link.recv(65536)):
            parts.append(part)
    return b"".join(parts).decode("utf-8", "replace")


def zookeeper_mode(host: str, port: int, *, timeout: float = 2.0) -> str | None:
    """``standalone``, ``leader``, ``follower`` or ``observer``; None while it does not serve."""
    try:
        answer = four_letters(host, port, "srvr", timeout=timeout)
    except OSError:
        return None
    for line in answer.splitlines():
        if line.startswith("Mode: "):
            return line.removeprefix("Mode: ").strip()
    return None


def kafka_brokers(host: str, port: int, *, timeout: float = 2.0) -> dict[int, str] | None:
    """The live brokers as this one knows them, id to advertised address; None: no answer."""
    name = b"zkcoord-local"
    # Header version 1, then an array of no topics (null would ask for all of them).
    body = struct.pack(">hhih", _METADATA, _METADATA_VERSION, _CORRELATION, len(name)) + name
    body += struct.pack(">i", 0)
    try:
        with socket.create_connection((host, port), timeout) as link:
            link.settimeout(timeout)
            link.sendall(struct.pack(">i", len(body)) + body)
            answer = _frame(link)
    except OSError:
        return None
    with contextlib.suppress(struct.error, IndexError, UnicodeDecodeError):
        return _brokers(answer)
    return None


def _frame(link: socket.socket) -> bytes:
    size = struct.unpack(">i", _exactly(link, 4))[0]
    if not 0 <= size <= _ANSWER_BYTES_MAX:
        raise OSError(f"an answer of {size} bytes is not Kafka's")
    return _exactly(link, size)


def _exactly(link: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = link.recv(size - len(parts))
        if not part:
            raise ConnectionError("the server closed the connection")
        parts += part
    return bytes(parts)


def _brokers(answer: bytes) -> dict[int, str]:
    """Correlation id, then an array of (id, host, port, rack or null)."""
    count = struct.unpack_from(">i", answer, 4)[0]
    place, brokers = 8, {}
    for _ in range(count):
        node, length = struct.unpack_from(">ih", answer, place)
        place += 6
        host = answer[place : place + length].decode()
        place += length
        port, rack = struct.unpack_from(">ih", answer, place)
        place += 6 + max(rack, 0)
        brokers[node] = f"{host}:{port}"
    return brokers
