"""The pool of named slots, on a real server."""

import threading
from collections import Counter

import pytest

from tests.waiting import until
from zkcoord.errors import (
    AcquireTimeout,
    ConfigError,
    LeaseLost,
    LimitMismatch,
    NameRefused,
    NodeForeign,
    NodeMissing,
    SessionClosed,
    SessionLost,
)
from zkcoord.recipes import Pool
from zkcoord.zk import Session

FOLDER = "/pools/gpus"
GPUS = ("gpu-0", "gpu-1")


def gpus(session: Session, slots: tuple[str, ...] | None = GPUS) -> Pool:
    return Pool(session, "gpus", slots)


def children(session: Session, path: str) -> list[str]:
    try:
        return session.nodes.children(path)
    except NodeMissing:
        return []


def queue(session: Session) -> list[str]:
    return [name for name in children(session, FOLDER) if name[0] == "x"]


def nothing_left(session: Session) -> bool:
    """No znode, watch or byte in use."""
    epoch = session.link.epoch
    assert epoch is not None
    return (
        queue(session) == []
        and children(session, f"{FOLDER}/slots") == []
        and len(session.link.watches) == 0
        and session.ephemeral_bytes == 0
        and not epoch._members
        and not epoch.successors
        and not epoch.leaving
    )


def test_each_slot_has_one_holder_and_a_lease_says_which(session: Session, other: Session) -> None:
    first, second = gpus(session).acquire(timeout=5), gpus(other).acquire(timeout=5)
    assert (first.slot, second.slot) == GPUS
    assert second.token > first.token
    _, stat = session.nodes.get(f"{FOLDER}/slots/gpu-1")
    assert (stat.czxid, stat.owner) == (second.token, other.id)
    waiting = gpus(session).acquire_future(timeout=10)
    until(lambda: len(queue(session)) == 1)
    assert not waiting.done()
    first.release()
    third = waiting.wait()
    assert third.slot == "gpu-0"
    assert third.token > second.token
    for lease in (second, third):
        lease.check()
        assert lease.release(timeout=5)
    until(lambda: nothing_left(session) and nothing_left(other))


