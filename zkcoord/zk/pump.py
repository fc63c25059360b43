"""Requests and replies over one link that stands.

Part of the connection, see :mod:`zkcoord.zk.connection`; on its thread.
"""

from __future__ import annotations

import contextlib
import selectors
import ssl
import struct
import threading
from collections import deque
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, SessionExpiredError

from zkcoord.config import SessionConfig
from zkcoord.errors import CoordinationError, NameRefused
from zkcoord.zk.call import Call, Owner
from zkcoord.zk.clock import now
from zkcoord.zk.handshake import Handshake, Refused
from zkcoord.zk.outbox import Outbox
from zkcoord.zk.requests import Close, Exists, WatchEvent
from zkcoord.zk.translate import (
    CONNECTION_LOSS,
    IDENTITY_CODES,
    NO_NODE,
    SESSION_EXPIRED,
    SESSION_MOVED,
    LinkDropped,
    from_code,
)

_HEADER = struct.Struct("!iqi")
_INT = struct.Struct("!i")
_THREE_INTS = struct.Struct("!iii")

_WATCH_XID = -1
_PING_XID = -2
_PING_TYPE = 11

_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_CHUNK = 1 << 16
_WRITE_AHEAD = 1 << 18
_FRAME_MAX = 1 << 27
_AT_ONCE_MAX = 4
_REQUEST_MAX = 1_048_000
"""What a server's buffer takes (jute.maxbuffer is 1,048,575): beyond it drops the link unsaid."""


