"""Asking again while the cluster settles: a partition that is new or moves has no leader yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from zkcoord.errors import BrokerUnavailable

T = TypeVar("T")

SETTLE_S = 5.0
"""How long a partition may be without a leader before that is an error."""
PAUSE_S = 0.1


def ask_until_settled(ask: Callable[[float], T], timeout: float) -> T:
    """`ask` with the seconds left, again after BrokerUnavailable, within `SETTLE_S` and `timeout`.

    Raises:
        BrokerUnavailable: the last try's.
    """
    began = time.monotonic()
    while True:
        try:
            return ask(began + timeout - time.monotonic())
        except BrokerUnavailable:
            if time.monotonic() - began >= min(SETTLE_S, timeout) - PAUSE_S:
                raise
            time.sleep(PAUSE_S)
