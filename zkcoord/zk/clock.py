"""The clock of leases and deadlines."""

from __future__ import annotations

import threading
import time
from functools import partial

now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Seconds since boot, the machine's sleep included (CLOCK_BOOTTIME).

``time.monotonic`` stops while a laptop or a virtual machine sleeps; the server's does not. (No
function of ours: a request looks at the clock a dozen times.)
"""


def countable(timeout: float) -> float:
    """Seconds that a wait of the system's can count: 292 years at most."""
    return min(timeout, threading.TIMEOUT_MAX)
