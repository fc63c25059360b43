"""The page on the task format says what the code does."""

import re
from pathlib import Path

from zkcoord.core import deadletters, results
from zkcoord.core.attributes import LIMITS
from zkcoord.core.deadletters import DeadLetter
from zkcoord.core.events import Event
from zkcoord.core.records import Origin, Submission
from zkcoord.core.wire import parse

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "task-format.md").read_text()


def rows(section: str) -> list[str]:
    """The first cells of the table of a section."""
    text = PAGE.partition(f"## {section}")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_attributes() -> None:
    not_for_tasks = {"specversion", "type", "datacontenttype", "dataref", "data", "data_base64"}
    assert set(rows("Submitting")) == set(Event.__struct_fields__) - not_for_tasks


def test_limits() -> None:
    assert (LIMITS.value_bytes_max, LIMITS.key_bytes_max) == (768 * 1024, 4 * 1024)
    assert (LIMITS.headers_max, LIMITS.headers_bytes_max) == (64, 16 * 1024)
    assert (LIMITS.depth_max, LIMITS.id_bytes_max, LIMITS.tenant_chars_max) == (64, 200, 100)
    assert (LIMITS.horizon_s, LIMITS.attempts_max) == (400 * 86400, 1000)


def test_examples_of_tasks() -> None:
    examples = re.findall(
        r"^echo '(.*?)' \|(.*?)(?=\n\n|\n```|\necho)", PAGE, re.MULTILINE | re.DOTALL
    )
    assert len(examples) == 3
    ids = []
    for value, command in examples:
        headers = [
            (name, text.encode()) for name, text in re.findall(r"-H ([\w-]+)=(\S+)", command)
        ]
        read = parse(Origin(1, 0, 5, 1.0), None, value.encode(), headers)
        assert isinstance(read, Submission), read
        assert read.task == "email.send"
        ids.append(read.id)
    assert ids == ["high/0/5", "order-7", "order-7"]


def test_example_of_a_result() -> None:
    (example,) = re.findall(r"```json\n(.*)\n```", PAGE)
    read = results.decode(example.encode())
    assert results.encode(read) == (b"order-7", example.encode())


def test_headers_of_dead_letters() -> None:
    letter = DeadLetter(
        reason="r",
        error="e",
        fact="1.1",
        origin=Origin(0, 0, 0, 1.0),
        value=None,
        key=None,
        headers=[],
        last=1.0,
        id="i",
        task="t",
        sha256="f",
    )
    written = {name for name, _ in deadletters.encode(letter)[2]}
    assert set(rows("Dead letters")) == written
