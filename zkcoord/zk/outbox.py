"""Requests that wait to be sent, and the bell that tells the connection of them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque

from zkcoord.errors import (
    CoordinationError,
    EnsembleUnavailable,
    ReadOnlyServer,
    SessionClosed,
    SessionLost,
)
from zkcoord.zk.call import Call, Owner
from zkcoord.zk.translate import LinkDropped

CALLS_MAX = 1 << 17


class Outbox:
    """A bounded queue. `add` and `ring` from any thread; the rest on the connection's.

    The bell is a pair of sockets with one byte in it at most, so ringing never blocks. (kazoo
    writes a byte for each request, and who asks blocks when a few hundred are waiting.)
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._calls: deque[Call] = deque()
        self._ended = False
        self._rung = False
        self._bell: socket.socket | None = None
        self._reader = 0

    def __len__(self) -> int:
        return len(self._calls)

    def open(self, bell: socket.socket) -> None:
        """The calling thread is the connection's, and hears the other end of `bell`."""
        self._reader = threading.get_ident()
        self._bell = bell
        if self._rung:  # before there was a bell
            bell.send(b"\0")

    def add(self, call: Call) -> None:
        """Queue a call, or answer it at once with an error."""
        if len(self._calls) >= CALLS_MAX:
            error = EnsembleUnavailable(f"{call.what}: {CALLS_MAX} requests wait to be sent")
            self._owner.reply(call, None, error)
            return
        self._calls.append(call)
        self.ring()
        if self._ended:
            self.fail(SessionClosed, "the session is closed")

    def ring(self) -> None:
        """Wake the connection."""
        if self._rung or threading.get_ident() == self._reader:
            return
        self._rung = True
        try:
            if self._bell is not None:
                self._bell.send(b"\0")
        except OSError:
            pass
        except BaseException:  # a signal's handler: whether it rang is not known
            self._rung = False
            raise

    def heard(self, bell: socket.socket) -> None:
        """The bell rang: from now on it may ring again."""
        with contextlib.suppress(BlockingIOError):
            bell.recv(64)
        self._rung = False

    def next(self, session: int | None, *, read_only: bool = False) -> Call | None:
        """The next call to send; those that must not be sent any more are answered.

        `read_only`: the link knows no session of ours, so what belongs to one has to wait.
        """
        while self._calls:
            try:
                call = self._calls.popleft()
            except IndexError:
                break
            if call.abandoned:
                error: CoordinationError = LinkDropped(f"{call.what}: given up", sent=False)
            elif call.session is not None and read_only:
                error = ReadOnlyServer(f"{call.what}: the server has no quorum")
            elif call.session is not None and call.session != session:
                error = SessionLost(f"{call.what}: the session is over")
            else:
                return call
            self._owner.reply(call, None, error)
        return None

    def fail(self, kind: type[CoordinationError], reason: str) -> None:
        """Answer all that wait now, but not those that come meanwhile."""
        for _ in range(len(self._calls)):
            try:
                call = self._calls.popleft()
            except IndexError:
                return
            self._owner.reply(call, None, kind(f"{call.what}: {reason}"))

    def end(self) -> None:
        """Nothing is sent any more."""
        self._ended = True
        self.fail(SessionClosed, "the session is closed")
