"""Several locks at once, on a real server."""

import asyncio
import random
import threading
from functools import partial

import pytest

from tests import waiting
from zkcoord.config import SessionConfig
from zkcoord.errors import (
    AcquireTimeout,
    ConfigError,
    LeaseLost,
    NameRefused,
    NodeMissing,
    SessionClosed,
    SessionFull,
    SessionLost,
)
from zkcoord.recipes import Lease, Lock, contenders
from zkcoord.recipes.multilock import MultiLock
from zkcoord.zk import Session
from zkcoord.zk.call import Call
from zkcoord.zk.clock import now

NAMES = ("a", "b", "c")


until = partial(waiting.until, seconds=20.0)


def queue(session: Session, name: str, root: str = "/locks") -> list[str]:
    try:
        return session.nodes.children(f"{root}/{name}")
    except NodeMissing:
        return []


def lengths(session: Session, names: str = "abc") -> list[int]:
    return [len(queue(session, name)) for name in names]


def nothing_left(session: Session, names: str = "abcdefgh") -> bool:
    """No znode, watch or byte in use."""
    epoch = session.link.epoch
    assert epoch is not None
    return (
        not any(lengths(session, names))
        and len(session.link.watches) == 0
        and session.ephemeral_bytes == 0
        and not epoch._members
    )


def test_one_token_for_all_and_all_are_given_back(session: Session) -> None:
    lease = MultiLock(session, NAMES).acquire(timeout=5)
    assert len(lease.paths) == 3
    stats = [session.nodes.get(path)[1] for path in lease.paths]
    assert {stat.czxid for stat in stats} == {lease.token}
    assert {stat.owner for stat in stats} == {session.id}
    lease.check()
    assert lease.release(timeout=5)
    with pytest.raises(LeaseLost):
        lease.check()
    until(lambda: nothing_left(session))


def test_an_uncontended_acquire_is_one_flight_and_a_release_one_request(session: Session) -> None:
    locks = MultiLock(session, NAMES)
    locks.acquire(timeout=5).release(timeout=5)
    sent: list[str] = []
    submit = session.link._connection.submit

    def spy(call: object) -> None:
        sent.append(call.what.split()[0])  # type: ignore[attr-defined]
        submit(call)

    session.link._connection.submit = spy
    locks.acquire(timeout=5).release(timeout=5)
    # The watches are set behind the grant: they tell when somebody removes a node.
    assert [word for word in sent if word != "watch"] == ["enter", *["children"] * 3, "leave"]
    assert sent[:4] == ["enter", *["children"] * 3]


def test_it_takes_turns_with_single_locks(session: Session, other: Session) -> None:
    lease = MultiLock(session, NAMES).acquire(timeout=5)
    for name in NAMES:
        with pytest.raises(AcquireTimeout, match="held by one"):
            Lock(other, name).acquire(timeout=0)
    future = Lock(other, "b").acquire_future(timeout=10)
    until(lambda: lengths(session) == [1, 2, 1])
    lease.release()
    single = future.wait()
    assert single.token > lease.token
    waiting = MultiLock(session, NAMES).acquire_future(timeout=10)
    until(lambda: lengths(session) == [1, 2, 1])
    assert not waiting.done()
    single.release()
    assert waiting.wait().token > single.token


def test_it_waits_for_all_in_front_in_every_queue(session: Session, other: Session) -> None:
    held = [Lock(other, name).acquire(timeout=5) for name in "aabb"[::2]]
    behind = Lock(other, "a").acquire_future(timeout=20)
    until(lambda: lengths(session) == [2, 1, 0])
    future = MultiLock(session, NAMES).acquire_future(timeout=20)
    until(lambda: lengths(session) == [3, 2, 1])
    until(lambda: len(session.link.watches) == 2)
    held[1].release(timeout=5)
    assert not future.done()
    behind.cancel()  # in the middle of a queue: who is behind it must not take that for its turn
    until(lambda: lengths(session) == [2, 1, 1])
    until(lambda: len(session.link.watches) == 1)
    assert not future.done()
    held[0].release()
    future.wait().release(timeout=5)
    until(lambda: nothing_left(session))


