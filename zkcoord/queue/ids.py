"""Task ids: unique anywhere, and in the order of their making.

48 bits of milliseconds since 1970 and 80 random bits, in 26 characters of Crockford's base 32
(the layout of ULID and, but for the version bits, of UUIDv7, RFC 9562 §5.7). Nothing of the
machine, the process or an agent's name is in them.
"""

from __future__ import annotations

import os
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_SHIFTS = range(120, -1, -10)
_RANDOM_BYTES = 10


def new_id() -> str:
    """An id that nobody else has. Sorts after those made in earlier milliseconds."""
    return encode(time.time_ns() // 1_000_000, int.from_bytes(os.urandom(_RANDOM_BYTES)))


def encode(milliseconds: int, randomness: int) -> str:
    """The id of 48 bits of time and 80 of randomness; what exceeds these is cut off."""
    number = (milliseconds & (2**48 - 1)) << 80 | randomness & (2**80 - 1)
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])
