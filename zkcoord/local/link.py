"""One connection through a proxy: two sockets, and for each direction a reader and a writer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Literal

Direction = Literal["up", "down"]
"""``up`` is from client to server, ``down`` from server to client."""

_PIECE = 65536
_HELD_PIECES_MAX = 64  # per connection and direction; then the sender feels back-pressure
_CONNECT_SECONDS = 5.0


class Way:
    """The state of one direction, shared by all connections of a proxy."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.bytes = 0
        self.open = asyncio.Event()
        self.open.set()
        self.cut_in: int | None = None
        self.cut_done = threading.Event()


class Link:
    """One connection; it lives as long as its task and closes its sockets itself.

    Args:
        client: the accepted socket.
        server: where to connect to.
        ways: the state of both directions.
        cut_now: called when the last byte before a cut was forwarded.
    """

    def __init__(
        self,
        client: socket.socket,
        server: tuple[str, int],
        ways: dict[Direction, Way],
        cut_now: Callable[[Way], None],
    ) -> None:
        self._client = client
        self._address = server
        self._ways = ways
        self._cut_now = cut_now
        self._sockets = [client]
        self._reset = False
        self._loop = asyncio.get_running_loop()
        self.task = self._loop.create_task(self._run())

    def abort(self) -> None:
        """Reset both sides now."""
        self._reset = True
        self._close()
        self.task.cancel()

    def _close(self) -> None:
        for end in self._sockets:
            self._loop.remove_reader(end)
            self._loop.remove_writer(end)
            if self._reset:
                # Zero linger makes the kernel send a reset. What it has acknowledged already is
                # still read by the peer before the error.
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()
        self._sockets.clear()

    async def _run(self) -> None:
        up, down = self._ways["up"], self._ways["down"]
        try:
            self._prepare(self._client)
            await up.open.wait()
            await down.open.wait()
            server = socket.socket()
            self._sockets.append(server)
            self._prepare(server)
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._loop.sock_connect(server, self._address)
            async with asyncio.TaskGroup() as pumps:
                for source, target, way, back in (
                    (self._client, server, up, down),
                    (server, self._client, down, up),
                ):
                    held: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(
                        _HELD_PIECES_MAX
                    )
                    pumps.create_task(self._read(source, held, way))
                    pumps.create_task(self._write(target, held, way, back))
        except (OSError, TimeoutError, ExceptionGroup):
            self._reset = True
        finally:
            self._close()

    @staticmethod
    def _prepare(end: socket.socket) -> None:
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def _read(
        self,
        source: socket.socket,
        held: asyncio.Queue[tuple[float, bytes | None]],
        way: Way,
    ) -> None:
        """Read until the end; an empty piece says end, None says reset."""
        piece: bytes | None = None
        while piece is None or piece:
            try:
                piece = await self._loop.sock_recv(source, _PIECE)
            except OSError:
                await held.put((self._loop.time() + way.delay, None))
                return
            await held.put((self._loop.time() + way.delay, piece))

    async def _write(
        self,
        target: socket.socket,
        held: asyncio.Queue[tuple[float, bytes | None]],
        way: Way,
        back: Way,
    ) -> None:
        """Write what was read when its time has come and the way is open."""
        while True:
            due, piece = await held.get()
            if (wait := due - self._loop.time()) > 0:
                await asyncio.sleep(wait)
            await way.open.wait()
            if piece is None:
                raise ConnectionResetError
            try:
                if not piece:
                    target.shutdown(socket.SHUT_WR)
                    return
                await self._send(target, piece, way)
            except OSError:
                # The news of the target's death travels the other way.
                await back.open.wait()
                raise

    async def _send(self, target: socket.socket, piece: bytes, way: Way) -> None:
        while piece:
            # Taken before the send: another connection may use up what is left of the cut.
            part = piece if way.cut_in is None else piece[: way.cut_in]
            last = way.cut_in is not None and len(part) == way.cut_in
            if way.cut_in is not None:
                way.cut_in -= len(part)
            way.bytes += len(part)  # first: whoever has read the bytes finds them counted
            await self._loop.sock_sendall(target, part)
            piece = piece[len(part) :]
            if last:
                self._cut_now(way)
                return
