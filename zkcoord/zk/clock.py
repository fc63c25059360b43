"""The clock of leases and deadlines."""

from __future__ import annotations

import time


def now() -> float:
    """Seconds since boot, the machine's sleep included (CLOCK_BOOTTIME).

    ``time.monotonic`` stops while a laptop or a virtual machine sleeps; the server's does not.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
