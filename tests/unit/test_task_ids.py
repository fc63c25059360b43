import os
import time
import warnings

from zkcoord.core.attributes import LIMITS, identifier
from zkcoord.queue.ids import encode, new_id


def test_ids_are_unique_and_in_the_order_of_their_making() -> None:
    found = [new_id() for _ in range(20_000)]
    assert len(set(found)) == len(found)
    milliseconds = [task_id[:10] for task_id in found]
    assert milliseconds == sorted(milliseconds)


def test_an_id_is_an_id_of_the_format() -> None:
    task_id = new_id()
    assert len(task_id) == 26
    assert identifier(task_id, LIMITS) == task_id


def test_text_order_is_number_order() -> None:
    numbers = [(0, 0), (0, 1), (0, 2**80 - 1), (1, 0), (2**40, 7), (2**48 - 1, 2**80 - 1)]
    texts = [encode(*number) for number in numbers]
    assert texts == sorted(texts)
    assert texts[0] == "0" * 26
    assert texts[-1] == "7" + "Z" * 25


def test_the_time_is_the_clocks() -> None:
    before, made, after = (
        encode(time.time_ns() // 1_000_000, 0),
        new_id(),
        encode(time.time_ns() // 1_000_000 + 1, 0),
    )
    assert before <= made < after


def test_a_forked_child_makes_other_ids() -> None:
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other tests' threads may run
        child = os.fork()
    if child == 0:
        os.write(writer, "".join(new_id()[10:] for _ in range(10)).encode())
        os._exit(0)
    mine = {new_id()[10:] for _ in range(10)}
    os.waitpid(child, 0)
    text = os.read(reader, 1000).decode()
    os.close(reader)
    os.close(writer)
    theirs = {text[i : i + 16] for i in range(0, len(text), 16)}
    assert len(theirs) == 10
    assert not mine & theirs
