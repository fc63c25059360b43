"""The golden vectors of the public task format, read in any language."""

import base64
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from zkcoord.core.records import Origin, Priority
from zkcoord.core.wire import Malformed, decode_call, parse
from zkcoord.errors import DecodeError

FOLDER = Path(__file__).parent / "vectors"


def vectors() -> list[Any]:
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        document = json.loads(path.read_text())
        for vector in document["vectors"]:
            case = (document["record"], vector)
            found.append(pytest.param(*case, id=f"{path.stem}: {vector['name']}"))
    assert len(found) > 100
    return found


def content(part: dict[str, str] | None) -> bytes | None:
    if part is None:
        return None
    if "base64" in part:
        return base64.b64decode(part["base64"])
    return None if part["text"] is None else part["text"].encode()


@pytest.mark.parametrize(("record", "vector"), vectors())
def test_vector(record: dict[str, Any], vector: dict[str, Any]) -> None:
    timestamp = datetime.fromisoformat(record["timestamp"]).timestamp()
    priority = Priority[record["class"].upper()]
    origin = Origin(priority, record["partition"], record["offset"], timestamp)
    headers = [(header["name"], content(header)) for header in vector["headers"]]
    key = None if vector["key"] is None else vector["key"].encode()
    value = content(vector["value"])

    read = parse(origin, key, value, headers)

    if "malformed" in vector:
        expected = vector["malformed"]
        assert isinstance(read, Malformed)
        assert read.detail.startswith(expected["detail"])
        assert (read.reason, read.id, read.reply) == (
            expected["reason"],
            expected["id"],
            expected["reply"],
        )
        return
    assert not isinstance(read, Malformed), read
    expected = {
        "key_text": None,
        "expires_at": None,
        "not_before": None,
        "timeout": None,
        "attempts": None,
        "delay": None,
        "tenant": None,
        "requires": [],
        "reply": None,
        "trace": None,
        **vector["task"],
    }
    found = {name: getattr(read, name, None) for name in expected}
    found["key_text"] = None if read.key is None else read.key.decode()
    found["requires"] = list(read.requires)
    assert found == expected
    assert (read.priority, read.origin) == (priority, origin)
    assert (read.value, read.key, read.headers) == (value, key, headers)
    call = decode_call(read.value, read.headers, read.key)
    assert call._asdict() == {"task": read.task, **vector["call"]}


def test_null_value_is_no_call() -> None:
    with pytest.raises(DecodeError, match="not a task"):
        decode_call(b"null", [])
