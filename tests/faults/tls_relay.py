"""TLS in front of a plain ZooKeeper; several replies can be made to share one TLS record."""

import contextlib
import socket
import ssl
import struct
import threading
from pathlib import Path
from typing import Self


class TlsRelay:
    """Listens on `address` with TLS. `together`: so many replies are sent as one record."""

    def __init__(self, target: str, certificate: Path, key: Path) -> None:
        host, port = target.split("/", maxsplit=1)[0].rsplit(":", 1)
        self._target = (host, int(port))
        self.together = 1
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self.address = f"localhost:{self._listener.getsockname()[1]}"
        self._links: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for link in self._links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for link in self._links:
            link.close()

    def _spawn(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while self._listener.fileno() >= 0:
            try:
                bare, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            bare.settimeout(5)
            try:
                client = self._context.wrap_socket(bare, server_side=True)
            except OSError:
                bare.close()
                continue
            client.settimeout(None)
            server = socket.create_connection(self._target)
            self._links += [client, server]
            self._spawn(self._up, client, server)
            self._spawn(self._down, server, client)

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(65536):
                server.sendall(data)
        except OSError:
            pass
        self._end(server)

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        record, count = b"", 0
        try:
            while head := server.recv(4, socket.MSG_WAITALL):
                (length,) = struct.unpack("!i", head)
                record += head + server.recv(length, socket.MSG_WAITALL)
                count += 1
                if count >= self.together:
                    client.sendall(record)
                    record, count = b"", 0
        except (OSError, struct.error):
            pass
        self._end(client)

    @staticmethod
    def _end(link: socket.socket) -> None:
        with contextlib.suppress(OSError):
            link.shutdown(socket.SHUT_RDWR)
