"""A TCP proxy that misbehaves on request, to put between a client and a real server.

What it does to a connection is what a network could do: bytes that it forwards are never altered,
reordered or lost in the middle. A blackhole holds bytes, ends and resets back, as a network between
two retransmitting peers does; when it heals, what was held is delivered to whoever is still there.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from zkcoord.errors import StackError
from zkcoord.local.link import Direction, Link, Way
from zkcoord.local.ports import HOST, choose

_T = TypeVar("_T")

_CALL_SECONDS = 30.0
_BACKLOG = 512


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
        self._links: set[Link] = set()
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
        self._ways: dict[Direction, Way] = {"up": Way(), "down": Way()}
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

    def _chosen(self, direction: Direction | None) -> list[Way]:
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
            link = Link(client, self._server, self._ways, self._cut_now)
            self._links.add(link)
            link.task.add_done_callback(functools.partial(self._forget, link))

    def _forget(self, link: Link, _: asyncio.Task[None]) -> None:
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

    def _cut_now(self, way: Way) -> None:
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
