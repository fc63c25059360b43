"""kazoo's connection handler, hardened. The one file that replaces parts of kazoo.

What it changes, each with a test in ``tests/faults/test_connection_hardening.py`` that is red on
plain kazoo:

1. xids go on across reconnects (and wrap from 2**31-1 to 1). A server matches the end of a
   transaction to a request by session and xid; kazoo starts again at 1 with every link, so a
   request can be given the reply of another.
2. The link is dropped when nothing was *received* for two thirds of the session timeout, whatever
   was sent, and pings go on under load. kazoo takes its own requests for signs of life.
3. Send times are kept, and reported when their request is answered: leases are reckoned by them.
4. The negotiated timeout is reported.
5. A server that silently hands out another session is noticed: the old one is over.
6. `abandon` ends a session from this side, during a partition.
7. The link counts as connected only once authentication is through; a link that drops during SASL
   is one more failed try, not the client's end.
8. Whole TLS records are read, so that a reply sharing a record with another is not left lying.
9. Requests are written together and replies read together, without a selector for each.
10. TLS trusts the given authority only, and host names are checked.

Everything in here runs on the connection's thread unless it says otherwise. Owners hand results on
to their loop: nothing of a user's runs here.
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
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionDropped,
    KazooException,
    SASLException,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import AUTH_XID, STOP_CONNECTING, ConnectionHandler
from kazoo.protocol.serialization import Auth, Connect
from kazoo.retry import KazooRetry

from zkcoord.config import SessionConfig
from zkcoord.errors import CoordinationError, SessionLost
from zkcoord.zk.call import Call, Owner
from zkcoord.zk.clock import now
from zkcoord.zk.outbox import Outbox
from zkcoord.zk.requests import Close, Exists, WatchEvent
from zkcoord.zk.sockets import connect
from zkcoord.zk.translate import (
    CONNECTION_LOSS,
    NO_NODE,
    SESSION_EXPIRED,
    SESSION_MOVED,
    LinkDropped,
    from_code,
    from_handshake,
)

_HEADER = struct.Struct("!iqi")
_INT = struct.Struct("!i")
_THREE_INTS = struct.Struct("!iii")

_WATCH_XID = -1
_PING_XID = -2
_PING_TYPE = 11
_XID_MAX = 2**31 - 1

_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_CHUNK = 1 << 16
_WRITE_AHEAD = 1 << 18
_FRAME_MAX = 1 << 27


class QuietHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's thread handler without its two callback threads: nothing is called back there."""

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""