def test_no_slot_is_held_twice_and_each_ones_tokens_rise(session: Session, other: Session) -> None:
    inside: Counter[str] = Counter()
    tokens: dict[str, list[int]] = {"gpu-0": [], "gpu-1": []}

    def work(session: Session) -> None:
        for _ in range(10):
            with gpus(session).hold(timeout=60) as lease:
                inside[lease.slot] += 1
                assert inside[lease.slot] == 1
                tokens[lease.slot].append(lease.token)
                threading.Event().wait(0.001)
                inside[lease.slot] -= 1

    threads = [threading.Thread(target=work, args=(s,)) for s in (session, other) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(map(len, tokens.values())) == 40
    assert all(tokens.values())
    assert all(of == sorted(of) for of in tokens.values())
    until(lambda: nothing_left(session) and nothing_left(other))


def test_an_acquire_with_a_free_slot_is_two_flights(session: Session) -> None:
    pool = gpus(session)
    pool.acquire(timeout=5).release(timeout=5)
    sent: list[str] = []
    submit = session.link._connection.submit

    def spy(call: object) -> None:
        sent.append(call.what.split()[0])  # type: ignore[attr-defined]
        submit(call)

    session.link._connection.submit = spy  # type: ignore[method-assign]
    pool.acquire(timeout=5).release(timeout=5)
    assert sent == ["create", "children", "children", "get", "claim", "delete"]


def test_slots_are_given_out_in_the_order_of_asking(session: Session, other: Session) -> None:
    held = [gpus(session).acquire(timeout=5) for _ in GPUS]
    waiters = []
    for number in range(6):
        waiters.append(gpus((session, other)[number % 2]).acquire_future(timeout=20))
        until(lambda number=number: len(queue(session)) == number + 1)
    assert len(session.link.watches) + len(other.link.watches) <= 7
    for number in (1, 0):
        held[number].release()
        lease = waiters[1 - number].wait()
        assert lease.slot == GPUS[number]
        held[number] = lease
    assert not any(waiter.done() for waiter in waiters[2:])
    for lease in held:
        lease.release()
    for waiter in waiters[2:]:
        waiter.wait().release()
    until(lambda: nothing_left(session) and nothing_left(other))


def test_a_preferred_slot_is_taken_when_it_is_free(session: Session) -> None:
    pool = gpus(session)
    one = pool.acquire(timeout=5, prefer="gpu-1")
    two = pool.acquire(timeout=5, prefer="gpu-1")
    assert (one.slot, two.slot) == ("gpu-1", "gpu-0")
    one.release()
    two.release(timeout=5)
    assert pool.acquire(timeout=5, prefer="no such").slot == "gpu-0"


def test_a_try_that_cannot_win_writes_nothing(session: Session, other: Session) -> None:
    held = [gpus(other).acquire(timeout=0) for _ in GPUS]
    before = session.nodes.exists(FOLDER)
    with pytest.raises(AcquireTimeout, match="not to be had now, held by two"):
        gpus(session).acquire(timeout=0)
    after = session.nodes.exists(FOLDER)
    assert before is not None
    assert after is not None
    assert after.pzxid == before.pzxid
    held[0].release(timeout=5)
    gpus(session).acquire(timeout=0).release(timeout=5)
    held[1].release(timeout=5)
    until(lambda: nothing_left(session) and nothing_left(other))


def test_timeouts_and_cancelled_waiters_leave_nothing(session: Session, other: Session) -> None:
    held = [gpus(other).acquire(timeout=5) for _ in GPUS]
    with pytest.raises(AcquireTimeout, match="held by two"):
        gpus(session).acquire(timeout=0.4)
    first, second = gpus(session).acquire_future(), gpus(session).acquire_future(timeout=20)
    until(lambda: len(queue(session)) == 2)
    assert first.cancel()
    until(lambda: len(queue(session)) == 1)
    held[0].release()
    second.wait().release()
    for _ in range(20):  # at whatever moment
        future = gpus(session).acquire_future()
        threading.Event().wait(0.001)
        if not future.cancel():
            future.wait().release()
    held[1].release()
    until(lambda: nothing_left(session) and nothing_left(other))


def test_a_drained_slot_is_not_given_out_again(session: Session, other: Session) -> None:
    held = [gpus(session).acquire(timeout=5) for _ in GPUS]
    assert gpus(other).drain("gpu-0") is False
    waiting = gpus(other).acquire_future(timeout=20)
    until(lambda: len(queue(session)) == 1)
    held[0].check()
    held[0].release(timeout=5)
    session.nodes.sync()
    assert not waiting.done()
    assert gpus(other, None).drain("gpu-0") is True
    held[1].release()
    lease = waiting.wait()
    assert lease.slot == "gpu-1"
    with pytest.raises(AcquireTimeout):
        gpus(session).acquire(timeout=0)
    gpus(other, None).add("gpu-0")
    assert gpus(session).acquire(timeout=5).slot == "gpu-0"
    with pytest.raises(NodeMissing, match="no slot gpu-7"):
        gpus(session).drain("gpu-7")


def test_an_added_slot_wakes_who_waits(session: Session, other: Session) -> None:
    held = [gpus(session).acquire(timeout=5) for _ in GPUS]
    waiting = gpus(other).acquire_future(timeout=20)
    until(lambda: len(other.link.watches) == 2)
    gpus(session).add("gpu-2", "gpu-3")
    assert waiting.wait().slot == "gpu-2"
    assert gpus(other, None).acquire(timeout=5).slot == "gpu-3"
    for lease in held:
        lease.release()


def test_other_slots_than_the_stored_ones_are_refused(session: Session, other: Session) -> None:
    with pytest.raises(LimitMismatch, match="names its slots"):
        gpus(session, None).acquire(timeout=5)
    with pytest.raises(NodeMissing, match="nobody has declared"):
        Pool(session, "new").add("a")
    gpus(session).add("gpu-2")
    gpus(other).acquire(timeout=5).release()
    gpus(other, ("gpu-2", "gpu-1", "gpu-0")).acquire(timeout=5).release()
    for timeout in (5, 0):
        with pytest.raises(LimitMismatch, match="the pool has gpu-0, gpu-1, gpu-2"):
            gpus(other, ("gpu-0",)).acquire(timeout=timeout)
    until(lambda: nothing_left(session) and nothing_left(other))


def test_bad_input_is_named(session: Session) -> None:
    for slots in ((), ("a", "a"), [f"s{n}" for n in range(1001)], "gpu"):
        with pytest.raises(ConfigError, match="slots"):
            Pool(session, "gpus", slots)
    for name in ("", "a/b", "..", "a\nb"):
        with pytest.raises(NameRefused):
            Pool(session, name, ["a"])
        with pytest.raises(NameRefused):
            Pool(session, "gpus", ["ok", name])
    with pytest.raises(ConfigError):
        gpus(session).acquire(timeout=-1)
    with pytest.raises(TypeError, match=r"hold\(\)"), gpus(session):  # type: ignore[attr-defined]
        pass
    session.nodes.create(FOLDER, b"hello", makepath=True)
    with pytest.raises(NodeForeign, match="does not name slots"):
        gpus(session).acquire(timeout=5)
    with pytest.raises(NodeForeign, match="does not name slots"):
        gpus(session).standing()
    until(lambda: nothing_left(session))


def test_standing_shows_who_holds_which_slot(session: Session, other: Session) -> None:
    assert gpus(session).standing() == ((), 0)
    lease = Pool(session, "gpus", GPUS, label="trainer").acquire(timeout=5)
    gpus(other).drain("gpu-1")
    gpus(other).acquire_future()
    until(lambda: len(queue(session)) == 1)
    (held, drained), waiting = gpus(other, None).standing()
    assert waiting == 1
    assert (held.slot, held.held, held.drained) == ("gpu-0", True, False)
    assert (held.token, held.session) == (lease.token, session.id)
    assert held.identity is not None
    assert held.identity.name == "trainer"
    assert (drained.slot, drained.held, drained.drained, drained.token) == ("gpu-1", False, True, 0)


def test_the_end_of_a_session_gives_its_slot_to_the_next(session: Session, other: Session) -> None:
    held = [gpus(session).acquire(timeout=5) for _ in GPUS]
    lost, future = gpus(session).acquire_future(), gpus(other).acquire_future(timeout=20)
    until(lambda: len(queue(other)) == 2)
    session.close()
    with pytest.raises((SessionClosed, SessionLost)):
        lost.wait()
    for lease in held:
        with pytest.raises(LeaseLost):
            lease.check()
    assert future.wait().slot == "gpu-0"


async def test_pool_in_asyncio(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        pool = gpus(session)
        async with pool.hold(timeout=5) as lease:
            assert lease.slot == "gpu-0"
            assert not await pool.drain_future("gpu-0")
            await pool.add_future("gpu-0")
            assert len((await pool.standing_future()).slots) == 2
        for call in (pool.acquire, pool.standing, lambda: pool.drain("a"), lambda: pool.add("a")):
            with pytest.raises(RuntimeError, match="event loop"):
                call()
