"""Records of the `dead` topic: what could not be done, with its original bytes and why.

Key, value and headers are the original record's, byte for byte, followed by our own headers:

=====================  =========================================================================
``zkdead_reason``      ``malformed``, ``too_large``, ``overload``, ``unknown_task``, ``exhausted``,
                       ``expired``, ``crashes``, ``not_retriable`` and others, one word
``zkdead_error``       for people, at most 4096 characters
``zkdead_fact``        ``<log offset>.<place in the batch>``: the same fact, the same letter
``zkdead_id``          the task's id, when there is one
``zkdead_task``        the handler's name, when known
``zkdead_attempts``    attempts made
``zkdead_first``       when the record was written, RFC 3339
``zkdead_last``        when it was given up, RFC 3339
``zkdead_source``      ``<class>/<partition>/<offset>``: where the record stood
``zkdead_sha256``      when something was cut off: of the original value
``zkdead_size``        likewise: bytes of the original value
=====================  =========================================================================

What is too large to keep is cut (:func:`curtail`): the value to its first 64 kB, the headers to the
first that fit. A letter may come more than once: readers go by `zkdead_fact`.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from zkcoord.core import attributes
from zkcoord.core.attributes import LIMITS, Limits
from zkcoord.core.records import Headers, Origin, Source
from zkcoord.errors import DecodeError

PREFIX = "zkdead_"
KEEP_BYTES = 64 * 1024
ERROR_CHARS_MAX = 4096

_FIRST_HEADER = PREFIX + "reason"


class Kept(NamedTuple):
    """What of a record is kept. `size` and `sha256` speak of the whole value when it was cut."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    size: int = 0
    sha256: str = ""


class DeadLetter(msgspec.Struct, frozen=True):
    """One dead letter. Times are seconds since 1970.

    Attributes:
        reason: one word.
        error: what went wrong, for people.
        fact: ``<log offset>.<place in the batch>``, the letter's identity.
        origin: where the record stood; its timestamp is when it was written.
        value, key, headers: the original, byte for byte unless `size` says otherwise.
        last: when it was given up.
        id, task: as far as known.
        attempts: attempts made.
        size, sha256: of the whole original value when something was cut off; else 0 and empty.
    """

    reason: str
    error: str
    fact: str
    origin: Origin
    value: bytes | None
    key: bytes | None
    headers: Headers
    last: float
    id: str | None = None
    task: str | None = None
    attempts: int = 0
    size: int = 0
    sha256: str = ""


def curtail(
    value: bytes | None, key: bytes | None, headers: Headers, limits: Limits = LIMITS
) -> Kept:
    """What intake keeps of a record it refuses, so that no record can fill the log."""
    bounded_key = key if key is None else key[: limits.key_bytes_max]
    bounded_headers = _fitting(headers, limits)
    whole_value = value is None or len(value) <= limits.value_bytes_max
    if whole_value and bounded_key == key and len(bounded_headers) == len(headers):
        return Kept(value, key, headers)
    return Kept(
        value if whole_value or value is None else value[:KEEP_BYTES],
        bounded_key,
        bounded_headers,
        len(value or b""),
        hashlib.sha256(value or b"").hexdigest(),
    )


def encode(letter: DeadLetter) -> tuple[bytes | None, bytes | None, Headers]:
    """Key, value and headers of the record. A function of the letter alone."""
    ours: list[tuple[str, str]] = [
        (_FIRST_HEADER, letter.reason),
        (PREFIX + "error", letter.error[:ERROR_CHARS_MAX]),
        (PREFIX + "fact", letter.fact),
        (PREFIX + "source", source(letter.origin)),
        (PREFIX + "first", attributes.timestamp(letter.origin.timestamp)),
        (PREFIX + "last", attributes.timestamp(letter.last)),
        (PREFIX + "attempts", str(letter.attempts)),
    ]
    if letter.id is not None:
        ours.append((PREFIX + "id", letter.id))
    if letter.task is not None:
        ours.append((PREFIX + "task", letter.task))
    if letter.sha256:
        ours += [(PREFIX + "sha256", letter.sha256), (PREFIX + "size", str(letter.size))]
    written = [(name, text.encode(errors="replace")) for name, text in ours]
    return letter.key, letter.value, [*letter.headers, *written]


def decode(key: bytes | None, value: bytes | None, headers: Headers) -> DeadLetter:
    """Read a record of the `dead` topic.

    Raises:
        DecodeError: the headers are not those of a dead letter.
    """
    # A letter that died again has an older block of ours among its original headers.
    start = max((i for i, (name, _) in enumerate(headers) if name == _FIRST_HEADER), default=None)
    if start is None:
        raise DecodeError(f"dead: no header {_FIRST_HEADER}")
    try:
        ours = {name[len(PREFIX) :]: (raw or b"").decode() for name, raw in headers[start:]}
        return DeadLetter(
            reason=ours["reason"],
            error=ours["error"],
            fact=ours["fact"],
            origin=_origin(ours["source"], attributes.moment(PREFIX + "first", ours["first"])),
            value=value,
            key=key,
            headers=headers[:start],
            last=attributes.moment(PREFIX + "last", ours["last"]),
            id=ours.get("id"),
            task=ours.get("task"),
            attempts=int(ours["attempts"]),
            size=int(ours.get("size", "0")),
            sha256=ours.get("sha256", ""),
        )
    except (KeyError, ValueError, attributes.Unreadable) as error:
        raise DecodeError(f"dead: headers are not those of a dead letter: {error}") from error


def source(origin: Origin) -> str:
    """Where a record stood: ``<class>/<partition>/<offset>``."""
    return f"{Source(origin.source).name.lower()}/{origin.partition}/{origin.offset}"


def _origin(where: str, timestamp: float) -> Origin:
    name, partition, offset = where.split("/")
    return Origin(Source[name.upper()].value, int(partition), int(offset), timestamp)


def _fitting(headers: Headers, limits: Limits) -> Headers:
    kept: Headers = []
    left = limits.headers_bytes_max
    for name, value in headers[: limits.headers_max]:
        left -= len(name) + len(value or b"")
        if left < 0:
            break
        kept.append((name, value))
    return kept
