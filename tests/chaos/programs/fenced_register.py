"""A register in a file that takes no smaller token than it has seen: what a lock's user should be.

One writer at a time by ``flock(2)``; the writes are journalled inside, in their true order.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tests.histories.events import Journal


def store(path: Path, token: int, journal: Journal, *, fenced: bool = True) -> bool:
    """Write under a token; whether it was taken. Without `fenced` it takes everything."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        highest = int(os.pread(file, 32, 0) or b"-1")
        taken = token >= highest or not fenced
        if taken:
            os.pwrite(file, b"%-32d" % token, 0)
        outcome = "ok" if taken else "refused"
        journal.write("store", name=path.name, token=token, text=outcome)
    finally:
        os.close(file)
    return taken
