"""Which servers there are: what a connect string may be, and the order in which they are tried."""

from __future__ import annotations

import ipaddress
import random
import re
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple

from zkcoord.errors import ConfigError, NameRefused
from zkcoord.zk.names import check_path

_PORT_MAX = 65535
_PORT = 2181
_BUDGET_MIN_S = 0.2
_ROUND_MAX_S = 10.0

_HINT = (
    "write host:port, several with commas, and /path behind the last if wanted; "
    "IPv6 addresses in brackets"
)
_SERVER_BEHIND = re.compile(r",[^,/]*:\d+(/|,|$)")

Host = tuple[str, int]


class Server(NamedTuple):
    """Where to try, and how: `budget` is in seconds."""

    host: str
    address: Host
    budget: float
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.address[1]}"


class Servers:
    """The list of servers, which may change at any time. Only `replace` is for any thread.

    In a round every host is tried once, in random order, the one that was tried last at the end.
    A round over hosts of which none answers takes a third of the session timeout. When nobody
    answered in a whole round the hosts get twice the time in the next, up to that third for each:
    servers that are far away are slow, and not dead.

    Attributes:
        hosts: as they are now.
        trouble: hosts whose names could not be resolved, and why.
    """

    def __init__(self, hosts: list[Host], timeout: float) -> None:
        self.hosts = tuple(hosts)
        self.trouble = ""
        self._third = min(timeout / 3, _ROUND_MAX_S)
        self._stretch = 1
        self._last: Host | None = None
        self._lock = threading.Lock()

    def replace(self, hosts: list[Host]) -> None:
        """Try these from now on."""
        with self._lock:
            self.hosts = tuple(hosts)

    def lists(self, host: Host | None) -> bool:
        """Whether a host is still one of them."""
        return host is None or host in self.hosts

    def round(self, *, read_only: bool = False) -> Iterator[tuple[Host, Server]]:
        """Every address of every host; names are resolved when it is their turn."""
        hosts = list(self.hosts)
        random.shuffle(hosts)
        hosts.sort(key=lambda host: host == self._last)
        for host in hosts:
            if not self.lists(host):
                continue
            self._last = host
            share = self._third / len(hosts) * self._stretch
            addresses = self._resolve(host)
            for address in addresses:
                budget = max(_BUDGET_MIN_S, min(self._third, share) / len(addresses))
                yield host, Server(host[0], address, budget, read_only)

    def in_vain(self) -> None:
        """Nobody answered in a whole round."""
        self._stretch = min(self._stretch * 2, len(self.hosts))

    def answered(self, timeout: float) -> None:
        """A link stands, and the server granted this session timeout."""
        self._third = min(timeout / 3, _ROUND_MAX_S)
        self._stretch = 1

    def _resolve(self, host: Host) -> list[Host]:
        try:
            found = socket.getaddrinfo(*host, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except (OSError, UnicodeError) as error:
            self.trouble = f"{host[0]}: {error}"
            return []
        return list(dict.fromkeys((str(info[4][0]), int(info[4][1])) for info in found))


def read_hosts(hosts: str) -> tuple[list[Host], str]:
    """The servers of a connect string that was checked, and its chroot without a last slash."""
    servers, _, path = hosts.partition("/")
    return [_address(server.strip()) for server in servers.split(",")], _chroot(path)


def check_hosts(hosts: object) -> str:
    """A connect string ``host:port,…/chroot``, given back.

    Raises:
        ConfigError: it is no text, names no server, has a part that is no address, or a chroot
            that is no path.
    """
    if not isinstance(hosts, str):
        raise ConfigError(f"Session: hosts must be text such as 'zk1:2181/path', not {hosts!r}")
    servers, slash, path = hosts.partition("/")
    if not servers.strip():
        raise ConfigError(f"Session: hosts {hosts!r}: at least one host:port is needed")
    wrong = [server for server in servers.split(",") if not _address(server.strip())[0]]
    if wrong:
        raise ConfigError(
            f"Session: hosts {hosts!r}: {', '.join(map(repr, wrong))}: no host:port",
            hint=_HINT,
        )
    if slash and path:
        try:
            check_path("/" + path)
        except NameRefused as error:
            raise ConfigError(f"Session: hosts {hosts!r}: {error.args[0]}", hint=_HINT) from None
    if _SERVER_BEHIND.search(path):
        raise ConfigError(f"Session: hosts {hosts!r}: a server behind the path", hint=_HINT)
    return hosts


def other_hosts(hosts: str, chroot: str) -> list[Host]:
    """The servers of another connect string for a session below `chroot`.

    Raises:
        ConfigError: it cannot work, or names another chroot.
    """
    servers, other = read_hosts(check_hosts(hosts))
    if other not in {"", chroot}:
        raise ConfigError(
            f"hosts {hosts!r}: the session is below {chroot or '/'!r} and stays there",
            hint="make a new Session for another path",
        )
    return servers


def _chroot(path: str) -> str:
    return "/" + path.rstrip("/") if path.rstrip("/") else ""


def _address(text: str) -> Host:
    """Host and port; an empty host when it is no address."""
    host, port = text, str(_PORT)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return "", 0
        port = rest[1:] or ("" if rest else port)
    elif ":" in text:
        host, _, port = text.partition(":")
    if not (_is_ipv6(host) if text.startswith("[") else _is_name(host)):
        return "", 0
    if not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= _PORT_MAX):
        return "", 0
    return host, int(port)


def _is_ipv6(text: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def _is_name(text: str) -> bool:
    """Whether a resolver can be asked for it; an IPv4 address is a name, too."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return bool(text) and all(letter.isalnum() or letter in "-._" for letter in text)
