"""Task ids: unique anywhere, and in the order of their making.

48 bits of milliseconds since 1970 and 80 random bits, in 26 characters of Crockford's base 32
(the layout of ULID and, but for the version bits, of UUIDv7, RFC 9562 §5.7). Nothing of the
machine, the process or an agent's name is in them.
"""

from __future__ import annotations

import os
import time
from collections import deque

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_TIME_SHIFTS = range(40, -1, -10)
_RANDOM_SHIFTS = range(70, -1, -10)
_RANDOM_BYTES = 10
_AHEAD = 256

# Drawn ahead: each question to the system lets go of the interpreter and waits to get it back.
_drawn: deque[str] = deque()
os.register_at_fork(after_in_child=_drawn.clear)  # or parent and child would use the same


def new_id() -> str:
    """An id that nobody else has. Sorts after those made in earlier milliseconds."""
    try:
        randomness = _drawn.pop()
    except IndexError:
        randomness = _draw()
    return _time(time.time_ns() // 1_000_000) + randomness


def encode(milliseconds: int, randomness: int) -> str:
    """The id of 48 bits of time and 80 of randomness; what exceeds these is cut off."""
    return _time(milliseconds & (2**48 - 1)) + _random(randomness & (2**80 - 1))


def _time(milliseconds: int) -> str:
    return "".join([_PAIRS[milliseconds >> shift & 1023] for shift in _TIME_SHIFTS])


def _random(randomness: int) -> str:
    return "".join([_PAIRS[randomness >> shift & 1023] for shift in _RANDOM_SHIFTS])


def _draw() -> str:
    """Fill the store; one of what was drawn."""
    drawn = os.urandom(_RANDOM_BYTES * _AHEAD)
    numbers = [
        int.from_bytes(drawn[at : at + _RANDOM_BYTES]) for at in range(0, len(drawn), _RANDOM_BYTES)
    ]
    _drawn.extend(map(_random, numbers[1:]))
    return _random(numbers[0])
