"""Hostile and random records: `parse` answers, and agents read what it accepts."""

import json
import math
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkcoord.core.records import Headers, Origin, Priority, Submission
from zkcoord.core.wire import (
    STRUCTURED_HEADERS,
    Draft,
    Limits,
    Malformed,
    decode_call,
    encode,
    parse,
)
from zkcoord.errors import DecodeError


class Measure(msgspec.Struct):
    value: float


ORIGIN = Origin(Priority.LOW, 1, 7, 1_767_225_600.0)

NAMES = st.sampled_from(
    [
        "content-type",
        "traceparent",
        "zkattempt",
        *(
            "ce_" + name
            for name in [
                "specversion",
                "id",
                "source",
                "type",
                "time",
                "zktask",
                "zknotbefore",
                "expirytime",
                "zktimeoutms",
                "zkmaxattempts",
                "zkattempt",
                "zkbackoff",
                "zktenant",
                "zkrequires",
                "zkreplyto",
                "traceparent",
                "dataref",
            ]
        ),
    ]
) | st.text(max_size=8)
TEXTS = (
    st.sampled_from(
        [
            "1.0",
            "t",
            "application/json",
            "application/cloudevents+json",
            "application/cloudevents",
            "5",
            "-1",
            "1e9",
            "nan",
            "2026-01-01T00:00:00Z",
            "zkcoord.task.submit.v1",
            "zkcoord.task.submit.v9",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "#x",
            "a,b",
            ";charset=x",
        ]
    )
    | st.text(max_size=20)
).map(lambda text: text.encode(errors="ignore"))
HEADERS = st.lists(st.tuples(NAMES, st.none() | TEXTS | st.binary(max_size=12)), max_size=8)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)
MEMBERS = st.sampled_from(
    [
        "task",
        "args",
        "kwargs",
        "data",
        "specversion",
        "id",
        "type",
        "datacontenttype",
        "zktask",
        "zknotbefore",
        "expirytime",
        "zktimeoutms",
        "zkmaxattempts",
        "zkbackoff",
        "zktenant",
        "zkrequires",
        "zkreplyto",
        "traceparent",
        "dataref",
        "data_base64",
    ]
)
OBJECTS = st.dictionaries(MEMBERS, JSON | st.sampled_from(["1.0", "t", "5", {"task": "t"}]))
VALUES = (
    st.none()
    | st.binary(max_size=40)
    | JSON.map(lambda value: json.dumps(value).encode())
    | OBJECTS.map(lambda value: json.dumps({"task": "t", **value}).encode())
    | OBJECTS.map(
        lambda value: json.dumps({"specversion": "1.0", **value}, ensure_ascii=False)
    ).map(lambda value: value.encode(errors="surrogatepass"))
)


def check(key: bytes | None, value: bytes | None, headers: Headers) -> Submission | Malformed:
    read = parse(ORIGIN, key, value, headers)
    if isinstance(read, Malformed):
        assert read.reason in ("malformed", "too_large")
        assert read.detail
        assert len(read.detail) < 500
        # It goes into a log record and into a dead letter.
        msgspec.msgpack.encode(read)
        return read
    assert value is not None
    call = decode_call(value, headers, key)
    assert call.task == read.task
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(read), type=Submission) == read
    assert 0 < len(read.id.encode()) <= 200
    assert not read.id.startswith("#")
    return read


