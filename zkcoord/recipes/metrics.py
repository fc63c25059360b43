"""What recipes tell about themselves: how long acquiring took, how long it was held, what was lost.

::

    def count(seen: Observation) -> None:
        histogram.labels(seen.name, seen.kind).observe(seen.seconds)

    stop = observe(session, count)

No library of metrics is needed, and where nobody observes it costs a look-up for each acquire and
release.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal, NamedTuple

from zkcoord.zk.callbacks import check_function
from zkcoord.zk.link import Link
from zkcoord.zk.session import Session, check_session

Kind = Literal["granted", "refused", "released", "lost"]


class Observation(NamedTuple):
    """Something that happened to a request or a lease of a lock or an election.

    Attributes:
        kind: ``granted``; ``refused``: it failed, was cancelled or came too late; ``released``;
            ``lost``: with its session, or its node was removed.
        name: what it is about, such as ``lock gpu-0``.
        seconds: how long was waited (granted, refused), or how long it was held (released, lost).
        ahead: how many stood in front when it came into the queue; 0 for leases.
        requests: how many were sent to ZooKeeper to get it, those that several waiters share not
            counted; 0 for leases.
        error: name of the error's class when refused, else empty.
    """

    kind: Kind
    name: str
    seconds: float
    ahead: int = 0
    requests: int = 0
    error: str = ""


Observe = Callable[[Observation], object]


_changing = threading.Lock()  # a link's observers are replaced, so telling needs none


def observe(session: Session, fn: Observe) -> Callable[[], None]:
    """Call ``fn(observation)`` on the session's dispatcher for all that its locks and elections do.

    What it is told is in order. It may block or fail: that delays or spares nobody but other
    callbacks of the session.

    Args:
        session: whose recipes are observed.
        fn: called for each observation from now on.

    Returns:
        A function that ends it.
    """
    link = check_session(session).link
    check_function(fn, "fn")

    def stop() -> None:
        with _changing:
            link.observers = tuple(one for one in link.observers if one is not fn)

    with _changing:
        link.observers = (*link.observers, fn)
    return stop


def tell(link: Link, observation: Observation) -> None:
    """Tell whoever observes. From any thread."""
    for fn in link.observers:
        link.dispatcher.post(fn, observation)