class Pump(Handshake):
    """Moves bytes until the link breaks or the session is closed."""

    _read_sock: Any
    _write_sock: Any

    def __init__(self, client: KazooClient, owner: Owner, config: SessionConfig) -> None:
        super().__init__(client, config)
        self._owner = owner
        self._outbox = Outbox(owner)
        self._inflight: deque[Call] = deque()
        self._abandoned: int | None = None
        self._in = bytearray()
        self._out = bytearray()
        self._heard = 0.0
        self._pinged = 0.0
        self._written = 0.0
        self._ping_sent: float | None = None
        self._answered = 0.0
        self._read_only_until: float | None = None
        self._timeout = config.timeout_s
        self._closing: Call | None = None
        self._pen = threading.Lock()
        self._parked = False

    def _write_at_once(self, call: Call) -> bool:
        """Write a call on the caller's thread, if that changes no order: whether it is written.

        It saves waking the connection's thread. While that one is parked, whoever has the pen may
        write; otherwise everything is the thread's own. Few at a time: many are better written
        together.
        """
        with self._pen:
            if not self._parked or len(self._inflight) >= _AT_ONCE_MAX or not self._goes(call):
                return False
            moment = now()
            try:
                body = call.request.serialize()
            except Exception:  # the thread tells what is wrong with it
                return False
            if len(body) > _REQUEST_MAX:
                return False
            try:
                self._write_call(call, call.request.opcode, body, moment)
                with contextlib.suppress(OSError):  # the thread will meet it too
                    self._flush()
            finally:
                if self._out:
                    self._outbox.ring()
            return True

    def _goes(self, call: Call) -> bool:
        """Whether a call may be written now, in front of nothing that waits."""
        if self._outbox or self._out or call.abandoned or self._stopping():
            return False
        session = self.client._session_id  # noqa: SLF001
        mine = call.session is None or call.session == session
        return mine and session != self._abandoned and self._staying()

    def _staying(self) -> bool:
        """Whether this link's host is still one of ours."""
        raise NotImplementedError

    def _stopping(self) -> bool:
        return bool(self.client._stopped.is_set())  # noqa: SLF001

    def _pump(self) -> None:
        """Move requests and replies until the session is closed; raises when the link breaks."""
        link: Any = self._socket
        wake: Any = self._read_sock
        wake.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(link, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            writing = False
            plain = self._config.tls is None and self._read_only_until is None
            while True:
                busy = self._owner.turn(again=True)  # no other thread takes over
                if self._abandoned is not None and self._abandoned == self.client._session_id:  # noqa: SLF001
                    self._farewell()
                    raise SessionExpiredError("given up")
                self._move_on()
                self._collect()
                self._flush()
                if writing != bool(self._out):
                    writing = not writing
                    mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
                    selector.modify(link, mask)
                pause = self._pulse()
                self._parked = plain and not busy
                try:
                    ready = selector.select(0 if busy else pause)
                finally:
                    with self._pen:
                        self._parked = False
                for key, mask in ready:
                    if key.fileobj is wake:
                        self._outbox.heard(self._read_sock)
                    elif mask & selectors.EVENT_READ and self._receive():
                        return

    def _move_on(self) -> None:
        """Leave a host that is listed no longer, and after a while one without a quorum."""
        if self._inflight or self._out:
            return
        if not self._staying():
            raise ConnectionDropped("it is not in the list of hosts any more")
        if self._read_only_until is not None and now() >= self._read_only_until:
            raise ConnectionDropped("it has no quorum: looking for a server that has")

    def _pulse(self) -> float:
        """Ping when it is time, drop a silent link; how long nothing is due."""
        moment = now()
        silent = self._heard + self._timeout * 2 / 3
        if moment >= silent:
            raise ConnectionDropped(f"nothing received for {moment - self._heard:.1f} s")
        due = min(self._written + self._timeout / 3, self._pinged + self._timeout / 2)
        if moment >= due and self._ping_sent is None:
            self._ping_sent = self._pinged = self._written = moment
            self._out += _THREE_INTS.pack(8, _PING_XID, _PING_TYPE)
            self._flush()
        if self._read_only_until is not None:
            silent = min(silent, self._read_only_until)
        wait = silent if self._ping_sent is not None else min(silent, due)
        return max(0.0, wait - moment)

    def _collect(self) -> None:
        """Turn queued calls into bytes."""
        staying = self._staying()
        moment = now()  # earlier than each is sent, never later: leases are reckoned from it
        while staying and len(self._out) < _WRITE_AHEAD:
            call = self._outbox.next(
                self.client._session_id,  # noqa: SLF001
                read_only=self._read_only_until is not None,
            )
            if call is None:
                break
            try:
                body = call.request.serialize()
            except Exception as cause:  # one bad request never costs the link
                self._owner.reply(call, None, _unwritable(call, cause))
                continue
            if len(body) > _REQUEST_MAX:
                error = NameRefused(f"{call.what}: a request of {len(body)} bytes is too large")
                self._owner.reply(call, None, error)
                continue
            self._write_call(call, call.request.opcode, body, moment)
        if self._closing is None and not self._outbox and self._stopping():
            self._closing = Call(Close(), lambda _result, _error: None, "close")
            self._write_call(self._closing, Close.opcode, b"", moment)

    def _write_call(self, call: Call, kind: int, body: bytes, moment: float) -> None:
        call.xid = self._next_xid()
        call.sent = self._written = moment
        frame = _THREE_INTS.pack(8 + len(body), call.xid, kind) + body
        self._out += frame  # never half of it, and no signal's handler runs before the next line
        self._inflight.append(call)

    def _flush(self) -> None:
        while self._out:
            sent: list[int] = []
            try:  # in one call, or a signal's handler could raise when it is sent, and not noted
                sent.extend(map(self._socket.send, (self._out,)))
            except _NOT_NOW:
                return
            finally:
                if sent:
                    del self._out[: sent[0]]

    def _farewell(self) -> None:
        """Close a session that was given up while its link still stands: best effort."""
        self._out += _THREE_INTS.pack(8, self._next_xid(), Close.opcode)
        with contextlib.suppress(OSError):
            self._flush()

    def _receive(self) -> bool:
        """Read and hand on whole frames; True when the session was closed."""
        while True:
            try:
                chunk = self._socket.recv(_CHUNK)
            except _NOT_NOW:
                break
            if not chunk:
                if self._closing is not None:
                    return True
                raise ConnectionDropped("the server closed the link")
            self._in += chunk
            if len(chunk) < _CHUNK and self._config.tls is None:
                break
        self._heard = now()
        self._answered = 0.0
        try:
            return self._frames()
        finally:
            if self._answered:
                self._acknowledged(self._answered)

    def _frames(self) -> bool:
        """Hand on what has come in whole; True when the session was closed."""
        buffer, offset = bytes(self._in), 0
        while len(buffer) - offset >= _INT.size:
            (length,) = _INT.unpack_from(buffer, offset)
            if not _HEADER.size <= length <= _FRAME_MAX:
                raise ConnectionDropped(f"a frame of {length} bytes")
            if len(buffer) - offset - _INT.size < length:
                break
            offset += _INT.size
            if self._frame(buffer[offset : offset + length]):
                return True
            offset += length
        del self._in[:offset]
        return False

    def _frame(self, frame: bytes) -> bool:
        xid, zxid, code = _HEADER.unpack_from(frame, 0)
        if xid == _PING_XID:
            if self._ping_sent is not None:
                self._answered = max(self._answered, self._ping_sent)
                self._ping_sent = None
            return False
        if xid == _WATCH_XID:
            self._owner.event(WatchEvent.read(frame, _HEADER.size))
            return False
        if zxid > 0:
            self.client.last_zxid = zxid
        if not self._inflight or self._inflight[0].xid != xid:
            raise ConnectionDropped(f"a reply to xid {xid} that was not asked for")
        call = self._inflight.popleft()
        if call.sent > self._answered and code not in {SESSION_EXPIRED, SESSION_MOVED}:
            self._answered = call.sent
        if call is self._closing:
            return True
        error = self._answer(call, code, frame)
        if code in IDENTITY_CODES and error is not None:
            raise Refused(error)
        return False

    def _acknowledged(self, sent: float) -> None:
        if self._read_only_until is None:
            self._owner.acknowledged(sent)

    def _answer(self, call: Call, code: int, frame: bytes) -> CoordinationError | None:
        result: Any = None
        error: CoordinationError | None = None
        if code == CONNECTION_LOSS:
            error = LinkDropped(f"{call.what}: the server lost its leader", sent=True)
        elif code and not (code == NO_NODE and call.request.opcode == Exists.opcode):
            error = from_code(code, call.what, self._config.identity)
        elif not code:
            try:
                result = call.request.deserialize(frame, _HEADER.size)
            except (struct.error, ValueError) as cause:
                error = CoordinationError(f"{call.what}: a reply that cannot be read")
                error.__cause__ = cause
        self._owner.reply(call, result, error)
        return error


def _unwritable(call: Call, cause: Exception) -> NameRefused:
    what = f"{type(call.request).__name__} {call.request.path!r}"
    error = NameRefused(f"{what}: a request that cannot be written: {cause}")
    error.__cause__ = cause
    return error
