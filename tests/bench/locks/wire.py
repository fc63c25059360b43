"""ZooKeeper's protocol over a blocking socket and nothing else: the raw floor is measured with it.

A flight is sent in one piece and its replies are awaited on the caller's thread. No library of
locks can be faster than this without asking for less.
"""

from __future__ import annotations

import socket
import struct
from itertools import count
from typing import Self

_REPLY = struct.Struct("!iqi")
_INT = struct.Struct("!i")
_WATCH_XID = -1
_CONTAINER_EXISTS = -110
_NO_NODE = -101
_EPHEMERAL_SEQUENTIAL = 3
_CONTAINER = 4
_OPEN = struct.pack("!ii", 1, 31) + struct.pack("!i5si6s", 5, b"world", 6, b"anyone")
_DATA = b"x" * 60  # as long as what a lock says of its owner

Request = tuple[int, bytes]


def _text(path: str) -> bytes:
    return _INT.pack(len(path)) + path.encode()


def create(folder: str) -> Request:
    """A lock's node: ephemeral, sequential, with its Stat in the reply (create2)."""
    data = _INT.pack(len(_DATA)) + _DATA
    path = _text(f"{folder}/xAAAAAAAAAAA.0.")
    return 15, path + data + _OPEN + _INT.pack(_EPHEMERAL_SEQUENTIAL)


def delete(path: str) -> Request:
    return 2, _text(path) + _INT.pack(-1)


def children(folder: str) -> Request:
    return 8, _text(folder) + b"\0"


def exists(path: str, *, watch: bool = False) -> Request:
    return 3, _text(path) + bytes((watch,))


def read(path: str) -> Request:
    return 4, _text(path) + b"\0"


def container(path: str) -> Request:
    return 19, _text(path) + _INT.pack(0) + _OPEN + _INT.pack(_CONTAINER)


class Wire:
    """One session at the first of some addresses."""

    def __init__(self, hosts: str, timeout: float = 30.0) -> None:
        host, port = hosts.split("/", maxsplit=1)[0].split(",", maxsplit=1)[0].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._xids = count(1)
        self._in = b""
        self._ready: list[bytes] = []
        hello = struct.pack("!iqiqi16s?", 0, 0, int(timeout * 1000), 0, 16, b"", False)
        self._socket.sendall(_INT.pack(len(hello)) + hello)
        self._frame()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ask((-11, b""))
        self._socket.close()

    def send(self, *requests: Request) -> None:
        """All in one piece."""
        pieces = []
        for opcode, body in requests:
            pieces.append(struct.pack("!iii", 8 + len(body), next(self._xids), opcode))
            pieces.append(body)
        self._socket.sendall(b"".join(pieces))

    def reply(self) -> bytes:
        """The next that is no event."""
        while True:
            frame = self._frame()
            xid, _, code = _REPLY.unpack_from(frame)
            if xid != _WATCH_XID:
                assert code in (0, _CONTAINER_EXISTS, _NO_NODE), code
                return frame

    def event(self) -> None:
        """Wait for a watch to fire; nothing else is on its way."""
        while _REPLY.unpack_from(self._frame())[0] != _WATCH_XID:
            pass

    def ask(self, *requests: Request) -> list[bytes]:
        """One flight."""
        self.send(*requests)
        return [self.reply() for _ in requests]

    def folder(self, path: str) -> None:
        """A container, and what is above it."""
        above = path.rpartition("/")[0]
        if above:
            self.folder(above)
        self.ask(container(path))

    def _frame(self) -> bytes:
        while not self._ready:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionError("the server closed the link")
            buffer, start = self._in + chunk, 0
            while len(buffer) - start >= 4:
                end = start + 4 + _INT.unpack_from(buffer, start)[0]
                if end > len(buffer):
                    break
                self._ready.append(buffer[start + 4 : end])
                start = end
            self._in = buffer[start:]
            self._ready.reverse()  # taken from the end
        return self._ready.pop()


def path_of(made: bytes) -> str:
    """The node that a create's reply names."""
    (length,) = _INT.unpack_from(made, _REPLY.size)
    start = _REPLY.size + 4
    return made[start : start + length].decode()


def lock_once(wire: Wire, folder: str) -> None:
    """Create and list in one flight, then delete: the least that a fair lock does."""
    made, _ = wire.ask(create(folder), children(folder))
    wire.ask(delete(path_of(made)))
