import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkcoord.core import deadletters
from zkcoord.core.deadletters import KEEP_BYTES, DeadLetter, Kept, curtail
from zkcoord.core.records import Headers, Origin, Source
from zkcoord.errors import DecodeError

ORIGIN = Origin(Source.HIGH, 3, 42, 1_767_225_600.25)

HEADERS = st.lists(
    st.tuples(
        st.text(max_size=10) | st.sampled_from(["zkdead_reason", "zkdead_fact", "ce_id"]),
        st.none() | st.binary(max_size=10),
    ),
    max_size=5,
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)


def letter(**changes: object) -> DeadLetter:
    fields: dict[str, object] = {
        "reason": "exhausted",
        "error": "ValueError: no",
        "fact": "8841.3",
        "origin": ORIGIN,
        "value": b'{"task":"t"}',
        "key": b"k",
        "headers": [("ce_id", b"i"), ("x", b"\xff"), ("x", None)],
        "last": 1_767_225_700.5,
        "id": "i",
        "task": "t",
        "attempts": 5,
    }
    return DeadLetter(**(fields | changes))  # type: ignore[arg-type]


def test_the_original_is_kept_byte_for_byte_and_ours_follows() -> None:
    key, value, headers = deadletters.encode(letter())
    assert (key, value) == (b"k", b'{"task":"t"}')
    assert headers[:3] == [("ce_id", b"i"), ("x", b"\xff"), ("x", None)]
    assert dict(headers[3:]) == {
        "zkdead_reason": b"exhausted",
        "zkdead_error": b"ValueError: no",
        "zkdead_fact": b"8841.3",
        "zkdead_source": b"high/3/42",
        "zkdead_first": b"2026-01-01T00:00:00.250000Z",
        "zkdead_last": b"2026-01-01T00:01:40.500000Z",
        "zkdead_attempts": b"5",
        "zkdead_id": b"i",
        "zkdead_task": b"t",
    }


@given(
    key=st.none() | st.binary(max_size=8),
    value=st.none() | st.binary(max_size=20),
    headers=HEADERS,
    error=TEXT,
    id=st.none() | TEXT,
    task=st.none() | TEXT,
    attempts=st.integers(0, 1000),
    source=st.sampled_from(Source),
)
def test_letters_come_back(source: Source, **fields: object) -> None:
    """Even when the original was a dead letter itself, or pretends to be one."""
    made = letter(**fields, origin=Origin(source, 0, 7, 1.5))
    again = deadletters.decode(*deadletters.encode(made))
    assert again == made
    twice = deadletters.decode(
        *deadletters.encode(letter(headers=deadletters.encode(made)[2], fact="9000.0"))
    )
    assert twice.headers == deadletters.encode(made)[2]


def test_same_letter_same_bytes() -> None:
    assert deadletters.encode(letter()) == deadletters.encode(letter())


def test_a_long_error_is_cut_and_a_bad_one_is_written() -> None:
    read = deadletters.decode(*deadletters.encode(letter(error="e" * 9999)))
    assert len(read.error) == deadletters.ERROR_CHARS_MAX
    assert deadletters.decode(*deadletters.encode(letter(error="\ud800"))).error == "?"


def test_what_fits_is_kept_whole() -> None:
    headers: Headers = [("a", b"b")]
    assert curtail(b"v" * 1000, b"k", headers) == Kept(b"v" * 1000, b"k", headers)
    assert curtail(None, None, []) == Kept(None, None, [])


def test_what_is_too_large_is_cut_and_named_by_its_digest() -> None:
    value = bytes(range(256)) * 8192
    kept = curtail(value, b"k" * 9999, [("x", b"y")])
    assert kept.value == value[:KEEP_BYTES]
    assert (kept.size, kept.sha256) == (len(value), hashlib.sha256(value).hexdigest())
    assert kept.key == b"k" * 4096
    made = letter(value=kept.value, size=kept.size, sha256=kept.sha256)
    read = deadletters.decode(*deadletters.encode(made))
    assert (read.size, read.sha256) == (kept.size, kept.sha256)


def test_a_header_bomb_is_cut_at_a_whole_header() -> None:
    kept = curtail(b"v", None, [("a", b"1"), ("bomb", b"x" * 500_000), ("c", b"3")])
    assert kept.headers == [("a", b"1")]
    assert (kept.value, kept.size) == (b"v", 1)
    assert len(curtail(b"v", None, [("h", b"")] * 100_000).headers) == 64


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("ce_id", b"i")],
        [("zkdead_reason", b"x")],
        [*deadletters.encode(letter())[2], ("zkdead_source", b"nowhere")],
        [*deadletters.encode(letter())[2], ("zkdead_source", b"void/1/1")],
        [*deadletters.encode(letter())[2], ("zkdead_first", b"yesterday")],
        [*deadletters.encode(letter())[2], ("zkdead_attempts", b"\xff")],
    ],
    ids=["none", "foreign", "torn", "source", "class", "time", "number"],
)
def test_what_is_no_dead_letter(headers: Headers) -> None:
    with pytest.raises(DecodeError, match="dead:"):
        deadletters.decode(None, b"", headers)
