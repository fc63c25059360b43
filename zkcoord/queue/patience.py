"""Ask again while a partition has no leader: after a creation, or while leaders move."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from zkcoord.errors import BrokerUnavailable

T = TypeVar("T")

PAUSE_S = 0.1


def patiently(call: Callable[[float], T], until: float) -> T:
    """What ``call(seconds left)`` returns, asked again until `until` (monotonic).

    Raises:
        BrokerUnavailable: the last try's, when there is no time left for another.
    """
    while True:
        try:
            return call(max(0.01, until - time.monotonic()))
        except BrokerUnavailable:
            if time.monotonic() + PAUSE_S >= until:
                raise
            time.sleep(PAUSE_S)
