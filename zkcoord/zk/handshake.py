"""From an address to a link that is authenticated.

kazoo's part in zkcoord: its connection handler speaks the handshake and SASL. What is changed here
is told in :mod:`zkcoord.zk.connection`. Everything runs on the connection's thread.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    EXCEPTIONS,
    ConnectionDropped,
    KazooException,
    SASLException,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import AUTH_XID, ConnectionHandler
from kazoo.protocol.serialization import SASL, Auth, Connect

from zkcoord.config import SessionConfig
from zkcoord.errors import CoordinationError
from zkcoord.zk.acls import WhoAmI
from zkcoord.zk.clock import now
from zkcoord.zk.hosts import Server
from zkcoord.zk.sockets import connect
from zkcoord.zk.translate import IDENTITY_CODES, from_handshake

_PASSWORD_BYTES = 16
_XID_MAX = 2**31 - 1
_MOMENT_S = 0.05
_SASL_HOST = "zk-sasl-md5"  # SecurityUtils of Apache ZooKeeper: the realm, whatever the host
_SASL_ROUNDS = 8


class Shaken(NamedTuple):
    """A link that stands. `sent` is when its handshake was sent."""

    session: int
    timeout: float
    sent: float
    read_only: bool


class Refused(Exception):
    """No link will ever stand: the server refuses who we are."""

    def __init__(self, error: CoordinationError) -> None:
        super().__init__(str(error))
        self.error = error


class Handshake(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection up to the point where requests may flow."""

    client: KazooClient
    _socket: Any

    def __init__(self, client: KazooClient, config: SessionConfig) -> None:
        sasl = None
        if config.sasl is not None:
            sasl = {
                "mechanism": config.sasl.mechanism,
                "username": config.sasl.username,
                "password": config.sasl.password,
            }
        if config.digest is not None:
            secret = f"{config.digest.username}:{config.digest.password}"
            client.auth_data.add(("digest", secret))
        super().__init__(client, None, logger=client.logger, sasl_options=sasl)
        self._config = config
        self._xid_last = 0
        self.identity: tuple[str, ...] | None = None

    def shake(self, server: Server) -> Shaken:
        """Connect and authenticate within the server's budget.

        Raises:
            Refused: trying again is of no use.
            SessionExpiredError: the server does not know our session any more.
            ConnectionDropped, OSError, struct.error, KazooException: no link this time.
        """
        deadline = now() + server.budget
        self._socket = connect(server.host, server.address, server.budget, self._config.tls)
        self._socket.setblocking(False)
        enter = self._visit if server.read_only else self._open_session
        shaken = enter(server, max(_MOMENT_S, deadline - now()))
        patience = max(server.budget, self._config.timeout_s / 3)  # it answers: it may take longer
        try:
            self._authenticate(server.host, patience)
            if self.identity is None and not shaken.read_only:
                self._ask_who_we_are(patience)
        except ConnectionDropped as error:
            raise ConnectionDropped(f"{server} dropped the link in authentication") from error
        except KazooTimeoutError as error:
            raise ConnectionDropped(f"{server} says nothing in authentication") from error
        except SASLException as error:
            raise Refused(from_handshake(error, self._config.identity)) from error
        except KazooException as error:
            if getattr(error, "code", None) not in IDENTITY_CODES:
                raise
            raise Refused(from_handshake(error, self._config.identity)) from error
        return shaken

    def _open_session(self, server: Server, patience: float) -> Shaken:
        """Take up our session, or a new one."""
        client = self.client
        asked = client._session_id or 0  # noqa: SLF001
        sent = now()
        reply = self._greet(server, (asked, client._session_passwd), patience)  # noqa: SLF001
        if reply.time_out <= 0:
            raise SessionExpiredError("Session has expired")
        if asked and reply.session_id != asked:
            self._session_over("the server handed out another session")
        client._session_id = reply.session_id  # noqa: SLF001
        client._session_passwd = reply.passwd  # noqa: SLF001
        return Shaken(reply.session_id, reply.time_out / 1000.0, sent, read_only=False)

    def _visit(self, server: Server, patience: float) -> Shaken:
        """Come in to read, at a server without a quorum.

        It refuses sessions of the ensemble, whatever kind of client shows one, and begins none but
        local ones, which the servers must allow (``localSessionsEnabled``). So ours is not shown.
        """
        sent = now()
        try:
            reply = self._greet(server, (0, bytes(_PASSWORD_BYTES)), patience)
        except ConnectionDropped as error:
            raise ConnectionDropped(f"{server} has no quorum, and lets nobody in") from error
        if not reply.read_only:
            raise ConnectionDropped(f"{server} has a quorum again")
        return Shaken(reply.session_id, reply.time_out / 1000.0, sent, read_only=True)

    def _greet(self, server: Server, session: tuple[int, bytes], patience: float) -> Any:
        wish = self.client._session_timeout  # noqa: SLF001
        seen = self.client.last_zxid
        reply, _ = self._invoke(patience, Connect(0, seen, wish, *session, server.read_only))
        return reply

    def _session_over(self, reason: str) -> None:
        raise NotImplementedError

    def _authenticate(self, host: str, patience: float) -> None:
        if self.sasl_options is not None:
            self._authenticate_with_sasl(host, patience)
        for scheme, credential in tuple(self.client.auth_data):
            self._invoke(patience, Auth(0, scheme, credential), xid=AUTH_XID)

    def _authenticate_with_sasl(self, _host: str, patience: float) -> None:
        """DIGEST-MD5 (RFC 2831), in a bounded number of rounds; kazoo's own goes on for ever.

        Raises:
            SASLException: it cannot be used with this server, or not here.
            KazooException: the server's error.
        """
        try:
            from puresasl import SASLError
            from puresasl.client import SASLClient
        except ImportError as error:
            raise SASLException("the package pure-sasl is not installed") from error
        challenge: bytes | None = None
        try:
            client = SASLClient(_SASL_HOST, service="zookeeper", **self.sasl_options)
            for xid in range(1, _SASL_ROUNDS + 1):
                answer = client.process(challenge)
                if client.complete and not answer:
                    client.dispose()
                    return
                self._submit(SASL(answer or b""), patience, xid)
                header, buffer, offset = self._read_header(patience)
                if header.err:
                    raise EXCEPTIONS[header.err]
                challenge, _ = SASL.deserialize(buffer, offset)
        except SASLError as error:
            raise SASLException(str(error)) from error
        raise SASLException("the server knows no SASL users")

    def _ask_who_we_are(self, patience: float) -> None:
        """The first request of the first link: a server that wants another identity says so now."""
        xid = self._next_xid()
        request = WhoAmI()
        self._submit(_Numbered(request), patience, xid)
        header, buffer, offset = self._read_header(patience)
        if header.xid != xid:
            raise ConnectionDropped(f"a reply to xid {header.xid} that was not asked for")
        if header.err in IDENTITY_CODES:
            raise Refused(from_handshake(None, self._config.identity))
        known = () if header.err else request.deserialize(buffer, offset)  # older than 3.7
        self.identity = known

    def _next_xid(self) -> int:
        self._xid_last = self._xid_last % _XID_MAX + 1
        return self._xid_last


class _Numbered:
    """A request of ours as kazoo's `_submit` takes it."""

    def __init__(self, request: WhoAmI) -> None:
        self.type = request.opcode
        self.serialize = request.serialize
