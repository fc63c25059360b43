"""What passes between a session and its connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from zkcoord.errors import CoordinationError
from zkcoord.zk.requests import Request, WatchEvent

Reply = Callable[[Any, CoordinationError | None], object]


class Call:
    """One request on its way. `on_reply(result, error)` runs once, on the owner's loop.

    Args:
        what: the request in words, or what makes them: most requests need none.
    """

    __slots__ = ("_what", "abandoned", "on_reply", "request", "sent", "session", "watch", "xid")

    def __init__(
        self,
        request: Request,
        on_reply: Reply,
        what: str | Callable[[], str],
        *,
        session: int | None = None,
        watch: Callable[[CoordinationError | None], None] | None = None,
    ) -> None:
        self.request = request
        self.on_reply = on_reply
        self._what = what
        self.session = session
        self.watch = watch  # registers the local side of a watch, before on_reply
        self.sent = 0.0
        self.xid = 0
        self.abandoned = False  # not sent any more if it has not been

    @property
    def what(self) -> str:
        """The request in words, for messages."""
        return self._what if isinstance(self._what, str) else self._what()

    def answer(self, result: Any, error: CoordinationError | None) -> None:
        """It is over: tell who asked, unless they were told already. On the loop."""
        if self.watch is not None:  # in order with the events
            self.watch(error)
        on_reply, self.on_reply = self.on_reply, _told
        on_reply(result, error)


def _told(_result: Any, _error: CoordinationError | None) -> None:
    """A second answer is nobody's."""


class Owner(Protocol):
    """Whom the connection reports to. All methods are quick and never block."""

    def welcome(self) -> None:
        """The connection's thread begins."""

    def turn(self, *, again: bool = False) -> bool:
        """The connection's thread has told all it knows and may run what follows from it.

        With `again` it comes back soon; then the answer says whether something is left to run.
        """

    def established(self, session: int, timeout: float, sent: float) -> None:
        """A link stands and is authenticated; `sent` is when its handshake was sent."""

    def established_read_only(self) -> None:
        """A link to a server without a quorum stands: it knows no session of ours."""

    def acknowledged(self, sent: float) -> None:
        """Something sent at `sent` was answered."""

    def link_down(self, reason: str) -> None:
        """There is no link. The session may live on."""

    def session_over(self, session: int, reason: str) -> None:
        """This session is over, or must not be used any more."""

    def refused(self, error: CoordinationError) -> None:
        """No link will ever stand: the identity is refused."""

    def ended(self) -> None:
        """The connection's thread ends."""

    def reply(self, call: Call, result: Any, error: CoordinationError | None) -> None:
        """A call is over."""

    def event(self, event: WatchEvent) -> None:
        """A watch fired. In order with the replies."""
