"""Caches of one node, on a real server."""

import pytest
from kazoo.client import KazooClient

from tests.waiting import until
from zkcoord.errors import NameRefused, SessionClosed, WaitTimeout
from zkcoord.recipes import NodeAdded, NodeCache, NodeChanged, NodeRemoved
from zkcoord.recipes.tree_diff import NodeDiff
from zkcoord.zk import Session


def test_it_follows_a_node_and_tells_what_changes(session: Session, other: Session) -> None:
    told: list[NodeDiff] = []
    with NodeCache(session, "/n", on_change=told.append) as cache:
        cache.wait_ready()
        assert cache.get() is None
        other.nodes.create("/n", b"1")
        until(lambda: len(told) == 1)
        other.nodes.set("/n", b"2")
        until(lambda: len(told) == 2)
        found = cache.get()
        assert found is not None
        assert (found.data, found.stat.version) == (b"2", 1)
        other.nodes.delete("/n")
        until(lambda: len(told) == 3)
        assert cache.get() is None
        assert [type(one) for one in told] == [NodeAdded, NodeChanged, NodeRemoved]
        other.nodes.create("/n", b"3")
        until(lambda: cache.get() is not None)
    until(lambda: len(session.link.watches) == 0)
    found = cache.get()
    assert found is not None
    assert found.data == b"3"


def test_it_goes_on_after_a_lost_session(zookeeper: str, session: Session, other: Session) -> None:
    other.nodes.create("/n", b"1")
    with NodeCache(session, "/n") as cache:
        cache.wait_ready()
        client, lost = session.link._client, session.lost
        thief = KazooClient(
            zookeeper.split("/", maxsplit=1)[0],
            client_id=(client._session_id, client._session_passwd),
        )
        thief.start(timeout=15)
        thief.stop()
        thief.close()
        assert lost.wait(10)
        other.nodes.set("/n", b"2")
        until(lambda: (found := cache.get()) is not None and found.data == b"2")


def test_closing_and_bad_input(session: Session) -> None:
    with pytest.raises(NameRefused):
        NodeCache(session, "n")
    cache = NodeCache(session, "/n")
    with pytest.raises(WaitTimeout):
        cache.wait_ready(timeout=0)
    cache.close()
    session.close()
    with pytest.raises(SessionClosed):
        NodeCache(session, "/n")


def test_the_end_of_the_session_ends_it(session: Session) -> None:
    cache = NodeCache(session, "/n")
    cache.wait_ready()
    session.close()
    until(lambda: isinstance(cache.error, SessionClosed))
    with pytest.raises(SessionClosed):
        cache.get()


async def test_asyncio(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        with NodeCache(session, "/") as cache:
            await cache.ready_future()
            assert cache.get() is not None
            with pytest.raises(RuntimeError, match="event loop"):
                cache.wait_ready()
