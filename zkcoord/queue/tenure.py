"""One incarnation of an agent: its inbox, the session it stands on, and where it reports."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from zkcoord.core.inbox import InboxRules
from zkcoord.core.records import VERSION, Inbox, Report
from zkcoord.queue.attempt import Attempt

if TYPE_CHECKING:
    from zkcoord.zk import Session

_log = logging.getLogger(__name__)

_decode = msgspec.msgpack.Decoder(Inbox).decode


class Reporting(Protocol):
    """What the executor asks of the reporter."""

    def note(self, attempt: Attempt) -> None:
        """The attempt arrived or started; worth telling if it has not ended by the next report."""

    def add(self, report: Report) -> None:
        """Report this."""

    def heard(self, term: int) -> None:
        """The highest term seen so far."""

    @property
    def unacknowledged(self) -> int:
        """Reports that the broker has not confirmed."""

    @property
    def unacknowledged_bytes(self) -> int:
        """About how many bytes these are."""


class Tenure:
    """One incarnation: the time between claiming an inbox and losing or leaving it.

    Attributes:
        rules: what is new in its inbox.
        session: the session that the claim stands on; None in tests without servers.
        valid: whether that session can be believed now.
    """

    __slots__ = ("rules", "session", "valid")

    def __init__(
        self,
        rules: InboxRules,
        *,
        session: Session | None = None,
        valid: Callable[[], bool] = lambda: True,
    ) -> None:
        self.rules = rules
        self.session = session
        self.valid = valid


def read_record(value: bytes | None) -> Inbox | None:
    """Decode an inbox record; None, and a warning in the log, when it is none we can read."""
    if value is None:
        return None
    try:
        record = _decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        _log.warning("an inbox record cannot be read: %s", error)
        return None
    if record.version != VERSION:
        _log.warning("an inbox record has format %d; this agent reads %d", record.version, VERSION)
        return None
    return record