@settings(max_examples=400, deadline=None)
@given(key=st.none() | st.binary(max_size=8), value=VALUES, headers=HEADERS)
def test_never_raises_and_agents_read_what_is_accepted(
    key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    check(key, value, headers)


@settings(max_examples=400, deadline=None)
@given(value=VALUES, seed=st.integers(0, 2**32))
def test_mutated_events(value: bytes | None, seed: int) -> None:
    rng = random.Random(seed)
    whole = bytearray(value or b'{"specversion":"1.0","id":"i","zktask":"t","data":{"args":[1]}}')
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(whole) + 1)
        whole[at : at + rng.randrange(3)] = rng.choice(
            [b"", b"\xff", b"\\ud800", b"[", b"]", b'"', b"1e999", b"{", b"\x00", b"\xef\xbb\xbf"]
        )
    check(None, bytes(whole), STRUCTURED_HEADERS)


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 700_000,
        b'{"a":' * 140_000,
        b'{"task":"t","args":[' + b"[]," * 200_000 + b"[]]}",
        b'{"task":"t","args":["' + b"\\\\" * 300_000 + b'"]}',
        b'{"task":"t","args":["' + b'\\"[' * 200_000 + b'"]}',
        b'"' * 700_000,
    ],
    ids=["brackets", "members", "flat", "backslashes", "quotes in text", "quotes"],
)
def test_large_hostile_values(value: bytes) -> None:
    check(None, value, [])


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=6), inner)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    args=st.lists(PLAIN, max_size=3).map(tuple),
    kwargs=st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=6), PLAIN, max_size=3),
    expires_at=st.none() | st.integers(0, 2**41).map(lambda ms: ms / 1000),
    timeout=st.none() | st.integers(1, 10**8).map(lambda ms: ms / 1000),
    attempts=st.none() | st.integers(1, 1000),
    delay=st.none() | st.floats(0, 1000),
    reply=st.none() | st.integers(0, 1000),
)
def test_what_we_encode_is_read_back(args: Any, kwargs: Any, **options: Any) -> None:
    draft = Draft(
        id="01JABC", task="mail.send", args=args, kwargs=kwargs, requires=("a", "b"), **options
    )
    value = encode(draft)
    read = check(b"k", value, STRUCTURED_HEADERS)
    assert isinstance(read, Submission)
    for name, expected in options.items():
        assert getattr(read, name) == (expected if expected is None else pytest.approx(expected))
    assert (read.id, read.task, read.requires) == ("01JABC", "mail.send", ("a", "b"))
    call = decode_call(value, STRUCTURED_HEADERS)
    assert (tuple(call.args), call.kwargs) == (args, kwargs)


@pytest.mark.parametrize(
    ("argument", "error", "says"),
    [
        (object(), TypeError, "no JSON form"),
        ({(1, 2): 3}, TypeError, "no JSON form"),
        ("\ud800", ValueError, "lone surrogate"),
        (math.nan, ValueError, "NaN"),
        ([{"deep": (math.inf,)}], ValueError, "NaN"),
        (Measure(math.nan), ValueError, "NaN"),
        (10**5000, ValueError, "cannot become JSON"),
    ],
    ids=["object", "key", "surrogate", "nan", "infinity", "in a dataclass", "digits"],
)
def test_arguments_without_a_json_form(argument: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        encode(Draft(id="i", task="mail.send", args=(argument,)))
    assert "mail.send" in str(caught.value)


def test_arguments_nested_too_deeply() -> None:
    nested: list[Any] = []
    for _ in range(80):
        nested = [nested]
    with pytest.raises(ValueError, match="deep"):
        encode(Draft(id="i", task="t", args=(nested,)))
    nested.append(nested)
    with pytest.raises(ValueError, match="t"):
        encode(Draft(id="i", task="t", args=(nested,)))


def test_limits_hold_at_their_edge() -> None:
    limits = Limits(value_bytes_max=12)
    assert isinstance(parse(ORIGIN, None, b'{"task":"t"}', [], limits), Submission)
    refused = parse(ORIGIN, None, b'{"task":"tt"}', [], limits)
    assert isinstance(refused, Malformed)
    assert refused.reason == "too_large"
    with pytest.raises(DecodeError, match="13 bytes"):
        decode_call(b'{"task":"tt"}', [], None, limits)
    wide = Limits(value_bytes_max=800_000)
    large = b'{"task":"t","args":["' + b"x" * 799_000 + b'"]}'
    assert isinstance(parse(ORIGIN, None, large, [], wide), Submission)
    assert len(decode_call(large, []).args[0]) == 799_000  # agents do not know the queue's bound
