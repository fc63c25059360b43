"""Caches of trees when links drop: the state is the server's, and only what changed is read."""

import random
import threading
from collections import Counter as Tally
from collections.abc import Iterator
from functools import partial

import pytest
from frame_relay import FrameRelay

from tests import waiting
from zkcoord.errors import NodeMissing
from zkcoord.recipes import TreeCache
from zkcoord.zk import Session

EXISTS, GET_DATA, GET_CHILDREN, ADD_WATCH = 3, 4, 8, 106


until = partial(waiting.until, seconds=15.0)


@pytest.fixture
def other(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, timeout=10, name="other") as session:
        yield session


def server_side(session: Session, path: str) -> dict[str, tuple[bytes, object]]:
    found: dict[str, tuple[bytes, object]] = {}
    stack = [path]
    while stack:
        one = stack.pop()
        try:
            found[one] = session.nodes.get(one)
            stack += [f"{one}/{name}" for name in session.nodes.children(one)]
        except NodeMissing:
            continue
    return found


def held(cache: TreeCache, root: str) -> dict[str, tuple[bytes, object]]:
    return {path.removeprefix(root): tuple(node) for path, node in cache.snapshot().items()}  # type: ignore[misc]


def test_after_a_blip_only_stats_are_asked_for_and_what_changed_is_read(
    zookeeper: str, other: Session
) -> None:
    for number in range(100):
        other.nodes.create(f"/t/{number % 10}/{number}", b"." * 500, makepath=True)
    root = "/" + zookeeper.split("/")[1]
    with (
        FrameRelay(zookeeper) as relay,
        Session(relay.address, timeout=10) as session,
        TreeCache(session, f"{root}/t") as cache,
    ):
        cache.wait_ready()
        assert len(cache) == 111
        bounds: list[tuple[float, float]] = []

        def at_once(least: float, most: float) -> float:
            bounds.append((least, most))
            return 0.0

        cache._reading._rng.uniform = at_once  # type: ignore[method-assign]
        lost = threading.Event()
        session.on_state(lambda state: lost.set() if state == "suspended" else None)
        relay.sent.clear()
        relay.cut()
        assert lost.wait(10)
        until(lambda: cache.current)
        asked = Tally(frame.opcode for frame in relay.requests())
        assert asked == {ADD_WATCH: 1, EXISTS: 111}
        assert bounds == [(0, pytest.approx(0.111))]  # a fleet does not come back at once
        assert len(session.link.watches) == 1

        lost.clear()
        relay.sent.clear()
        relay.cut()
        other.nodes.set("/t/3/3", b"new")
        other.nodes.create("/t/4/new", b"new")
        other.nodes.delete("/t/5/5")
        until(lambda: cache.current and held(cache, root) == server_side(other, "/t"))
        asked = Tally(frame.opcode for frame in relay.requests())
        assert asked[ADD_WATCH] == 1
        assert asked[GET_DATA] <= 4
        assert asked[GET_CHILDREN] <= 3


def test_the_state_is_that_of_the_server_after_many_drops(zookeeper: str, other: Session) -> None:
    rng = random.Random(5)
    other.nodes.create("/t")
    root = "/" + zookeeper.split("/")[1]
    with (
        FrameRelay(zookeeper) as relay,
        Session(relay.address, timeout=10) as session,
        TreeCache(session, f"{root}/t") as cache,
    ):
        for step in range(600):
            path = "/t/" + "/".join(rng.choice("abcd") for _ in range(rng.randint(1, 3)))
            kind = rng.randrange(4)
            try:
                if kind <= 1:
                    other.nodes.create(path, b"new", makepath=True)
                elif kind == 2:
                    other.nodes.set(path, str(rng.random()).encode())
                else:
                    other.nodes.delete(path)
            except Exception:
                pass
            if step % 40 == 39:
                relay.cut()
        until(lambda: cache.current and held(cache, root) == server_side(other, "/t"))
        until(lambda: len(session.link.watches) == 1)
    until(lambda: len(session.link.watches) == 0)
