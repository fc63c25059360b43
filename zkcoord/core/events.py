"""The forms in which a task may stand in a record, brought to one: an :class:`Event`."""

from __future__ import annotations

import binascii
import re
from typing import Any, NamedTuple, NoReturn

import msgspec

from zkcoord.core import attributes
from zkcoord.core.attributes import Limits, Unreadable
from zkcoord.core.records import Headers

EVENT_TYPE = "zkcoord.task.submit.v1"
STRUCTURED = b"application/cloudevents+json"
#: All headers of a record that our own submitter makes.
STRUCTURED_HEADERS: Headers = [("content-type", STRUCTURED)]

_EVENT_TYPE_FAMILY = "zkcoord.task.submit."
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_BRACES_AS_BRACKETS = bytes.maketrans(b"{}", b"[]")


class Call(NamedTuple):
    """What to run: the task's name and its arguments."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]


class _Data(msgspec.Struct, gc=False):
    task: str | None = None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None


class Event(msgspec.Struct, gc=False):
    """A structured event, and the form to which binary headers are brought."""

    specversion: str | None = None
    id: str | None = None
    type: str | None = None
    datacontenttype: str | None = None
    zktask: str | None = None
    zknotbefore: str | None = None
    expirytime: str | None = None
    zktimeoutms: int | str | None = None
    zkmaxattempts: int | str | None = None
    zkbackoff: float | str | None = None
    zktenant: str | None = None
    zkrequires: str | None = None
    zkreplyto: int | str | None = None
    traceparent: str | None = None
    dataref: str | None = None
    data: _Data | None = None
    data_base64: str | None = None


_decode_data = msgspec.json.Decoder(_Data).decode
_decode_event = msgspec.json.Decoder(Event).decode


def read_event(key: bytes | None, value: bytes | None, headers: Headers, limits: Limits) -> Event:
    """The record as an event, whichever form it has."""
    if value is None:
        raise Unreadable("value: null; a task is a JSON object")
    if len(value) > limits.value_bytes_max:
        raise Unreadable(
            f"value: {len(value)} bytes, more than {limits.value_bytes_max}", reason="too_large"
        )
    if key is not None and len(key) > limits.key_bytes_max:
        raise Unreadable(
            f"key: {len(key)} bytes, more than {limits.key_bytes_max}", reason="too_large"
        )
    if not value.isascii():
        # The JSON reader does not look into members it skips.
        attributes.text("value", value)
    if not is_shallow(value, limits.depth_max):
        raise Unreadable(f"value: nested deeper than {limits.depth_max}")
    if headers == STRUCTURED_HEADERS:
        return _structured(value, {})
    if not headers:
        return Event(data=_decode_data(value))
    return _event_with_headers(value, _known_headers(headers, limits))


def _known_headers(headers: Headers, limits: Limits) -> dict[str, bytes]:
    if len(headers) > limits.headers_max:
        raise Unreadable(
            f"headers: {len(headers)} of them, more than {limits.headers_max}", reason="too_large"
        )
    if headers[0][0] == attributes.UNREADABLE_HEADER:
        raise Unreadable("headers: a name is not UTF-8; they cannot be read or kept")
    size = sum(len(name) + len(value or b"") for name, value in headers)
    if size > limits.headers_bytes_max:
        raise Unreadable(
            f"headers: {size} bytes, more than {limits.headers_bytes_max}", reason="too_large"
        )
    return {name: value for name, value in headers if value is not None}


def _event_with_headers(value: bytes, headers: dict[str, bytes]) -> Event:
    kind = headers.get("content-type")
    media = "" if kind is None else _media_type(attributes.text("content-type", kind))
    if media.startswith("application/cloudevents"):
        if media != "application/cloudevents+json":
            raise Unreadable(f"content-type: {media!r} is not read; send one JSON event a record")
        return _structured(value, headers)
    if media and media != "application/json" and not media.endswith("+json"):
        raise Unreadable(f"content-type: {media[:100]!r} is not JSON")

    def attribute(name: str) -> str | None:
        raw = headers.get("ce_" + name)
        return None if raw is None else attributes.text("ce_" + name, raw)

    if "ce_specversion" in headers:
        _check_version(attribute("specversion"), attribute("type"))
    return Event(
        id=attribute("id"),
        zktask=attribute("zktask"),
        zknotbefore=attribute("zknotbefore"),
        expirytime=attribute("expirytime"),
        zktimeoutms=attribute("zktimeoutms"),
        zkmaxattempts=attribute("zkmaxattempts"),
        zkbackoff=attribute("zkbackoff"),
        zktenant=attribute("zktenant"),
        zkrequires=attribute("zkrequires"),
        zkreplyto=attribute("zkreplyto"),
        traceparent=_traceparent(headers) or attribute("traceparent"),
        dataref=attribute("dataref"),
        data=_decode_data(value),
    )


def _structured(value: bytes, headers: dict[str, bytes]) -> Event:
    event = _decode_event(value)
    _check_version(event.specversion, event.type)
    if event.datacontenttype is not None:
        media = _media_type(event.datacontenttype)
        if media != "application/json" and not media.endswith("+json"):
            raise Unreadable(f"datacontenttype: {media[:100]!r} is not JSON")
    if event.data_base64 is not None:
        event.data = _decode_base64(event.data_base64)
    event.traceparent = _traceparent(headers) or event.traceparent
    return event


def _traceparent(headers: dict[str, bytes]) -> str | None:
    raw = headers.get("traceparent")
    return None if raw is None else attributes.text("traceparent", raw)


def _decode_base64(encoded: str) -> _Data:
    try:
        data = binascii.a2b_base64(encoded.encode(), strict_mode=True)
    except ValueError:
        raise Unreadable("data_base64: not base64") from None
    attributes.text("data_base64", data)
    return _decode_data(data)


def _media_type(value: str) -> str:
    media, _, parameters = value.partition(";")
    for parameter in parameters.lower().split(";"):
        name, _, setting = parameter.partition("=")
        if name.strip() == "charset" and setting.strip(' "') not in ("utf-8", "utf8", "us-ascii"):
            raise Unreadable("content-type: only UTF-8 is read")
    return media.strip().lower()


def _check_version(specversion: str | None, kind: str | None) -> None:
    if specversion != "1.0":
        if specversion is None:
            raise Unreadable("specversion: missing; the event must be CloudEvents 1.0")
        if not specversion.startswith("1."):
            raise Unreadable(f"specversion: {specversion[:20]!r} is not read, 1.0 is")
    if kind is not None and kind != EVENT_TYPE and kind.startswith(_EVENT_TYPE_FAMILY):
        raise Unreadable(f"type: {kind[:60]!r} is not read, {EVENT_TYPE!r} is")


def read_call(event: Event, limits: Limits) -> Call:
    """The task that an event names, and its arguments."""
    data = event.data
    task = event.zktask
    if task is None and data is not None:
        task = data.task
    if task is None:
        _no_task(event)
    if event.dataref is not None and data is None:
        raise Unreadable("dataref: data outside of the record is not read")
    attributes.label("task", task, limits.task_chars_max)
    if data is None:
        return Call(task, [], {})
    return Call(task, data.args or [], data.kwargs or {})


def _no_task(event: Event) -> NoReturn:
    raise Unreadable(
        "task: missing; name it in the data's member 'task' or in the attribute 'zktask'"
        + ("" if event.specversion else " (an event needs its content-type header)")
    )


def is_shallow(value: bytes, depth_max: int) -> bool:
    """Whether valid JSON is nested at most `depth_max` deep; anything for other bytes."""
    if value.count(b"[") + value.count(b"{") <= depth_max:
        return True
    bare = _STRINGS.sub(b"", value) if b'"' in value else value
    tree = bare.translate(_BRACES_AS_BRACKETS, _NOT_BRACKETS)
    for _ in range(depth_max):
        if not tree:
            return True
        tree = tree.replace(b"[]", b"")  # takes the leaves off: one level of nesting
    return not tree