class HardenedConnection(ConnectionHandler):  # type: ignore[misc]
    """See the module. `submit`, `abandon` and `close_session` may be called from any thread."""

    _socket: Any
    _read_sock: Any
    _write_sock: Any

    def __init__(
        self,
        client: KazooClient,
        owner: Owner,
        config: SessionConfig,
        *,
        sasl_options: dict[str, str] | None = None,
    ) -> None:
        super().__init__(
            client,
            client._conn_retry.copy(),  # noqa: SLF001
            logger=client.logger,
            sasl_options=sasl_options,
        )
        self._owner = owner
        self._config = config
        self._xid_last = 0
        self._outbox = Outbox(owner)
        self._inflight: deque[Call] = deque()
        self._abandoned: int | None = None
        self._in = bytearray()
        self._out = bytearray()
        self._heard = 0.0
        self._pinged = 0.0
        self._written = 0.0
        self._ping_sent: float | None = None
        self._timeout = config.timeout_s
        self._closing: Call | None = None

    # --- from any thread ------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        """Send a request, now or once a link stands."""
        self._outbox.add(call)

    def abandon(self, session: int) -> None:
        """End this session from our side; a link that stands with it is dropped."""
        self._abandoned = session
        self._outbox.ring()

    def close_session(self) -> None:
        """Send what is queued, close the session and end the thread."""
        self.client._stopped.set()  # noqa: SLF001
        self._outbox.ring()

    def join(self, timeout: float) -> bool:
        """Wait for the thread's end."""
        thread = self._connection_routine
        if thread is None or thread.ident == threading.get_ident():
            return True
        thread.join(timeout)
        return not thread.is_alive()

    # --- one link -------------------------------------------------------------------------------

    def zk_loop(self) -> None:
        """The thread: link after link until the session is closed."""
        self._owner.welcome()
        self._outbox.open(self._write_sock)
        try:
            super().zk_loop()
        finally:
            self._outbox.end()
            self._owner.ended()
            self._owner.turn()

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: KazooRetry) -> object:
        self._socket = None
        self._in.clear()
        self._out.clear()
        self._ping_sent = None
        self._closing = None
        self._leave_abandoned()
        reason = "the link was closed"
        try:
            self._connect(host, hostip, port)
            retry.reset()
            self._pump()
        except SessionExpiredError:
            retry.reset()
            self._session_over("it expired, or was given up after silence")
        except AuthFailedError as error:
            if not isinstance(error.__cause__, ConnectionDropped):
                self._owner.refused(from_handshake(error))
                return STOP_CONNECTING
            reason = f"{host}:{port} dropped the link during authentication"
        except SASLException as error:
            self._owner.refused(from_handshake(error))
            return STOP_CONNECTING
        except (ConnectionDropped, KazooTimeoutError, OSError, struct.error) as error:
            reason = f"{host}:{port}: {error or type(error).__name__}"
        except (KazooException, RuntimeError) as error:  # a handshake that makes no sense
            reason = f"{host}:{port}: {type(error).__name__} {error}"
        else:
            return STOP_CONNECTING
        finally:
            if self._socket is not None:
                self._socket.close()
            self._link_down(reason)
            self._owner.turn()
        return None

    def _leave_abandoned(self) -> None:
        """Forget a session that was given up: the next link opens another."""
        session = self.client._session_id  # noqa: SLF001
        if session and session == self._abandoned:
            self._session_over("it was given up after silence")

    def _session_over(self, reason: str) -> None:
        session = self.client._session_id  # noqa: SLF001
        self.client._reset_session()  # noqa: SLF001
        if session:
            for call in self._take_inflight():
                error = SessionLost(f"{call.what}: the session is over")
                self._owner.reply(call, None, error)
            self._outbox.fail(SessionLost, "the session is over")
            self._owner.session_over(session, reason)
            self._owner.turn()

    def _take_inflight(self) -> deque[Call]:
        lost, self._inflight = self._inflight, deque()
        return lost

    def _link_down(self, reason: str) -> None:
        for call in self._take_inflight():
            error = LinkDropped(f"{call.what}: {reason}", sent=True)
            self._owner.reply(call, None, error)
        self._owner.link_down(reason)

    def _connect(self, host: str, hostip: str, port: int) -> None:
        client = self.client
        patience = max(0.3, self._config.timeout_s / 3)
        budget = max(0.3, patience / max(1, len(client.hosts)))
        self._socket = connect(host, (hostip, port), budget, self._config.tls)
        self._socket.setblocking(False)
        asked = client._session_id or 0  # noqa: SLF001
        sent = now()
        reply, _ = self._invoke(
            patience,
            Connect(
                0,
                client.last_zxid,
                client._session_timeout,  # noqa: SLF001
                asked,
                client._session_passwd,  # noqa: SLF001
                False,
            ),
        )
        if reply.time_out <= 0:
            raise SessionExpiredError("Session has expired")
        if asked and reply.session_id != asked:
            self._session_over("the server handed out another session")
        client._session_id = reply.session_id  # noqa: SLF001
        client._session_passwd = reply.passwd  # noqa: SLF001
        if self.sasl_options is not None:
            self._authenticate_with_sasl(host, patience)
        for scheme, credential in tuple(client.auth_data):
            self._invoke(patience, Auth(0, scheme, credential), xid=AUTH_XID)
        self._timeout = reply.time_out / 1000.0
        self._heard = self._pinged = self._written = now()
        self._owner.established(reply.session_id, self._timeout, sent)

    def _pump(self) -> None:
        """Move requests and replies until the session is closed; raises when the link breaks."""
        link: Any = self._socket
        wake: Any = self._read_sock
        wake.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(link, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            writing = False
            while True:
                self._owner.turn()
                if self._abandoned is not None and self._abandoned == self.client._session_id:  # noqa: SLF001
                    self._farewell()
                    raise SessionExpiredError("given up")
                self._collect()
                self._flush()
                if writing != bool(self._out):
                    writing = not writing
                    mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
                    selector.modify(link, mask)
                for key, mask in selector.select(self._pulse()):
                    if key.fileobj is wake:
                        self._outbox.heard(self._read_sock)
                    elif mask & selectors.EVENT_READ and self._receive():
                        return

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
        wait = silent if self._ping_sent is not None else min(silent, due)
        return max(0.0, wait - moment)

    def _collect(self) -> None:
        """Turn queued calls into bytes."""
        while len(self._out) < _WRITE_AHEAD:
            call = self._outbox.next(self.client._session_id)  # noqa: SLF001
            if call is None:
                break
            self._write_call(call, call.request.opcode, call.request.serialize())
        if self._closing is None and not self._outbox and self.client._stopped.is_set():  # noqa: SLF001
            self._closing = Call(Close(), lambda _result, _error: None, "close")
            self._write_call(self._closing, Close.opcode, b"")

    def _write_call(self, call: Call, kind: int, body: bytes) -> None:
        self._xid_last = self._xid_last % _XID_MAX + 1
        call.xid = self._xid_last
        call.sent = self._written = now()
        self._inflight.append(call)
        self._out += _THREE_INTS.pack(8 + len(body), call.xid, kind)
        self._out += body

    def _flush(self) -> None:
        while self._out:
            try:
                sent = self._socket.send(self._out)
            except _NOT_NOW:
                return
            del self._out[:sent]

    def _farewell(self) -> None:
        """Close a session that was given up while its link still stands: best effort."""
        self._out += _THREE_INTS.pack(8, self._xid_last % _XID_MAX + 1, Close.opcode)
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
                self._owner.acknowledged(self._ping_sent)
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
        if code not in {SESSION_EXPIRED, SESSION_MOVED}:
            self._owner.acknowledged(call.sent)
        if call is self._closing:
            return True
        self._answer(call, code, frame)
        return False

    def _answer(self, call: Call, code: int, frame: bytes) -> None:
        result: Any = None
        error: CoordinationError | None = None
        if code == CONNECTION_LOSS:
            error = LinkDropped(f"{call.what}: the server lost its leader", sent=True)
        elif code and not (code == NO_NODE and call.request.opcode == Exists.opcode):
            error = from_code(code, call.what)
        elif not code:
            try:
                result = call.request.deserialize(frame, _HEADER.size)
            except (struct.error, ValueError) as cause:
                error = CoordinationError(f"{call.what}: a reply that cannot be read")
                error.__cause__ = cause
        self._owner.reply(call, result, error)
