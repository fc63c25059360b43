"""A relay that knows where ZooKeeper's frames end: it records them, holds them back, changes them.

The server behind it is real. `zkcoord.local.Proxy` knows bytes only; this knows requests.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple, Self

Change = Callable[["Frame"], bytes | None]


class Frame(NamedTuple):
    """One frame, without its length."""

    link: int  # which connection
    number: int  # which frame of it; 0 is the handshake
    body: bytes

    @property
    def xid(self) -> int:
        return int(struct.unpack_from("!i", self.body)[0])

    @property
    def opcode(self) -> int:
        return int(struct.unpack_from("!i", self.body, 4)[0])


def unchanged(frame: Frame) -> bytes | None:
    return frame.body


class FrameRelay:
    """Listens on `address` and forwards to `target`; `up` and `down` may change or drop frames."""

    def __init__(self, target: str, *, up: Change = unchanged, down: Change = unchanged) -> None:
        host, port = target.split("/", maxsplit=1)[0].rsplit(":", 1)
        self._target = (host, int(port))
        self.up = up
        self.down = down
        self.sent: list[Frame] = []
        self.received: list[Frame] = []
        self._links: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._count = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._spawn(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)

    def cut(self) -> None:
        """Drop all connections."""
        links, self._links = self._links, []
        for link in links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def requests(self) -> list[Frame]:
        """What clients asked, without handshakes, pings and authentication."""
        return [frame for frame in self.sent if frame.number and frame.xid > 0]

    def _spawn(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        self._listener.settimeout(0.1)
        while self._listener.fileno() >= 0:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except TimeoutError:
                continue
            except OSError:
                return
            for link in (client, server):
                link.settimeout(None)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._links += [client, server]
            number, self._count = self._count, self._count + 1
            self._spawn(self._carry, client, server, number, self.sent, "up")
            self._spawn(self._carry, server, client, number, self.received, "down")

    def _carry(
        self, source: socket.socket, sink: socket.socket, link: int, log: list[Frame], way: str
    ) -> None:
        number = 0
        try:
            while True:
                (length,) = struct.unpack("!i", self._read(source, 4))
                frame = Frame(link, number, self._read(source, length))
                log.append(frame)
                number += 1
                body = getattr(self, way)(frame)
                if body is not None:
                    sink.sendall(struct.pack("!i", len(body)) + body)
        except (OSError, EOFError):
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _read(source: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = source.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data
