"""What caches tell of changes."""

import threading

import pytest

from zkcoord.recipes.tree_diff import (
    Cached,
    NodeAdded,
    NodeChanged,
    NodeRemoved,
    Telling,
    difference,
    in_sequence,
)
from zkcoord.recipes.tree_reading import Scope
from zkcoord.zk.loop import Worker
from zkcoord.zk.requests import Stat


def node(czxid: int, mzxid: int, data: bytes = b"") -> Cached:
    return Cached(data, Stat(czxid, mzxid, 0, 0, 0, 0, 0, 0, 0, 0, 0))


ONE, CHANGED, OTHER = node(1, 1), node(1, 2), node(3, 3)


def test_differences() -> None:
    assert difference("/a", None, ONE) == [NodeAdded("/a", ONE)]
    assert difference("/a", ONE, CHANGED) == [NodeChanged("/a", CHANGED, ONE)]
    assert difference("/a", ONE, None) == [NodeRemoved("/a", ONE)]
    assert difference("/a", ONE, OTHER) == [NodeRemoved("/a", ONE), NodeAdded("/a", OTHER)]
    assert difference("/a", ONE, ONE) == difference("/a", None, None) == []


def test_removals_come_first_from_below_and_the_others_from_above() -> None:
    told = in_sequence(
        {"/a": (ONE, OTHER), "/a/b": (ONE, None), "/a/c": (None, ONE), "/b": (None, ONE)}
    )
    assert [(type(one), one.path) for one in told] == [
        (NodeRemoved, "/a/b"),
        (NodeRemoved, "/a"),
        (NodeAdded, "/a"),
        (NodeAdded, "/a/c"),
        (NodeAdded, "/b"),
    ]


def test_a_slow_callback_is_told_of_the_last_state_only() -> None:
    worker = Worker("test")
    worker.start()
    go, told = threading.Event(), []
    worker.post(go.wait)
    telling = Telling(worker, told.append)
    telling.note("/a", None, ONE)
    telling.note("/a", ONE, CHANGED)
    telling.note("/b", None, ONE)
    telling.note("/b", ONE, None)
    go.set()
    done = threading.Event()
    worker.post(done.set)
    assert done.wait(5)
    assert told == [NodeAdded("/a", CHANGED)]
    telling.close()
    telling.note("/c", None, ONE)
    worker.stop()
    assert worker.join(5)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("path", "held"),
    [
        ("/r", True),
        ("/r/a", True),
        ("/r/a/b", True),
        ("/r/a/b/c", False),
        ("/r/tmp-1", False),
        ("/r/tmp-1/x", False),
        ("/r/a/locks", False),
        ("/r/locks", True),
    ],
)
def test_scope(path: str, held: bool) -> None:
    scope = Scope("/r", 2, ("tmp-*", "*/locks"), 10, 10)
    assert scope.holds(path) is held
    assert Scope("/", None, ("*",), 1, 1).holds("/") is True
