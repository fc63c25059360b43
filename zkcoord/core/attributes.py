"""The attributes of a submitted task: their limits, and how each is read and written.

Attributes arrive as Kafka headers (bytes) or as members of a JSON event (text or numbers). Every
reader here returns the checked value or raises :class:`Unreadable` with a sentence that names the
attribute. Times are RFC 3339 with an offset; durations are numbers.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

DAY_S = 86400.0

#: An id that starts with this is refused: such keys are ours in compacted topics.
RESERVED_ID_PREFIX = "#"

#: A header of this name stands for headers of which a name is not UTF-8: no client can read them.
UNREADABLE_HEADER = "\ufffd"

_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:)(\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,15}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?", re.ASCII)


class Unreadable(Exception):
    """A record that is no task. Never leaves `core`: it becomes a ``Malformed``."""

    def __init__(self, detail: str, *, reason: str = "malformed") -> None:
        super().__init__(detail)
        self.detail = detail
        self.reason = reason


class Limits(msgspec.Struct, frozen=True):
    """Bounds on one submitted record. Sizes are bytes.

    `value_bytes_max` leaves room for a whole task in one record of the log. `depth_max` bounds the
    nesting of JSON, so that no reader's stack depends on what a producer sends.
    """

    value_bytes_max: int = 768 * 1024
    key_bytes_max: int = 4096
    headers_max: int = 64
    headers_bytes_max: int = 16 * 1024
    id_bytes_max: int = 200
    task_chars_max: int = 200
    tenant_chars_max: int = 100
    requires_max: int = 32
    depth_max: int = 64
    horizon_s: float = 400 * DAY_S
    timeout_s_max: float = 7 * DAY_S
    attempts_max: int = 1000
    delay_s_max: float = 30 * DAY_S
    reply_max: int = 100_000


LIMITS = Limits()


def text(name: str, raw: bytes) -> str:
    """A header's value as text."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Unreadable(f"{name}: not UTF-8") from None


def identifier(value: str, limits: Limits) -> str:
    """A task id: printable, bounded, and outside our own key space."""
    if not value.isprintable():
        raise Unreadable("id: holds a character that cannot be printed")
    if len(value) > limits.id_bytes_max or len(value.encode()) > limits.id_bytes_max:
        raise Unreadable(f"id: longer than {limits.id_bytes_max} bytes")
    if value.startswith(RESERVED_ID_PREFIX):
        raise Unreadable(f"id: must not start with {RESERVED_ID_PREFIX!r}")
    return value


def label(name: str, value: str, chars_max: int) -> str:
    """A short printable name: of a task, a tenant, a capability."""
    if not 0 < len(value) <= chars_max or not value.isprintable():
        raise Unreadable(f"{name}: must be 1 to {chars_max} printable characters")
    return value


def moment(name: str, value: str) -> float:
    """An RFC 3339 time as seconds since 1970."""
    match = _RFC3339.fullmatch(value)
    if match is None:
        raise Unreadable(f"{name}: not an RFC 3339 time with an offset: {value[:40]!r}")
    date, minutes, seconds, fraction, offset = match.groups()
    # A leap second counts as the second before it; more than microseconds are cut off.
    seconds = "59" if seconds == "60" else seconds
    fraction = (fraction or "")[:7]
    offset = "+00:00" if offset in "Zz" else offset
    try:
        at = datetime.fromisoformat(f"{date}T{minutes}{seconds}{fraction}{offset}").timestamp()
    except (ValueError, OverflowError):
        raise Unreadable(f"{name}: no such time: {value[:40]!r}") from None
    if at < 0:
        raise Unreadable(f"{name}: before 1970: {value[:40]!r}")
    return at


def timestamp(at: float) -> str:
    """Seconds since 1970 as RFC 3339 in UTC with microseconds at most."""
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def whole(name: str, value: int | str, low: int, high: int) -> int:
    """A whole number within `low` and `high`, as a JSON number or decimal text."""
    if isinstance(value, str):
        if not _DIGITS.fullmatch(value):
            raise Unreadable(f"{name}: not a whole number: {value[:40]!r}")
        value = int(value)
    if not low <= value <= high:
        raise Unreadable(f"{name}: must be within {low} and {high}")
    return value


def seconds(name: str, value: float | str, high: float) -> float:
    """Seconds within 0 and `high`, as a JSON number or decimal text."""
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value):
            raise Unreadable(f"{name}: not a number of seconds: {value[:40]!r}")
        value = float(value)
    if not 0 <= value <= high:
        raise Unreadable(f"{name}: must be within 0 and {high:g} seconds")
    return float(value)


def capabilities(value: str, limits: Limits) -> tuple[str, ...]:
    """A comma-separated list without repeats, in its order; empty entries are left out."""
    found = dict.fromkeys(part for raw in value.split(",") if (part := raw.strip()))
    if len(found) > limits.requires_max:
        raise Unreadable(f"zkrequires: more than {limits.requires_max} capabilities")
    return tuple(label("zkrequires", part, limits.tenant_chars_max) for part in found)


def trace(value: str) -> str | None:
    """A W3C traceparent, or None when it is not one: the trace then starts anew (W3C §3.2.4)."""
    return value if _TRACEPARENT.fullmatch(value) else None
