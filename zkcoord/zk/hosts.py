"""What can be a connect string: checked before a client is made of it."""

from __future__ import annotations

from zkcoord.errors import ConfigError
from zkcoord.zk.names import check_path

_PORT_MAX = 65535


def check_hosts(hosts: object) -> str:
    """A connect string ``host:port,…/chroot``, given back.

    Raises:
        ConfigError: it is no text, names no server, or has a part that is no address.
        NameRefused: the chroot is no path.
    """
    if not isinstance(hosts, str):
        raise ConfigError(f"Session: hosts must be text such as 'zk1:2181/path', not {hosts!r}")
    servers, slash, path = hosts.partition("/")
    if not servers.strip():
        raise ConfigError(f"Session: hosts {hosts!r}: at least one host:port is needed")
    wrong = [server for server in servers.split(",") if not _is_address(server.strip())]
    if wrong:
        raise ConfigError(
            f"Session: hosts {hosts!r}: {', '.join(map(repr, wrong))}: no host:port",
            hint="write host:port, several with commas, and /path behind the last if wanted; "
            "IPv6 addresses in brackets",
        )
    if slash and path:
        check_path("/" + path)
    return hosts


def _is_address(text: str) -> bool:
    host, port = text, "2181"
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return False
        port = rest[1:] or ("" if rest else port)
    elif ":" in text:
        host, _, port = text.partition(":")
    if not host or any(letter.isspace() for letter in host):
        return False
    return port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= _PORT_MAX
