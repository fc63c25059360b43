"""Caches of trees, on a real server."""

import random

import pytest
from kazoo.client import KazooClient

from tests.waiting import until
from zkcoord.errors import CacheFull, ConfigError, NameRefused, NodeMissing, SessionClosed
from zkcoord.recipes import NodeAdded, NodeChanged, NodeRemoved, TreeCache, tree_reading
from zkcoord.recipes.tree_diff import NodeDiff
from zkcoord.zk import Session
from zkcoord.zk.call import Call


def put(session: Session, path: str, data: bytes = b"") -> None:
    session.nodes.create(path, data, makepath=True)


def server_side(session: Session, path: str) -> dict[str, tuple[bytes, object]]:
    """The tree as the server has it, read node by node."""
    found: dict[str, tuple[bytes, object]] = {}
    stack = [path]
    while stack:
        one = stack.pop()
        try:
            found[one] = session.nodes.get(one)
            names = session.nodes.children(one)
        except NodeMissing:
            continue
        stack += [f"{one.rstrip('/')}/{name}" for name in names]
    return found


def same(cache: TreeCache, session: Session, path: str) -> bool:
    return {k: tuple(v) for k, v in cache.snapshot().items()} == server_side(session, path)


def test_it_reads_a_tree_and_follows_it(session: Session, other: Session) -> None:
    told: list[NodeDiff] = []
    put(other, "/t/a/x", b"1")
    put(other, "/t/b", b"2")
    with TreeCache(session, "/t", on_change=told.append) as cache:
        cache.wait_ready()
        assert list(cache.snapshot()) == ["/t", "/t/a", "/t/a/x", "/t/b"]
        assert cache.children("/t") == ["a", "b"]
        until(lambda: len(told) == 4)
        assert {type(one) for one in told} == {NodeAdded}
        other.nodes.set("/t/b", b"3")
        put(other, "/t/a/y/z", b"4")
        until(lambda: cache.get("/t/a/y/z") is not None)
        until(lambda: any(isinstance(one, NodeChanged) for one in told))
        other.nodes.delete("/t/a/x")
        until(lambda: any(isinstance(one, NodeRemoved) for one in told))
        until(lambda: same(cache, session, "/t"))  # the versions too
        assert cache.current
        assert cache.size == sum(len(k) + len(v.data) for k, v in cache.snapshot().items()) + len(
            session.link.chroot
        ) * len(cache)
        assert len(session.link.watches) == 1
    until(lambda: len(session.link.watches) == 0)


def test_a_tree_that_is_not_there_yet_or_is_deleted(session: Session, other: Session) -> None:
    with TreeCache(session, "/t") as cache:
        cache.wait_ready()
        assert len(cache) == 0
        assert cache.get("/t") is None
        put(other, "/t/a/b", b"1")
        until(lambda: len(cache) == 3)
        other.nodes.transaction().delete("/t/a/b").delete("/t/a").delete("/t").commit()
        until(lambda: len(cache) == 0)
        assert cache.children("/t") == []
        assert cache.size == 0
        put(other, "/t/a/b", b"2")
        until(lambda: same(cache, session, "/t"))


def test_a_new_life_of_a_path_is_a_removal_and_an_addition(
    session: Session, other: Session
) -> None:
    told: list[NodeDiff] = []
    put(other, "/t/a", b"1")
    with TreeCache(session, "/t", on_change=told.append) as cache:
        cache.wait_ready()
        until(lambda: len(told) == 2)
        other.nodes.transaction().delete("/t/a").create("/t/a", b"2").commit()
        until(lambda: len(told) == 4)
        assert [type(one) for one in told[2:]] == [NodeRemoved, NodeAdded]


def test_the_state_is_that_of_the_server_after_a_storm(session: Session, other: Session) -> None:
    rng = random.Random(11)
    told: list[NodeDiff] = []
    put(other, "/t")
    with TreeCache(session, "/t", on_change=told.append) as cache:
        for _ in range(400):
            path = "/t/" + "/".join(rng.choice("abc") for _ in range(rng.randint(1, 3)))
            kind = rng.randrange(3)
            try:
                if kind == 0:
                    put(other, path, b"new")
                elif kind == 1:
                    other.nodes.set(path, str(rng.random()).encode())
                else:
                    other.nodes.delete(path)
            except Exception:
                continue
        until(lambda: same(cache, other, "/t"))
        until(lambda: _fold(told) == {path: node.data for path, node in cache.snapshot().items()})


