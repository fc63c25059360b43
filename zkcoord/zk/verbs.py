"""One request with one deadline, as a promise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from zkcoord.errors import (
    ConfigError,
    CoordinationError,
    EnsembleUnavailable,
    SessionClosed,
    SessionLost,
)
from zkcoord.zk.amounts import is_number
from zkcoord.zk.clock import countable
from zkcoord.zk.link import Link
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Request
from zkcoord.zk.translate import LinkDropped

T = TypeVar("T")


def check_timeout(timeout: object) -> float:
    """A number of seconds that ends, given back; 292 years at most.

    Raises:
        ConfigError: negative, infinite or not a number.
    """
    if not is_number(timeout):
        kind = type(timeout).__name__
        raise ConfigError(f"timeout {timeout!r}: must be a number of seconds, not a {kind}")
    try:
        fits = math.isfinite(timeout) and timeout >= 0
    except OverflowError:  # a whole number beyond all floats
        raise ConfigError("timeout: more seconds than can be counted") from None
    if not fits:
        raise ConfigError(f"timeout {timeout!r}: must be 0 or more seconds, and finite")
    return countable(timeout)


class Verb(Generic[T]):
    """Send `request`, again after a drop of the link when that is safe, until `timeout`.

    Args:
        repeat: a read: sending it again changes nothing. A write whose outcome is unknown fails
            with :class:`~zkcoord.errors.EnsembleUnavailable` instead.
        shape: makes the result out of the reply's body, on the loop.
    """

    def __init__(
        self,
        link: Link,
        request: Request,
        verb: str,
        timeout: float,
        *,
        repeat: bool = False,
        shape: Callable[[Any], T] | None = None,
    ) -> None:
        link.check_open()
        self._link = link
        self._request = request
        self._verb = verb
        self._repeat = repeat
        self._shape = shape
        self._timeout = timeout
        self.promise: Promise[T] = Promise(link.dispatcher)
        self._timer = link.timer(check_timeout(timeout), self._expired)
        self._call = link.call(request, self._replied, verb=verb)

    def _replied(self, result: Any, error: CoordinationError | None) -> None:
        if self.promise.done():
            return
        again = isinstance(error, (LinkDropped, SessionLost)) and not isinstance(
            error, SessionClosed
        )
        if again and self._repeat and not self._link.closed:
            self._call = self._link.call(self._request, self._replied, verb=self._verb)
            return
        self._timer.cancel()
        if error is not None:
            self.promise.fail(error)
        else:
            self.promise.fulfil(result if self._shape is None else self._shape(result))

    def _expired(self) -> None:
        sent = self._call.sent > 0
        self._call.abandoned = True
        self.promise.fail(
            late(self._link, self._call.what, self._timeout, self._repeat or not sent)
        )


def late(link: Link, what: str, timeout: float, harmless: bool) -> EnsembleUnavailable:
    """The error for a request that got no answer in time."""
    why = "" if link.connected else f"; no link: {link.why_down}"
    hint = "nothing was changed" if harmless else "it may or may not have been carried out"
    return EnsembleUnavailable(f"{what}: no answer within {timeout:g} s{why}", hint=hint)
