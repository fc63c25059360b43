"""A TCP proxy that misbehaves on request, to put between a client and a real server.

What it does to a connection is what a network could do: bytes that it forwards are never altered,
reordered or lost in the middle. A blackhole holds bytes, ends and resets back, as a network between
two retransmitting peers does; when it heals, what was held is delivered to whoever is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self, TypeVar

from zkcoord.errors import StackError
from zkcoord.local.ports import HOST, choose

Direction = Literal["up", "down"]
"""``up`` is from client to server, ``down`` from server to client."""

_T = TypeVar("_T")

_PIECE = 65536
_HELD_PIECES_MAX = 64  # per connection and direction; then the sender feels back-pressure
_CONNECT_SECONDS = 5.0
_CALL_SECONDS = 30.0
_BACKLOG = 512


class _Way:
    """The state of one direction, shared by all connections."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.bytes = 0
        self.open = asyncio.Event()
        self.open.set()
        self.cut_in: int | None = None
        self.cut_done = threading.Event()


class Proxy:
    """Stands in front of a server on a port of its own; all verbs take effect before they return.

    ::

        with Proxy("127.0.0.1:2181") as proxy:
            client = Session(proxy.address)
            proxy.blackhole()
            proxy.heal()

    Verbs may be called from any thread. One thread of its own carries the bytes.

    Attributes:
        target: ``host:port`` of the server.
        address: ``host:port`` for clients; it stays the same while the proxy refuses.
    """

    def __init__(self, target: str, *, port: int | None = None) -> None:
        """Describe a proxy; :meth:`start` or ``with`` starts it.

        Args:
            target: ``host:port`` of the server.
            port: where to listen on the loopback interface; a free port when None.
        """
        host, _, number = target.rpartition(":")
        if not host or not number.isdigit():
            raise StackError(f"a proxy's target is host:port, not {target!r}")
        self.target = target
        self._server = (host.strip("[]"), int(number))
        self.port = port if port is not None else choose(1)[0]
        self.address = f"{HOST}:{self.port}"
        self._accepted = 0
        self._links: set[_Link] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._listener: socket.socket | None = None
        self._acceptor: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Proxy {self.address} -> {self.target}>"

    def start(self) -> Self:
        """Listen and forward.

        Raises:
            StackError: it was started already, or the port is taken.
        """
        if self._thread is not None:
            raise StackError(f"{self!r} is started already")
        listener = self._listen()  # here, so that a taken port is the caller's error
        self._loop = asyncio.new_event_loop()
        self._ways: dict[Direction, _Way] = {"up": _Way(), "down": _Way()}
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"zkcoord-proxy-{self.port}", daemon=True
        )
        self._thread.start()
        self._call(lambda: self._accept_on(listener))
        return self

    def close(self) -> None:
        """Drop all connections and stop listening; nothing to do when it is closed."""
        if self._thread is None or self._loop is None:
            return
        asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result(_CALL_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_SECONDS)
        self._loop.close()
        self._thread = self._loop = None

    @property
    def connections(self) -> int:
        """How many connections were accepted so far."""
        return self._accepted

    @property
    def open_connections(self) -> int:
        """How many connections there are now."""
        return self._call(lambda: len(self._links))

    @property
    def bytes_up(self) -> int:
        """How many bytes went to the server so far."""
        return self._ways["up"].bytes

    @property
    def bytes_down(self) -> int:
        """How many bytes came from the server so far."""
        return self._ways["down"].bytes

    def delay(self, seconds: float, direction: Direction | None = None) -> None:
        """Hold every byte back for so long, in one direction or (None) in each of both.

        It is latency, not a limit of throughput; bytes already on their way keep their time.
        """

        def change() -> None:
            for way in self._chosen(direction):
                way.delay = seconds

        self._call(change)

    def cut(self) -> None:
        """Reset all connections now; new ones are accepted."""
        self._call(self._cut_all)

    def refuse(self) -> None:
        """Refuse new connections until :meth:`heal`; those that exist go on."""
        self._call(self._stop_listening)

    def blackhole(self, *, up: bool = True, down: bool = True) -> None:
        """Let nothing through in these directions until :meth:`heal`.

        New connections are accepted and stay silent, as those that exist.
        """

        def change() -> None:
            if up:
                self._ways["up"].open.clear()
            if down:
                self._ways["down"].open.clear()

        self._call(change)

    def cut_after(self, count: int, direction: Direction = "down") -> threading.Event:
        """Forward exactly `count` more bytes in this direction, then reset all connections, once.

        The bytes before the cut are delivered. The event that is returned is set after the cut.
        """

        def change() -> threading.Event:
            way = self._ways[direction]
            way.cut_in = count
            way.cut_done = threading.Event()
            if count <= 0:
                self._cut_now(way)
            return way.cut_done

        return self._call(change)

    def heal(self) -> None:
        """End delay, refusal, blackhole and a cut that has not happened yet."""

        def change() -> None:
            for way in self._ways.values():
                way.delay = 0.0
                way.cut_in = None
                way.open.set()
            if self._listener is None:
                self._accept_on(self._listen())

        self._call(change)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Everything below runs on the proxy's thread, but for _call and _listen.

    def _call(self, function: Callable[[], _T]) -> _T:
        """Run a function on the proxy's thread and hand over what it returns or raises."""
        if self._loop is None:
            raise StackError(f"{self!r} is not started")

        async def run() -> _T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_CALL_SECONDS)

    def _chosen(self, direction: Direction | None) -> list[_Way]:
        return list(self._ways.values()) if direction is None else [self._ways[direction]]

    def _listen(self) -> socket.socket:
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, self.port))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            raise StackError(f"a proxy cannot listen on {self.address}: {error}") from error
        return listener

    def _accept_on(self, listener: socket.socket) -> None:
        self._listener = listener
        self._acceptor = asyncio.get_running_loop().create_task(self._accept(listener))

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError:
                continue  # the client was gone before we took its connection
            self._accepted += 1
            link = _Link(client, self._server, self._ways, self._cut_now)
            self._links.add(link)
            link.task.add_done_callback(functools.partial(self._forget, link))

    def _forget(self, link: _Link, _: asyncio.Task[None]) -> None:
        self._links.discard(link)

    def _stop_listening(self) -> None:
        if self._acceptor is not None:
            self._acceptor.cancel()
            self._acceptor = None
        if self._listener is not None:
            # Before the close: the event loop must not watch a descriptor that is used again.
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _cut_all(self) -> None:
        for link in list(self._links):
            link.abort()

    def _cut_now(self, way: _Way) -> None:
        way.cut_in = None
        self._cut_all()
        way.cut_done.set()

    async def _shut_down(self) -> None:
        self._stop_listening()
        tasks = [link.task for link in self._links]
        self._cut_all()
        if tasks:
            await asyncio.wait(tasks)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class _Link:
    """One connection: two sockets, and for each direction a reader and a writer."""

    def __init__(
        self,
        client: socket.socket,
        server: tuple[str, int],
        ways: dict[Direction, _Way],
        cut_now: Callable[[_Way], None],
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
        way: _Way,
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
        way: _Way,
        back: _Way,
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

    async def _send(self, target: socket.socket, piece: bytes, way: _Way) -> None:
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