def test_a_try_that_cannot_win_writes_nothing_and_names_the_holder(
    session: Session, other: Session
) -> None:
    held = Lock(other, "b").acquire(timeout=5)
    Lock(session, "c").acquire(timeout=5).release(timeout=5)
    before = [session.nodes.exists(f"/locks/{name}") for name in NAMES]
    with pytest.raises(AcquireTimeout, match="held by two") as caught:
        MultiLock(session, NAMES).acquire(timeout=0)
    assert caught.value.holder.startswith("two (pid ")
    assert [session.nodes.exists(f"/locks/{name}") for name in NAMES] == before
    assert session.ephemeral_bytes == 0
    held.release(timeout=5)
    MultiLock(session, NAMES).acquire(timeout=0).release(timeout=5)
    until(lambda: nothing_left(session))


def test_a_try_that_is_overtaken_between_look_and_write_gives_up_its_places(
    session: Session, other: Session
) -> None:
    Lock(other, "b").acquire(timeout=5).release(timeout=5)
    submit = session.link._connection.submit
    taken: list[Lease] = []

    def overtake(call: Call) -> None:
        if call.what.startswith("enter") and not taken:
            taken.append(Lock(other, "b").acquire(timeout=5))
        submit(call)

    session.link._connection.submit = overtake
    with pytest.raises(AcquireTimeout, match="held by two"):
        MultiLock(session, NAMES).acquire(timeout=0)
    until(lambda: lengths(session) == [0, 1, 0] and session.ephemeral_bytes == 0)
    assert len(session.link.watches) == 0
    taken[0].release(timeout=5)


def test_a_timeout_and_a_cancelled_wait_leave_nothing(session: Session, other: Session) -> None:
    held = Lock(other, "b").acquire(timeout=5)
    with pytest.raises(AcquireTimeout, match=r"locks a, b, c.*held by two") as caught:
        MultiLock(session, NAMES).acquire(timeout=0.4)
    assert caught.value.waited >= 0.4
    until(lambda: lengths(session) == [0, 1, 0])
    future = MultiLock(session, NAMES).acquire_future()
    until(lambda: lengths(session) == [1, 2, 1])
    assert future.cancel()
    until(lambda: lengths(session) == [0, 1, 0])
    held.release(timeout=5)
    until(lambda: nothing_left(session))


def test_removing_one_node_loses_all_and_the_others_go(session: Session, other: Session) -> None:
    lease = MultiLock(session, NAMES).acquire(timeout=5)
    until(lambda: len(session.link.watches) == 3)
    other.nodes.delete(lease.paths[1])
    assert lease.lost.wait(10)
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert caught.value.reason == "removed"
    with pytest.raises(LeaseLost):
        lease.release()
    until(lambda: nothing_left(session))


def test_removing_a_waiting_node_ends_the_waiting_and_the_others_go(
    session: Session, other: Session
) -> None:
    held = [Lock(other, "a").acquire(timeout=5)]
    held.append(Lock(other, "b").acquire(timeout=5))
    middle = Lock(other, "b").acquire_future()
    until(lambda: lengths(session) == [1, 2, 0])
    future = MultiLock(session, NAMES).acquire_future(timeout=20)
    until(lambda: lengths(session) == [2, 3, 1])
    mine = next(s for s in contenders(other, "b") if s.session == session.id)
    other.nodes.delete(f"/locks/b/{mine.node}")
    middle.cancel()  # wakes it: it looks, and is not in that queue any more
    with pytest.raises(LeaseLost) as caught:
        future.wait()
    assert caught.value.reason == "removed"
    for lease in held:
        lease.release(timeout=5)
    until(lambda: nothing_left(session))


def test_guard_needs_all_nodes(session: Session) -> None:
    session.nodes.create("/data", b"0")
    lease = MultiLock(session, NAMES).acquire(timeout=5)
    lease.guard(session.nodes.transaction()).set("/data", b"1").commit()
    session.nodes.delete(lease.paths[2])
    with pytest.raises(NodeMissing):
        lease.guard(session.nodes.transaction()).set("/data", b"2").commit()
    assert session.nodes.get("/data")[0] == b"1"


