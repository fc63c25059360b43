"""Free ports of the loopback interface, and what to say of a taken one."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from zkcoord.errors import StackError

HOST = "127.0.0.1"

# Below the kernel's range for outgoing connections (32768 and up by default): a server that is down
# for a moment must not find its port taken by some client's outgoing connection.
_LOWEST, _HIGHEST = 18000, 32000
_TRIES = 500


class PortTaken(StackError):
    """A server's port is in use by another program."""


def is_free(port: int) -> bool:
    """Whether a server could listen there now (connections in TIME_WAIT do not count)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def choose(count: int, *, avoid: Collection[int] = ()) -> list[int]:
    """Choose free ports at random, so that stacks started side by side rarely collide.

    Raises:
        StackError: there are not enough free ports.
    """
    chosen: list[int] = []
    for _ in range(_TRIES):
        if len(chosen) == count:
            return chosen
        port = random.randrange(_LOWEST, _HIGHEST)  # noqa: S311 (nothing secret)
        if port not in chosen and port not in avoid and is_free(port):
            chosen.append(port)
    raise StackError(f"no {count} free ports between {_LOWEST} and {_HIGHEST} on {HOST}")
