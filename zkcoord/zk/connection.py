"""kazoo's connection handler, hardened. This and the handshake replace parts of kazoo.

What they change, each with a test in ``tests/faults/test_connection_*.py`` that is red on plain
kazoo:

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
9. Requests are written together and replies read together, without a selector for each; a single
   one is written on the thread that asks, without waking the connection's.
10. TLS trusts the given authority only, and host names are checked.
11. Every host is tried within a third of the timeout, one that freezes in its handshake too; the
    list of hosts may change, and the link is kept while its host is listed.
12. A server without a quorum is used only when asked for, only to read, and its answers keep no
    session alive.

Everything in here runs on the connection's thread unless it says otherwise. Owners hand results on
to their loop: nothing of a user's runs here.
"""

from __future__ import annotations

import logging
import random
import struct
import threading
from collections import deque
from typing import Literal

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, KazooException, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler

from zkcoord.config import SessionConfig
from zkcoord.errors import SessionLost
from zkcoord.zk.call import Call, Owner
from zkcoord.zk.clock import now
from zkcoord.zk.handshake import Refused
from zkcoord.zk.hosts import Host, Server, Servers
from zkcoord.zk.pump import Pump
from zkcoord.zk.translate import LinkDropped

log = logging.getLogger("zkcoord")

_PAUSE_S = 0.05
_PAUSE_MAX_S = 1.0

Outcome = Literal["stop", "served", "failed"]


class QuietHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's thread handler without its two callback threads: nothing is called back there."""

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""


class HardenedConnection(Pump):
    """See the module. What stands under "from any thread" may be called from any."""

    def __init__(
        self, client: KazooClient, owner: Owner, config: SessionConfig, hosts: list[Host]
    ) -> None:
        super().__init__(client, owner, config)
        self._servers = Servers(hosts, config.timeout_s)
        self._host: Host | None = None
        self._hurry = threading.Event()
        self._failure = ""

    # --- from any thread ------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        """Send a request, now or once a link stands."""
        if not (self._parked and self._write_at_once(call)):
            self._outbox.add(call)

    def abandon(self, session: int) -> None:
        """End this session from our side; a link that stands with it is dropped."""
        self._abandoned = session
        self._outbox.ring()

    def set_hosts(self, hosts: list[Host]) -> None:
        """Use these from now on; a link to a host that is not among them moves."""
        self._servers.replace(hosts)
        self._hurry.set()
        self._outbox.ring()

    def close_session(self) -> None:
        """Send what is queued, close the session and end the thread."""
        self.client._stopped.set()  # noqa: SLF001
        self._hurry.set()
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
        self.connection_stopped.clear()
        self._owner.welcome()
        self._outbox.open(self._write_sock)
        try:
            pause = _PAUSE_S
            while (outcome := self._round()) != "stop":
                if outcome == "served":
                    pause = _PAUSE_S
                elif self._servers.trouble and not self._failure:
                    self._owner.link_down(self._servers.trouble)
                    self._owner.turn()
                self._hurry.clear()
                if not self._stopping():
                    self._hurry.wait(pause * random.uniform(0.6, 1.4))  # noqa: S311
                pause = min(pause * 2, _PAUSE_MAX_S)
        finally:
            self.connection_stopped.set()
            self._outbox.end()
            self._owner.ended()
            self._owner.turn()

    def _round(self) -> Outcome:
        """Try every host, and without a quorum only when that is asked for."""
        self._failure = ""
        for read_only in (False, True) if self._config.read_only else (False,):
            for host, server in self._servers.round(read_only=read_only):
                if self._stopping():
                    return "stop"
                self._host = host
                outcome = self._attempt(server)
                if outcome != "failed":
                    return outcome
        self._servers.in_vain()
        return "stop" if self._stopping() else "failed"

    def _attempt(self, server: Server) -> Outcome:
        """One link, from its first byte to its last."""
        self._socket = None
        self._in.clear()
        self._out.clear()
        self._ping_sent = None
        self._closing = None
        self._read_only_until = None
        self._leave_abandoned()
        outcome: Outcome = "failed"
        reason = "the link was closed"
        try:
            self._stand(server)
            outcome = "served"
            self._pump()
        except SessionExpiredError:
            outcome = "served"
            self._session_over("it expired, or was given up after silence")
        except Refused as error:
            self._owner.refused(error.error)
            return "stop"
        except (ConnectionDropped, KazooTimeoutError, OSError, struct.error) as error:
            reason = f"{server}: {error or type(error).__name__}"
        except (KazooException, RuntimeError) as error:  # a handshake that makes no sense
            reason = f"{server}: {type(error).__name__} {error}"
        except Exception as error:
            log.exception("zookeeper link to %s: unexpected", server)
            reason = f"{server}: {type(error).__name__} {error}"
        else:
            return "stop"
        finally:
            if self._socket is not None:
                self._socket.close()
            self._failure = reason
            self._link_down(reason)
            self._owner.turn()
        return outcome

    def _stand(self, server: Server) -> None:
        shaken = self.shake(server)
        self._timeout = shaken.timeout
        self._heard = self._pinged = self._written = now()
        self._servers.answered(shaken.timeout)
        if shaken.read_only:
            self._read_only_until = now() + shaken.timeout
            self._owner.established_read_only()
        else:
            self._owner.established(shaken.session, shaken.timeout, shaken.sent)

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

    def _staying(self) -> bool:
        return self._servers.lists(self._host)
