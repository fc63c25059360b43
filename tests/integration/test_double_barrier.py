"""Double barriers, on a real server."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.client import KazooClient

from tests.waiting import until
from zkcoord.errors import (
    ConfigError,
    LeaseLost,
    NameRefused,
    SessionClosed,
    SessionLost,
    WaitTimeout,
)
from zkcoord.recipes import DoubleBarrier
from zkcoord.zk import Session
from zkcoord.zk.call import Call
from zkcoord.zk.requests import GetChildren, Multi

FOLDER = "/double-barriers/b"


def expire(session: Session, zookeeper: str) -> None:
    """Close a session from elsewhere, with its id and password."""
    client = session.link._client
    thief = KazooClient(
        zookeeper.split("/", maxsplit=1)[0],
        client_id=(client._session_id, client._session_passwd),
    )
    thief.start(timeout=15)
    thief.stop()
    thief.close()


def present(session: Session) -> int:
    return len(session.nodes.children(FOLDER)) if session.nodes.exists(FOLDER) else 0


def test_nobody_gets_in_before_all_have_come_and_nobody_out_before_all_are_done(
    session: Session, other: Session
) -> None:
    first = DoubleBarrier(session, "b", 3).enter_future(timeout=20)
    until(lambda: present(other) == 1)
    second = DoubleBarrier(other, "b", 3).enter_future(timeout=20)
    until(lambda: present(session) == 2)
    assert not first.done()
    third = DoubleBarrier(session, "b", 3).enter_future(timeout=20)
    inside = [one.wait() for one in (first, second, third)]
    assert sorted(one.rank for one in inside) == [0, 1, 2]
    assert inside[0].rank == 0
    leaving = [one.finish_future(timeout=20) for one in inside[:2]]
    until(lambda: present(session) == 1)
    assert not any(one.done() for one in leaving)
    inside[2].finish(timeout=20)
    for one in leaving:
        one.wait()
    assert present(session) == 0
    until(lambda: len(session.link.watches) + len(other.link.watches) == 0)
    assert session.ephemeral_bytes == other.ephemeral_bytes == 0


def test_a_wake_up_for_nothing_lets_nobody_in(session: Session, other: Session) -> None:
    waiting = DoubleBarrier(session, "b", 2).enter_future(timeout=20)
    until(lambda: len(session.link.watches) == 1)
    for _ in range(5):
        session.link.loop.post(session.link.watches.reset)
        until(lambda: len(session.link.watches) == 1)
    other.nodes.create(f"{FOLDER}/something-else")
    assert not waiting.done()
    other.nodes.delete(f"{FOLDER}/something-else")
    with DoubleBarrier(other, "b", 2).hold(timeout=20):
        waiting.wait().release()


def test_late_comers_are_of_the_next_round(session: Session, other: Session) -> None:
    first, second = (DoubleBarrier(session, "b", 2).enter_future(timeout=30) for _ in range(2))
    inside = [first.wait(), second.wait()]
    late = DoubleBarrier(other, "b", 2).enter_future(timeout=30)
    until(lambda: present(session) == 3)
    inside[0].release(timeout=5)
    until(lambda: present(session) == 2)  # as many as make a round, but one is of the last one
    assert not late.done()
    finishing = inside[1].finish_future(timeout=10)
    finishing.wait()  # does not wait for who came late
    assert not late.done()
    later = DoubleBarrier(session, "b", 2).enter_future(timeout=30)
    pair = [late.wait(), later.wait()]
    assert [one.rank for one in pair] == [0, 1]
    for one in pair:
        one.release()


def test_a_round_that_two_make_at_once_is_made_once(session: Session, other: Session) -> None:
    """Who is last of it is slow, so one behind takes over; what comes late then has no effect."""
    first = DoubleBarrier(session, "b", 2).enter_future(timeout=30)
    until(lambda: present(session) == 1)
    submit = other.link._connection.submit
    kept: list[Call] = []

    def keep(call: Call) -> None:
        if isinstance(call.request, Multi) and not kept:
            kept.append(call)
        else:
            submit(call)

    other.link._connection.submit = keep  # type: ignore[method-assign]
    second = DoubleBarrier(other, "b", 2).enter_future(timeout=30)
    until(lambda: kept)
    third = DoubleBarrier(session, "b", 2).enter_future(timeout=30)
    inside = first.wait()
    submit(kept[0])
    pair = [inside, second.wait()]
    assert [session.nodes.get(one.path)[1].version for one in pair] == [1, 1]
    assert pair[0]._made == pair[1]._made
    third.cancel()
    for one in pair:
        one.release(timeout=5)


def test_who_finishes_does_not_wait_for_those_of_a_folder_that_was_made_anew(
    session: Session, other: Session
) -> None:
    pair = [DoubleBarrier(where, "b", 2).enter_future(timeout=20) for where in (session, other)]
    mine, theirs = (one.wait() for one in pair)
    submit = session.link._connection.submit
    kept: list[Call] = []

    def keep(call: Call) -> None:
        if isinstance(call.request, GetChildren) and not kept:
            kept.append(call)
        else:
            submit(call)

    session.link._connection.submit = keep  # type: ignore[method-assign]
    finishing = mine.finish_future(timeout=20)
    until(lambda: kept)
    theirs.release(timeout=5)
    until(lambda: present(other) == 0)
    other.nodes.delete(FOLDER)  # as the server does in time; it counts from 0 again
    later = DoubleBarrier(other, "b", 2).enter_future(timeout=20)
    until(lambda: present(other) == 1)
    submit(kept[0])
    finishing.wait()
    assert not later.done()
    later.cancel()


def test_another_node_of_the_same_name_is_not_ours(session: Session, other: Session) -> None:
    waiting = DoubleBarrier(session, "b", 2).enter_future(timeout=20)
    until(lambda: len(session.link.watches) == 1)
    (name,) = other.nodes.children(FOLDER)
    value, _ = other.nodes.get(f"{FOLDER}/{name}")
    again = other.nodes.transaction().delete(f"{FOLDER}/{name}")
    again.create(f"{FOLDER}/{name}", value).commit()
    with pytest.raises(LeaseLost, match="removed"):
        waiting.wait()


def test_many_rounds_one_after_the_other(zookeeper: str) -> None:
    size, rounds = 4, 8
    inside, seen = [0], []
    lock = threading.Lock()

    def work(number: int) -> None:
        rng = random.Random(number)
        with Session(zookeeper, timeout=10, name=f"w{number}") as session:
            barrier = DoubleBarrier(session, "b", size)
            for _ in range(rounds):
                with barrier.hold(timeout=60, leave_timeout=60):
                    with lock:
                        inside[0] += 1
                        seen.append(inside[0])
                    threading.Event().wait(rng.random() * 0.01)
                    with lock:
                        inside[0] -= 1

    with ThreadPoolExecutor(size) as threads:
        list(threads.map(work, range(size)))
    assert len(seen) == size * rounds
    assert max(seen) <= size


def test_a_crowd_makes_rounds_of_the_right_size(session: Session, other: Session) -> None:
    futures = [
        DoubleBarrier(where, "b", 3).enter_future(timeout=60) for where in (session, other) * 6
    ]
    inside = [future.wait() for future in futures]
    rounds: dict[int, list[int]] = {}
    for one in inside:
        rounds.setdefault(one._made, []).append(one.rank)
    assert [sorted(ranks) for ranks in rounds.values()] == [[0, 1, 2]] * 4
    leaving = [one.finish_future(timeout=20) for one in inside]
    for future in leaving:
        future.wait()


def test_who_gives_up_does_not_count(session: Session, other: Session) -> None:
    with pytest.raises(WaitTimeout, match="not 2 came within"):
        DoubleBarrier(session, "b", 2).enter(timeout=0.3)
    cancelled = DoubleBarrier(session, "b", 2).enter_future()
    until(lambda: len(session.link.watches) == 1)
    assert cancelled.cancel()
    until(lambda: present(session) == 0)
    until(lambda: len(session.link.watches) == 0)
    assert session.ephemeral_bytes == 0
    alone = DoubleBarrier(other, "b", 2).enter_future(timeout=20)
    until(lambda: present(session) == 1)
    assert not alone.done()
    alone.cancel()


def test_a_round_that_is_made_at_the_deadline_counts_or_does_not_but_never_half(
    session: Session, other: Session
) -> None:
    rng = random.Random(7)
    for _ in range(15):
        first = DoubleBarrier(session, "b", 2).enter_future(timeout=0.4)
        until(lambda: present(session) == 1)
        threading.Event().wait(rng.uniform(0.1, 0.3))
        second = DoubleBarrier(other, "b", 2).enter_future(timeout=0.6)
        ends = [one.exception() for one in (first, second)]
        assert ends[0] is None or isinstance(ends[0], WaitTimeout)
        assert (ends[0] is None) == (ends[1] is None)
        for one, end in zip((first, second), ends, strict=True):
            if end is None:
                one.result().release(timeout=5)


def test_finishing_in_time(session: Session, other: Session) -> None:
    pair = [DoubleBarrier(where, "b", 2).enter_future(timeout=20) for where in (session, other)]
    mine, theirs = (one.wait() for one in pair)
    with pytest.raises(WaitTimeout, match="1 have not left within"):
        mine.finish(timeout=0.3)
    assert present(other) == 1
    with pytest.raises(LeaseLost, match="released"):
        mine.finish()
    theirs.finish(timeout=5)


def test_a_lost_session_raises_everywhere(zookeeper: str, session: Session, other: Session) -> None:
    waiting = DoubleBarrier(session, "b", 2).enter_future(timeout=30)
    until(lambda: len(session.link.watches) == 1)
    expire(session, zookeeper)
    with pytest.raises(SessionLost):
        waiting.wait()
    pair = [DoubleBarrier(where, "b", 2).enter_future(timeout=20) for where in (session, other)]
    mine, theirs = (one.wait() for one in pair)
    leaving = mine.finish_future(timeout=30)
    until(lambda: len(session.link.watches) == 1)
    expire(session, zookeeper)
    with pytest.raises(SessionLost):
        leaving.wait()
    theirs.finish(timeout=5)
    pair = [DoubleBarrier(where, "b", 2).enter_future(timeout=20) for where in (session, other)]
    mine, theirs = (one.wait() for one in pair)
    lost = mine.lost
    expire(session, zookeeper)
    assert lost.wait(10)
    with pytest.raises(LeaseLost, match="session"):
        mine.finish(timeout=5)
    theirs.finish(timeout=10)  # who is gone has left
    until(lambda: session.ephemeral_bytes == 0)


def test_an_error_inside_leaves_without_waiting(session: Session, other: Session) -> None:
    theirs = DoubleBarrier(other, "b", 2).enter_future(timeout=20)
    with pytest.raises(KeyError), DoubleBarrier(session, "b", 2).hold(timeout=20):
        raise KeyError("work")
    theirs.wait().finish(timeout=10)


def test_bad_input(session: Session, other: Session) -> None:
    with pytest.raises(NameRefused):
        DoubleBarrier(session, "a/b", 2)
    for size in (0, -1, 1001, 1.5):
        with pytest.raises(ConfigError, match="size"):
            DoubleBarrier(session, "b", size)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        DoubleBarrier(session, "b", 2).enter(timeout=-1)
    waiting = DoubleBarrier(session, "b", 2).enter_future(timeout=20)
    until(lambda: present(session) == 1)
    with pytest.raises(ConfigError, match="waits for 2"):
        DoubleBarrier(other, "b", 3).enter(timeout=10)
    until(lambda: present(session) == 1)
    other.nodes.delete(f"{FOLDER}/{other.nodes.children(FOLDER)[0]}")
    with pytest.raises(LeaseLost, match="removed"):
        waiting.wait()
    with DoubleBarrier(session, "alone", 1).hold(timeout=10) as participant:
        assert participant.rank == 0
    session.close()
    with pytest.raises(SessionClosed):
        DoubleBarrier(session, "b", 2).enter()


async def test_asyncio(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        done: list[int] = []

        async def work(number: int) -> None:
            async with DoubleBarrier(session, "b", 10).hold(timeout=30, leave_timeout=30):
                done.append(number)
            assert len(done) >= 10

        await asyncio.gather(*(work(number) for number in range(10)))
        assert sorted(done) == list(range(10))
