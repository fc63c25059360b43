"""What becomes of a request of a recipe that failed."""

from __future__ import annotations

from collections.abc import Callable

from zkcoord.errors import CoordinationError, EnsembleUnavailable, SessionClosed, SessionLost
from zkcoord.zk.link import Link
from zkcoord.zk.translate import LinkDropped

PAUSE_S = 0.2


def ask_again(
    link: Link,
    error: CoordinationError,
    again: Callable[[], object],
    failed: Callable[[CoordinationError], object],
) -> None:
    """Call `again` where that may help, else `failed`. On the loop.

    At once after a dropped link, for the request waits for the next one; after a pause when the
    server is there and in trouble. When the session is over, its end tells everybody.
    """
    if isinstance(error, (SessionLost, SessionClosed)):
        return
    if isinstance(error, LinkDropped):
        again()
    elif isinstance(error, EnsembleUnavailable):
        link.timer(PAUSE_S, again)
    else:
        failed(error)
