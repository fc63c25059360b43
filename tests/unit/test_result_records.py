import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkcoord.core import results
from zkcoord.errors import DecodeError


def test_the_record_of_a_success() -> None:
    key, value = results.encode(
        results.succeeded(
            "t1", attempt=2, result=b'{"a":[1]}', started=1.5, finished=2.5, fact="8.1"
        )
    )
    assert key == b"t1"
    assert json.loads(value) == {
        "v": 1,
        "id": "t1",
        "state": "succeeded",
        "attempt": 2,
        "result": {"a": [1]},
        "started": 1.5,
        "finished": 2.5,
        "fact": "8.1",
    }
    read = results.decode(value)
    assert bytes(read.result) == b'{"a":[1]}'
    assert (read.attempt, read.fact) == (2, "8.1")


def test_no_result_reads_as_null() -> None:
    made = results.succeeded("t", attempt=1, result=b"", started=1, finished=2, fact="8.0")
    assert bytes(results.decode(results.encode(made)[1]).result) == b"null"


def test_the_record_of_a_refusal() -> None:
    made = results.ended(
        "t1", "rejected", reason="overload", error="e" * 9999, fact="8.1", retry_after=2.5
    )
    read = results.decode(results.encode(made)[1])
    assert (read.state, read.reason, read.retry_after) == ("rejected", "overload", 2.5)
    assert len(read.error) == results.ERROR_CHARS_MAX
    assert bytes(read.result) == b""


def test_members_of_later_versions_are_ignored() -> None:
    assert results.decode(b'{"v":1,"id":"t","state":"dead","more":{"x":1}}').state == "dead"


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"v":2,"id":"t","state":"dead"}',
        b'{"v":1,"id":"t","state":"great"}',
        b'{"v":1,"id":7,"state":"dead"}',
        b'{"v":1,"id":"t","state":"dead","result":' + b"[" * 100_000,
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_result(value: bytes | None) -> None:
    with pytest.raises(DecodeError, match="results:"):
        results.decode(value)


@given(st.binary(max_size=60))
def test_hostile_results(value: bytes) -> None:
    with pytest.raises(DecodeError):
        results.decode(value)