def _fold(told: list[NodeDiff]) -> dict[str, bytes]:
    state: dict[str, bytes] = {}
    for one in tuple(told):
        if isinstance(one, NodeRemoved):
            del state[one.path]
        else:
            assert isinstance(one, NodeChanged) == (one.path in state)
            state[one.path] = one.node.data
    return state


def test_depth_and_skip(session: Session, other: Session) -> None:
    for path in ("/t/a/b/c", "/t/tmp-1/x", "/t/keep/locks/q"):
        put(other, path, b"1")
    with TreeCache(session, "/t", depth=2, skip=["tmp-*", "*/locks"]) as cache:
        cache.wait_ready()
        assert list(cache.snapshot()) == ["/t", "/t/a", "/t/a/b", "/t/keep"]
        put(other, "/t/tmp-2/y")
        put(other, "/t/a/b/d")
        put(other, "/t/last")
        until(lambda: cache.get("/t/last") is not None)
        assert list(cache.snapshot()) == ["/t", "/t/a", "/t/a/b", "/t/keep", "/t/last"]
        until(lambda: (found := cache.get("/t/a/b")) is not None and found.stat.children == 2)
    with TreeCache(session, "/t", depth=0) as cache:
        cache.wait_ready()
        assert list(cache.snapshot()) == ["/t"]


def test_bounds_end_it_with_an_error(session: Session, other: Session) -> None:
    for number in range(20):
        put(other, f"/t/{number}", b"." * 100)
    many = TreeCache(session, "/t", nodes_max=10)
    with pytest.raises(CacheFull, match="10 nodes"):
        many.wait_ready()
    with pytest.raises(CacheFull):
        many.get("/t")
    with pytest.raises(CacheFull):
        TreeCache(session, "/t", bytes_max=1000).wait_ready()
    with TreeCache(session, "/t", nodes_max=22) as cache:
        cache.wait_ready()
        put(other, "/t/a")
        put(other, "/t/b")
        until(lambda: isinstance(cache.error, CacheFull))
    until(lambda: len(session.link.watches) == 0)


def test_so_many_requests_are_on_their_way_at_a_time(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_reading, "WINDOW", 4)
    for number in range(30):
        put(other, f"/t/{number % 5}/{number}")
    flying: list[int] = []
    submit = session.link._connection.submit

    def spy(call: Call) -> None:
        flying.append(len(cache._reading._flying))
        submit(call)

    session.link._connection.submit = spy  # type: ignore[method-assign]
    with TreeCache(session, "/t") as cache:
        cache.wait_ready()
        assert len(cache) == 36
    assert max(flying) == 4


def test_bad_input(session: Session) -> None:
    with pytest.raises(NameRefused):
        TreeCache(session, "t")
    for wrong in ({"depth": -1}, {"nodes_max": 0}, {"bytes_max": 0}, {"skip": "*"}):
        with pytest.raises(ConfigError):
            TreeCache(session, "/t", **wrong)  # type: ignore[arg-type]
    cache = TreeCache(session, "/t")
    cache.wait_ready()
    session.close()
    with pytest.raises(SessionClosed):
        TreeCache(session, "/t")


def test_it_goes_on_after_a_lost_session(zookeeper: str, session: Session, other: Session) -> None:
    told: list[NodeDiff] = []
    put(other, "/t/a/x", b"1")
    put(other, "/t/b", b"1")
    with TreeCache(session, "/t", on_change=told.append) as cache:
        cache.wait_ready()
        until(lambda: len(told) == 4)
        client, lost = session.link._client, session.lost
        thief = KazooClient(
            zookeeper.split("/", maxsplit=1)[0],
            client_id=(client._session_id, client._session_passwd),
        )
        thief.start(timeout=15)
        thief.stop()
        thief.close()
        assert lost.wait(10)
        other.nodes.set("/t/b", b"2")
        put(other, "/t/c/d", b"3")
        other.nodes.delete("/t/a/x")
        until(lambda: same(cache, other, "/t"))
        until(lambda: len(told) == 8)
        assert sorted((type(one).__name__, one.path) for one in told[4:]) == [
            ("NodeAdded", "/t/c"),
            ("NodeAdded", "/t/c/d"),
            ("NodeChanged", "/t/b"),
            ("NodeRemoved", "/t/a/x"),
        ]


async def test_asyncio(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        await session.nodes.create_future("/t/a/b", makepath=True)
        with TreeCache(session, "/t") as cache:
            await cache.ready_future()
            assert list(cache.snapshot()) == ["/t", "/t/a", "/t/a/b"]
            with pytest.raises(RuntimeError, match="event loop"):
                cache.wait_ready()
