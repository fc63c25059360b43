"""What a member can do and how busy it is: structured data of a group's members."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import msgspec

from zkcoord.errors import ConfigError
from zkcoord.zk.clock import now
from zkcoord.zk.link import Link
from zkcoord.zk.loop import Timer

CAPABILITIES_MAX = 100
INTERVAL_S = 1.0
INTERVAL_S_MIN = 0.05

_HEAD = b'{"type":"profile"'
_CAPABILITY = re.compile(r"[\w.:/=+-]{1,100}")


class Profile(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="profile"
):
    """What a member publishes about itself, as JSON.

    Attributes:
        capabilities: names such as ``gpu`` or ``region=eu``: letters, digits and ``_.:/=+-``, at
            most a hundred.
        capacity: how much it can do at once, in units of the group's own.
        load: how much of that it does now; above the capacity when it is overloaded.
        data: anything else.

    Raises:
        ConfigError: a capability that is no such name, or a number below 0 or without end, or
            data that are no bytes.
    """

    capabilities: tuple[str, ...] = ()
    capacity: float = 1.0
    load: float = 0.0
    data: bytes = b""

    def __post_init__(self) -> None:
        names: object = self.capabilities
        if isinstance(names, str | bytes):
            raise ConfigError(f"profile: capabilities {names!r}: must be several names, not one")
        if not isinstance(names, tuple | list) or len(names) > CAPABILITIES_MAX:
            raise ConfigError(f"profile: capabilities: at most {CAPABILITIES_MAX} names")
        for name in names:
            if not isinstance(name, str) or not _CAPABILITY.fullmatch(name):
                raise ConfigError(f"profile: capability {name!r}: letters, digits and _.:/=+-")
        check_amount("profile: capacity", self.capacity)
        check_amount("profile: load", self.load)
        data: object = self.data
        if not isinstance(data, bytes):
            raise ConfigError(f"profile: data: must be bytes, not {type(data).__name__}")

    @property
    def free(self) -> float:
        """What is left of the capacity; 0 when it is overloaded."""
        return max(0.0, self.capacity - self.load)

    def can(self, *capabilities: str) -> bool:
        """Whether it has all of these."""
        return set(capabilities) <= set(self.capabilities)

    def with_load(self, load: float) -> Profile:
        """The same with another load."""
        return msgspec.structs.replace(self, load=check_amount("profile: load", load))

    def encode(self) -> bytes:
        """Internal: as a member's data."""
        return _encode(self)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Profile).decode


def read_profile(data: bytes) -> Profile | None:
    """A member's data as a profile; None when it is something else."""
    if not data.startswith(_HEAD):
        return None
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ConfigError):
        return None


def check_amount(what: str, amount: object) -> float:
    """A number that is not below 0 and ends, given back.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise ConfigError(f"{what} {amount!r}: must be a number")
    if not (math.isfinite(amount) and amount >= 0):
        raise ConfigError(f"{what} {amount!r}: must be 0 or more, and finite")
    return amount


def check_interval(interval: object) -> float:
    """Seconds between two reports, given back.

    Raises:
        ConfigError: below 0.05, or no number.
    """
    seconds = check_amount("load_interval", interval)
    if seconds < INTERVAL_S_MIN:
        raise ConfigError(f"load_interval {interval!r}: must be {INTERVAL_S_MIN} s or more")
    return seconds


class LoadReports:
    """At most one write in each interval; of the loads reported meanwhile the last wins.

    Args:
        write: publishes a load. On the loop.
    """

    def __init__(self, link: Link, interval: float, write: Callable[[float], object]) -> None:
        self._link = link
        self._interval = interval
        self._write = write
        self._waiting: float | None = None
        self._written: float | None = None
        self._timer: Timer | None = None
        self._at = 0.0

    def report(self, load: float) -> None:
        """From any thread."""
        self._waiting = load
        self._link.loop.post(self._note)

    def take(self) -> float | None:
        """The load that waits to be written, if there is one; it is not written any more."""
        load, self._waiting = self._waiting, None
        if self._timer is not None:
            self._timer.cancel()
        return load

    def _note(self) -> None:
        if self._timer is None and self._waiting is not None:
            wait = self._at + self._interval - now()
            if wait <= 0:
                self._send()
            else:
                self._timer = self._link.timer(wait, self._send)

    def _send(self) -> None:
        self._timer = None
        load, self._waiting = self._waiting, None
        if load is not None and load != self._written:
            self._written = load
            self._at = now()
            self._write(load)
