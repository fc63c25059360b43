"""Sockets to a ZooKeeper server, bare or in TLS."""

from __future__ import annotations

import socket
import ssl

from zkcoord.config import TlsConfig


def connect(
    host: str, address: tuple[str, int], timeout: float, tls: TlsConfig | None
) -> socket.socket:
    """A connected, blocking socket.

    Args:
        host: the name that the server's certificate must bear.
        address: where it is.
        timeout: seconds for the whole of it.
        tls: None for a bare connection.
    """
    link = socket.create_connection(address, timeout)
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link if tls is None else context(tls).wrap_socket(link, server_hostname=host)
    except BaseException:
        link.close()
        raise


def context(config: TlsConfig) -> ssl.SSLContext:
    """A context that trusts the given authority only and checks host names."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(config.ca)
    if config.certificate is not None:
        made.load_cert_chain(config.certificate, config.key, config.key_password)
    return made
