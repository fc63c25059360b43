"""The public task format: what any producer may put on a priority topic, and what we put there.

Any UTF-8 JSON object on a priority topic is a task; the topic is its priority. Three forms are
read (CloudEvents 1.0.2, Kafka protocol binding 1.0.2):

``structured``
    header ``content-type: application/cloudevents+json``; the value is the whole event. Our own
    submitter writes this form: one header is cheaper than eight.
``binary``
    headers ``ce_<attribute>``; the value is the event's data.
``bare``
    no CloudEvents at all: just the data, ``{"task": "mail.send", "args": [1], "kwargs": {}}``.
    ``ce_`` headers refine it all the same.

The attribute ``zktask`` overrides the data's ``task``. A record without an id gets
``<class>/<partition>/<offset>``, which is the same however often it is read. Of a repeated header
the last counts. ``zkattempt`` is ours and ignored. Unknown attributes and members are ignored;
so are ``zkdedupe`` and ``zkconcurrency``, which are reserved. Ids are to be unique within a queue:
a record whose id belongs to a live task is dropped.

Everything here is pure. :func:`parse` never raises, whatever the bytes: it returns `Malformed`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from zkcoord.core import attributes
from zkcoord.core.attributes import LIMITS, Limits, Unreadable
from zkcoord.core.drafts import Draft, encode
from zkcoord.core.events import (
    EVENT_TYPE,
    STRUCTURED,
    STRUCTURED_HEADERS,
    Call,
    Event,
    read_call,
    read_event,
)
from zkcoord.core.records import Headers, Origin, Priority, Submission
from zkcoord.errors import DecodeError

__all__ = [
    "CLASS_NAMES",
    "EVENT_TYPE",
    "LIMITS",
    "STRUCTURED_HEADERS",
    "Call",
    "Draft",
    "Limits",
    "Malformed",
    "decode_call",
    "encode",
    "fallback_id",
    "parse",
]

CLASS_NAMES = tuple(priority.name.lower() for priority in Priority)

_ANY_SIZE = Limits(value_bytes_max=2**31)
_HOSTILE = (msgspec.MsgspecError, RecursionError, ValueError, OverflowError)


class Malformed(msgspec.Struct, frozen=True):
    """A record that is no task.

    Attributes:
        reason: ``malformed`` or ``too_large``; the dead letter's reason.
        detail: one sentence that starts with the part at fault.
        id: the task's id, as far as it could be read.
        reply: partition of `results` on which the submitter listens, as far as it could be read.
    """

    reason: str
    detail: str
    id: str | None = None
    reply: int | None = None


class _Identity(msgspec.Struct, gc=False):
    """The two members worth saving from an event that cannot be read as a whole."""

    id: Any = None
    zkreplyto: Any = None


_decode_identity = msgspec.json.Decoder(_Identity).decode


def parse(
    origin: Origin,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    limits: Limits = LIMITS,
) -> Submission | Malformed:
    """Read a record of a priority topic. Never raises, whatever the bytes.

    `origin.source` is the priority. The bytes of key, value and headers are kept as they are.
    """
    try:
        event = read_event(key, value, headers, limits)
        return _submission(event, origin, key, value or b"", headers, limits)
    except Unreadable as refusal:
        return _malformed(refusal.reason, refusal.detail, value, headers, limits)
    except _HOSTILE as error:
        return _malformed("malformed", f"value: {_explain(error, value)}", value, headers, limits)


def decode_call(
    value: bytes, headers: Headers, key: bytes | None = None, limits: Limits = _ANY_SIZE
) -> Call:
    """What a submission asks to run. Consistent with :func:`parse`: what that accepts, this reads.

    Intake has judged the size by the queue's own bound, so here none is set.

    Raises:
        DecodeError: the record is no task.
    """
    try:
        event = read_event(key, value, headers, limits)
        return read_call(event, limits)
    except Unreadable as refusal:
        raise DecodeError(f"not a task: {refusal.detail}") from None
    except _HOSTILE as error:
        raise DecodeError(f"not a task: value: {_explain(error, value)}") from error


def _submission(
    event: Event,
    origin: Origin,
    key: bytes | None,
    value: bytes,
    headers: Headers,
    limits: Limits,
) -> Submission:
    read = Submission(
        id=attributes.identifier(event.id, limits) if event.id else fallback_id(origin),
        task=read_call(event, limits).task,
        priority=origin.source,
        origin=origin,
        value=value,
        key=key,
        headers=headers,
    )
    if event.zktenant is not None:
        read.tenant = attributes.label("zktenant", event.zktenant, limits.tenant_chars_max)
    if event.zkrequires is not None:
        read.requires = attributes.capabilities(event.zkrequires, limits)
    if event.zkreplyto is not None:
        read.reply = attributes.whole("zkreplyto", event.zkreplyto, 0, limits.reply_max)
    if event.traceparent is not None:
        read.trace = attributes.trace(event.traceparent)
    _read_times(read, event, limits)
    return read


def _read_times(read: Submission, event: Event, limits: Limits) -> None:
    if event.expirytime is not None:
        read.expires_at = attributes.moment("expirytime", event.expirytime)
    if event.zknotbefore is not None:
        read.not_before = attributes.moment("zknotbefore", event.zknotbefore)
        if read.not_before > read.origin.timestamp + limits.horizon_s:
            raise Unreadable(f"zknotbefore: more than {limits.horizon_s / 86400:g} days ahead")
    if event.zktimeoutms is not None:
        longest = int(limits.timeout_s_max * 1000)
        read.timeout = attributes.whole("zktimeoutms", event.zktimeoutms, 1, longest) / 1000
    if event.zkmaxattempts is not None:
        highest = limits.attempts_max
        read.attempts = attributes.whole("zkmaxattempts", event.zkmaxattempts, 1, highest)
    if event.zkbackoff is not None:
        read.delay = attributes.seconds("zkbackoff", event.zkbackoff, limits.delay_s_max)


def fallback_id(origin: Origin) -> str:
    """The id of a record that names none: where it stands. Stable however often it is read."""
    return f"{CLASS_NAMES[origin.source]}/{origin.partition}/{origin.offset}"


def _explain(error: Exception, value: bytes | None) -> str:
    if value is not None and value.startswith(b"\xef\xbb\xbf"):
        return "starts with a byte order mark; JSON must not"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)[:200] or type(error).__name__


def _malformed(
    reason: str, detail: str, value: bytes | None, headers: Headers, limits: Limits
) -> Malformed:
    """With what can be saved of the submitter's identity, so that it may hear of the refusal."""
    identity = _Identity()
    try:
        last = dict(headers)
        if last.get("content-type", b"") == STRUCTURED:
            if value is not None and len(value) <= limits.value_bytes_max:
                identity = _decode_identity(value)
        else:
            identity.id = (last.get("ce_id") or b"").decode()
            identity.zkreplyto = (last.get("ce_zkreplyto") or b"").decode()
    except _HOSTILE:
        pass
    return Malformed(reason, detail, _salvaged_id(identity.id, limits), _salvaged_reply(identity))


def _salvaged_id(value: Any, limits: Limits) -> str | None:
    try:
        return attributes.identifier(value, limits) if isinstance(value, str) and value else None
    except Unreadable:
        return None


def _salvaged_reply(identity: _Identity) -> int | None:
    value = identity.zkreplyto
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return attributes.whole("zkreplyto", value, 0, LIMITS.reply_max)
    except Unreadable:
        return None
