"""Every Python program of README and the how-to pages runs, in the order of its page."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pages import DOCS, ROOT, blocks, name_of, pages
from serving import Book

from tests.waiting import until
from zkcoord import KafkaConfig, Queue, TaskFailed
from zkcoord.kafka import Producer

STORY = DOCS / "tutorial" / "first-queue.md"  # test_tutorial.py runs it
FENCING = DOCS / "how-to" / "fence-what-you-write.md"  # test_fencing_page.py runs its programs
GENERATED = DOCS / "reference" / "python.md"
WITH_PROGRAMS = [
    page
    for page in pages()
    if page not in (STORY, FENCING, GENERATED) and any(b.language == "python" for b in blocks(page))
]
MARK = re.compile(r"<!-- docs test: (\w+) -->")
QUEUE = re.compile(r'\bQueue\(\s*"(\w+)"')


@pytest.fixture
def book(zookeeper: str, kafka: str, queue_name: str) -> Iterator[Book]:
    made = Book(zookeeper, kafka, queue_name)
    yield made
    made.close()


def run(page: Path, book: Book) -> None:
    text = page.read_text(encoding="utf-8")
    marks = [(text.count("\n", 0, m.start()) + 1, m[1]) for m in MARK.finditer(text)]
    queue = QUEUE.search(text)
    if queue or marks or ".mail." in text:
        book.serve(queue[1] if queue else "mail")
    for block in blocks(page):
        if block.language != "python":
            continue
        while marks and marks[0][0] < block.line:
            mark(book, marks.pop(0)[1])
        book.run(page, block.text, block.line)
    for _, word in marks:
        mark(book, word)


def mark(book: Book, word: str) -> None:
    """What a comment on a page asks of its test."""
    if word == "agent":
        book.add_agent(book.names.get("queue"))
    else:
        servers = SimpleNamespace(zookeeper=book.zookeeper, kafka=book.kafka)
        book.names[word](servers, "greetings")


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=name_of)
def test_programs_run(page: Path, book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    run(page, book)
    if page.name == "read-dead-letters.md":  # there was none yet: its loop looks once
        with Producer(KafkaConfig(bootstrap=book.kafka), client_id="example") as producer:
            producer.send(f"{book.namespace}.mail.normal", b"not JSON")
            assert producer.flush(30) == 0
        (program,) = [block for block in blocks(page) if block.language == "python"]

        def read() -> bool:
            book.run(page, program.text, program.line)
            return "malformed" in capsys.readouterr().out

        until(read, seconds=60)
    elif page.name == "write-a-handler.md":
        with Queue("shop", kafka=book.kafka, zookeeper=book.zookeeper) as queue:
            for amount, state in ((0, "failed"), (2000, "dead")):
                with pytest.raises(TaskFailed) as caught:
                    queue.submit_raw("charge", (1, amount), attempts=2).result(timeout=60)
                assert caught.value.state == state
    elif page.name == "submit-from-any-language.md":
        with book.inspector() as inspector:
            end = inspector.task_end("mail", "order-7", wait=60).task
            assert (end.state, end.result) == ("succeeded", '"welcome sent to a@example.org"')
    elif page == ROOT / "README.md":
        book.add_agent(book.names["queue"])
        book.names["submit"]()
        book.names["coordinate"]()
        with book.names["queue"]:
            ticket = book.names["train"].options(id="train-1").submit("small")
            assert ticket.result(timeout=60) > 0
