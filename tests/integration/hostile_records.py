"""Records that strangers may write to a queue's topics, by what is wrong with them."""

from __future__ import annotations

from typing import Any

import msgspec

from zkcoord.core.records import Headers

GOOD = b'{"task":"noop"}'
CLOUD = [("ce_specversion", b"1.0"), ("ce_source", b"/x"), ("ce_type", b"zkcoord.task.submit.v1")]
EVENT = [("content-type", b"application/cloudevents+json")]


def event(**members: Any) -> bytes:
    whole = {
        "specversion": "1.0",
        "id": "x",
        "source": "/x",
        "type": "zkcoord.task.submit.v1",
        "data": {"task": "noop"},
    }
    return msgspec.json.encode({k: v for k, v in (whole | members).items() if v is not None})


def headers(**attributes: bytes) -> Headers:
    return [*CLOUD, *((f"ce_{name}", value) for name, value in attributes.items())]


MALFORMED: dict[str, tuple[bytes | None, Headers]] = {
    "malformed JSON": (b'{"task":"noop"', []),
    "two JSON values": (b'{"task":"noop"} {}', []),
    "wrong UTF-8": (b'{"task":"noop","args":["\xff\xfe"]}', []),
    "wrong UTF-8 in a member that is skipped": (b'{"task":"noop","x":"\xc3\x28"}', []),
    "half a surrogate": (b'{"task":"noop","x":"\xed\xa0\x80"}', []),
    "UTF-16": ('{"task":"noop"}'.encode("utf-16"), []),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD, []),
    "null": (None, []),
    "empty": (b"", []),
    "blank": (b"   ", []),
    "a zero byte": (b"\x00", []),
    "an array": (b'["noop"]', []),
    "a number": (b"42", []),
    "a text": (b'"noop"', []),
    "JSON null": (b"null", []),
    "no task": (b'{"args":[1]}', []),
    "an empty task name": (b'{"task":""}', []),
    "a task name that cannot be printed": (b'{"task":"no\\u0000op"}', []),
    "a task name of a megabyte": (b'{"task":"' + b"n" * 700_000 + b'"}', []),
    "arguments that are no list": (b'{"task":"noop","args":{"a":1}}', []),
    "NaN": (b'{"task":"nap","kwargs":{"seconds":NaN}}', []),
    "infinity": (b'{"task":"nap","kwargs":{"seconds":-Infinity}}', []),
    "1e999": (b'{"task":"nap","kwargs":{"seconds":1e999}}', []),
    "a hundred levels": (b'{"task":"noop","args":' + b"[" * 100 + b"]" * 100 + b"}", []),
    "levels without end": (b'{"task":"noop","args":' + b"[" * 300_000, []),
    "braces without end": (b'{"a":' * 100_000 + b"1", []),
    "levels in a member that is skipped": (
        b'{"task":"noop","x":' + b"[" * 90_000 + b"]" * 90_000 + b"}",
        [],
    ),
    "an id that cannot be printed": (GOOD, headers(id=b"a\x00b\nc")),
    "an id that is not UTF-8": (GOOD, headers(id=b"\xff")),
    "an id of 10 kB": (GOOD, headers(id=b"i" * 10_000)),
    "an id of ours": (GOOD, headers(id=b"#position")),
    "an id of 700 kB in an event": (event(id="i" * 700_000), EVENT),
    "an id that turns text around": (event(id="a\u202eb"), EVENT),
    "binary of another version": (GOOD, [("ce_specversion", b"2.0"), ("ce_id", b"x")]),
    "an event of another version": (event(specversion="0.3"), EVENT),
    "an event without a version": (event(specversion=None), EVENT),
    "an event of a later type": (event(type="zkcoord.task.submit.v2"), EVENT),
    "an event whose data is not base64": (event(data=None, data_base64="%%%"), EVENT),
    "a batch of events": (b"[]", [("content-type", b"application/cloudevents-batch+json")]),
    "Avro": (GOOD, [("content-type", b"application/avro")]),
    "Latin-1": (GOOD, [("content-type", b"application/json; charset=iso-8859-1")]),
    "data elsewhere": (
        event(data=None, zktask="noop", dataref="https://example.org/data"),
        EVENT,
    ),
    "no attempts": (GOOD, headers(zkmaxattempts=b"0")),
    "attempts that are no number": (GOOD, headers(zkmaxattempts=b"1e9")),
    "a time limit below zero": (GOOD, headers(zktimeoutms=b"-1")),
    "a delay that is not a number": (GOOD, headers(zkbackoff=b"nan")),
    "a deadline that is no time": (GOOD, headers(expirytime=b"tomorrow")),
    "a start in a thousand years": (GOOD, headers(zknotbefore=b"3000-01-01T00:00:00Z")),
}


LARGE: dict[str, tuple[bytes, Headers, bytes | None]] = {
    "a body above our limit": (b'{"task":"noop","x":"' + b"x" * 1_000_000 + b'"}', [], None),
    "a key above our limit": (GOOD, [], b"k" * 900_000),
    "a header bomb": (GOOD, [(f"h{n}", b"x") for n in range(10_000)], None),
    "one header, repeated": (GOOD, [("ce_id", b"x")] * 10_000, None),
    "a huge header": (GOOD, [("x", b"x" * 900_000)], None),
    "a huge name": (GOOD, [("x" * 900_000, b"")], None),
    "an id of a megabyte": (GOOD, headers(id=b"i" * 1_000_000), None),
}


GARBAGE: dict[str, bytes | None] = {
    "null": None,
    "empty": b"",
    "text": b"hello",
    "bytes": bytes(range(256)),
    "an endless msgpack array": b"\xdd\xff\xff\xff\xff",
    "msgpack without end": b"\x91" * 500_000,
    "a later version": msgspec.msgpack.encode([99, 0, 0, "a", 0, []]),
    "a map": msgspec.msgpack.encode({"version": 1}),
    "JSON without end": b"[" * 500_000,
    "an unknown action": b'{"action":"explode","id":"x"}',
}