def test_a_closed_session_ends_leases_and_waiting(session: Session, other: Session) -> None:
    lease = MultiLock(session, ["a", "b"]).acquire(timeout=5)
    future = MultiLock(session, ["b", "c"]).acquire_future()
    until(lambda: lengths(other) == [1, 2, 1])
    session.close()
    assert lease.lost.is_set()
    with pytest.raises((SessionClosed, SessionLost)):
        future.wait()
    with pytest.raises(SessionClosed):
        MultiLock(session, ["a"]).acquire()
    until(lambda: nothing_left(other))


def test_names_are_sorted_and_checked(session: Session, zookeeper: str) -> None:
    locks = MultiLock(session, ["b", "a", "b", "/gpus/0", "/locks/a"])
    assert locks.names == ("/gpus/0", "/locks/a", "b")
    with locks.hold(timeout=5) as lease:
        assert [path.rpartition("/")[0] for path in lease.paths] == [
            "/gpus/0",
            "/locks/a",
            "/locks/b",
        ]
    for names in ([], [f"n{number}" for number in range(101)]):
        with pytest.raises(ConfigError):
            MultiLock(session, names)
    for name in ("", "a/b", "..", "/a//b", "/a/", "n" * 300):
        with pytest.raises(NameRefused):
            MultiLock(session, ["a", name])
    with pytest.raises(TypeError):
        MultiLock(session, "abc")
    with pytest.raises(ConfigError):
        locks.acquire(timeout=-1)
    config = SessionConfig(value_bytes_max=1000)
    refused = pytest.raises(NameRefused, match="in one transaction")
    with Session(zookeeper, config=config) as bounded, refused:
        MultiLock(bounded, ["a", "b"], label="x" * 600).acquire(timeout=5)
    with MultiLock(session, [f"n{number}" for number in range(100)]).hold(timeout=10) as lease:
        assert len({session.nodes.get(path)[1].czxid for path in lease.paths}) == 1


def test_a_full_session_is_an_error_and_counts_nothing(zookeeper: str) -> None:
    config = SessionConfig(timeout_s=10, ephemeral_bytes_max=200)
    with Session(zookeeper, config=config) as session:
        with pytest.raises(SessionFull):
            MultiLock(session, list("abcdefgh")).acquire(timeout=5)
        assert session.ephemeral_bytes == 0
        MultiLock(session, NAMES).acquire(timeout=5).release(timeout=5)
        until(lambda: session.ephemeral_bytes == 0)


async def test_in_asyncio(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        inside = [0]

        async def work(names: list[str]) -> None:
            async with MultiLock(session, names).hold(timeout=20) as lease:
                inside[0] += 1
                assert inside[0] == 1
                await asyncio.sleep(0)
                lease.check()
                inside[0] -= 1

        await asyncio.gather(*(work(["a", name]) for name in "bcdebcde"))
        waiting = asyncio.ensure_future(work(["a", "b"]))
        await waiting
        with pytest.raises(RuntimeError, match="await"):
            MultiLock(session, ["a"]).acquire()


def test_eight_clients_over_random_subsets_progress_without_deadlock(zookeeper: str) -> None:
    """Three of eight locks each, in three sessions, for some seconds."""
    names = "abcdefgh"
    rng = random.Random(7)
    inside: dict[str, int] = dict.fromkeys(names, 0)
    tokens: dict[str, list[int]] = {name: [] for name in names}
    rounds = [0] * 8
    end = now() + 3.0
    failed: list[BaseException] = []

    def work(number: int, session: Session, seed: int) -> None:
        mine = random.Random(seed)
        try:
            while now() < end:
                wanted = mine.sample(names, 3)
                with MultiLock(session, wanted).hold(timeout=30) as lease:
                    for name in wanted:
                        inside[name] += 1
                        tokens[name].append(lease.token)
                    assert all(inside[name] == 1 for name in wanted)
                    for name in wanted:
                        inside[name] -= 1
                rounds[number] += 1
        except BaseException as error:
            failed.append(error)

    sessions = [Session(zookeeper, timeout=10, name=f"s{n}") for n in range(3)]
    for session in sessions:
        session.start()
    threads = [
        threading.Thread(target=work, args=(number, sessions[number % 3], rng.random()))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed, failed
    assert min(rounds) > 0
    assert sum(rounds) > 50
    for seen in tokens.values():
        assert seen == sorted(seen)
    until(lambda: all(nothing_left(session) for session in sessions))
    for session in sessions:
        session.close()
