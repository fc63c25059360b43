"""The fair lock, on a real server. Faults are in tests/faults/test_lock_faults.py."""

import threading

import pytest

from tests.waiting import until
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
from zkcoord.zk import Session
from zkcoord.zk.clock import now


def waiting(session: Session, name: str = "gpu") -> int:
    """How many stand in the queue."""
    try:
        return len(session.nodes.children(f"/locks/{name}"))
    except NodeMissing:
        return 0


def nothing_left(session: Session) -> bool:
    """No znode, watch or byte in use."""
    return (
        waiting(session) == 0
        and len(session.link.watches) == 0
        and session.ephemeral_bytes == 0
        and not session.link.epoch._members  # type: ignore[union-attr]
        and not session.link.epoch.successors  # type: ignore[union-attr]
    )


def test_a_lease_has_a_token_and_is_valid_and_is_given_back(session: Session) -> None:
    lease = Lock(session, "gpu").acquire(timeout=5)
    _, stat = session.nodes.get(lease.path)
    assert lease.token == stat.czxid
    assert stat.owner == session.id
    assert 0 < lease.valid_for() <= 10
    lease.check()
    assert not lease.lost.is_set()
    assert lease.release(timeout=5)
    assert lease.release(timeout=5)
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert caught.value.reason == "released"
    assert lease.valid_for() == 0
    assert not lease.lost.is_set()
    assert nothing_left(session)


def test_tokens_rise_and_only_one_holds(session: Session, other: Session) -> None:
    tokens, inside = [], []

    def work(session: Session) -> None:
        lock = Lock(session, "gpu")
        for _ in range(25):
            with lock.hold(timeout=30) as lease:
                inside.append(1)
                assert len(inside) == 1
                tokens.append(lease.token)
                inside.pop()

    threads = [threading.Thread(target=work, args=(s,)) for s in (session, other) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(tokens) == 150
    assert tokens == sorted(tokens)
    until(lambda: nothing_left(session) and nothing_left(other))


def test_waiters_get_it_in_the_order_of_asking(session: Session, other: Session) -> None:
    first = Lock(session, "gpu").acquire(timeout=5)
    order: list[int] = []
    futures = []
    for number in range(20):
        future = Lock((session, other)[number % 2], "gpu").acquire_future(timeout=30)
        until(lambda number=number: waiting(session) == number + 2)

        def got(done: object, number: int = number) -> None:
            order.append(number)
            done.result().release()  # type: ignore[attr-defined]

        future.add_done_callback(got)
        futures.append(future)
    first.release()
    until(lambda: len(order) == 20)
    assert order == list(range(20))
    until(lambda: nothing_left(session) and nothing_left(other))


def test_a_thousand_waiters_need_no_thread_and_keep_their_order(session: Session) -> None:
    lock = Lock(session, "gpu")
    first = lock.acquire(timeout=5)
    threads = threading.active_count()
    order: list[int] = []
    futures = []
    for number in range(1000):
        future = lock.acquire_future(timeout=120)

        def got(number: int = number, future: object = future) -> None:
            order.append(number)
            future.result().release()  # type: ignore[attr-defined]

        future.on_done(got)
        futures.append(future)
    until(lambda: waiting(session) == 1001, seconds=60)
    assert threading.active_count() == threads
    assert len(session.link.watches) <= 1000
    first.release()
    until(lambda: len(order) == 1000, seconds=60)
    assert order == list(range(1000))
    assert threading.active_count() == threads
    until(lambda: nothing_left(session))


def test_a_timeout_names_the_holder_and_leaves_nothing(session: Session, other: Session) -> None:
    held = Lock(other, "gpu").acquire(timeout=5)
    begun = now()
    with pytest.raises(AcquireTimeout, match="held by two") as caught:
        Lock(session, "gpu").acquire(timeout=0.4)
    assert now() - begun >= 0.4
    assert caught.value.holder.startswith("two (pid ")
    assert caught.value.waited >= 0.4
    until(lambda: waiting(session) == 1 and len(session.link.watches) == 0)
    assert session.ephemeral_bytes == 0
    held.release()


def test_one_deadline_over_all_wakes(session: Session, other: Session) -> None:
    """kazoo starts its timeout again at every wake; predecessors leaving do not extend ours."""
    Lock(other, "gpu").acquire(timeout=5)
    ahead = [Lock(other, "gpu").acquire_future() for _ in range(6)]
    until(lambda: waiting(session) == 7)
    future = Lock(session, "gpu").acquire_future(timeout=1.0)
    until(lambda: waiting(session) == 8)
    begun = now()
    for leaving in reversed(ahead):
        threading.Event().wait(0.25)
        leaving.cancel()
    with pytest.raises(AcquireTimeout):
        future.wait()
    assert now() - begun < 3


def test_a_failed_try_writes_nothing(session: Session, other: Session) -> None:
    Lock(other, "gpu").acquire(timeout=5)
    before = session.nodes.exists("/locks/gpu")
    with pytest.raises(AcquireTimeout, match="held by two"):
        Lock(session, "gpu").acquire(timeout=0)
    after = session.nodes.exists("/locks/gpu")
    assert before is not None
    assert after is not None
    assert after.pzxid == before.pzxid
    assert after.cversion == before.cversion
    assert session.ephemeral_bytes == 0


def test_a_try_wins_when_it_can(session: Session) -> None:
    lease = Lock(session, "gpu").acquire(timeout=0)
    lease.check()
    lease.release(timeout=5)
    Lock(session, "gpu").acquire(timeout=0).release()


def test_cancelling_a_waiter_in_the_middle_lets_the_next_one_in(session: Session) -> None:
    lock = Lock(session, "gpu")
    first = lock.acquire(timeout=5)
    middle, last = lock.acquire_future(), lock.acquire_future(timeout=10)
    until(lambda: waiting(session) == 3)
    assert middle.cancel()
    until(lambda: waiting(session) == 2)
    assert not last.done()  # not granted by the middle's end: the holder is still there
    first.release()
    last.wait().release()
    until(lambda: nothing_left(session))


def test_a_hand_off_to_the_next_in_line_needs_no_listing(session: Session) -> None:
    lock = Lock(session, "gpu")
    first = lock.acquire(timeout=5)
    future = lock.acquire_future(timeout=10)
    until(lambda: waiting(session) == 2 and len(session.link.watches) == 1)
    sent: list[str] = []
    submit = session.link._connection.submit

    def spy(call: object) -> None:
        sent.append(call.what.split()[0])  # type: ignore[attr-defined]
        submit(call)

    session.link._connection.submit = spy
    first.release()
    future.wait()
    assert sent == ["delete"]


def test_a_line_of_one_sessions_waiters_drains_without_a_listing(session: Session) -> None:
    lock = Lock(session, "gpu")
    first = lock.acquire(timeout=5)
    futures = [lock.acquire_future(timeout=10) for _ in range(10)]
    until(lambda: waiting(session) == 11 and len(session.link.watches) == 10)
    sent: list[str] = []
    submit = session.link._connection.submit

    def spy(call: object) -> None:
        sent.append(call.what.split()[0])  # type: ignore[attr-defined]
        submit(call)

    session.link._connection.submit = spy
    first.release()
    for future in futures:
        future.wait().release()
    assert sent == ["delete"] * 11


def test_an_uncontended_acquire_is_one_flight_and_a_release_one_request(session: Session) -> None:
    lock = Lock(session, "gpu")
    lock.acquire(timeout=5).release(timeout=5)
    sent: list[str] = []
    submit = session.link._connection.submit

    def spy(call: object) -> None:
        sent.append(call.what.split()[0])  # type: ignore[attr-defined]
        submit(call)

    session.link._connection.submit = spy
    lock.acquire(timeout=5).release(timeout=5)
    assert sent == ["create", "delete"]


def test_hold_raises_when_the_lease_was_lost_inside(session: Session) -> None:
    with pytest.raises(LeaseLost, match="session"), Lock(session, "gpu").hold(timeout=5) as lease:
        session.close()
        assert lease.lost.wait(5)
    with pytest.raises(LeaseLost):
        lease.release()
    assert lease.valid_for() == 0


def test_hold_does_not_mask_an_error(session: Session) -> None:
    with pytest.raises(ZeroDivisionError), Lock(session, "gpu").hold(timeout=5):
        session.close()
        raise ZeroDivisionError


def test_waiters_end_when_the_session_is_closed(session: Session, other: Session) -> None:
    Lock(other, "gpu").acquire(timeout=5)
    future = Lock(session, "gpu").acquire_future()
    until(lambda: waiting(other) == 2)
    session.close()
    with pytest.raises((SessionClosed, SessionLost)):
        future.wait()
    with pytest.raises(SessionClosed):
        Lock(session, "gpu").acquire(timeout=5)
    assert waiting(other) == 1


def test_closing_gives_the_lock_to_the_next_at_once(session: Session, other: Session) -> None:
    Lock(session, "gpu").acquire(timeout=5)
    future = Lock(other, "gpu").acquire_future(timeout=5)
    until(lambda: waiting(other) == 2)
    session.close()
    future.wait().check()


def test_names_and_timeouts_are_checked(session: Session) -> None:
    for name in ("", "a/b", ".", "..", "a\nb", "n" * 300):
        with pytest.raises(NameRefused):
            Lock(session, name)
    for timeout in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError):
            Lock(session, "gpu").acquire(timeout=timeout)
    Lock(session, "grün ☃").acquire(timeout=5).release()


def test_a_full_session_is_an_error_and_recovers(zookeeper: str) -> None:
    config = SessionConfig(timeout_s=10, ephemeral_bytes_max=200)
    with Session(zookeeper, config=config) as session:
        leases: list[Lease] = []
        with pytest.raises(SessionFull):
            leases.extend(Lock(session, f"gpu-{n}").acquire(timeout=5) for n in range(100))
        assert leases
        leases.pop().release(timeout=5)
        Lock(session, "gpu").acquire(timeout=5)


def test_a_node_removed_by_an_operator_ends_the_waiting(session: Session, other: Session) -> None:
    Lock(other, "gpu").acquire(timeout=5)
    middle = Lock(other, "gpu").acquire_future(timeout=10)
    until(lambda: waiting(session) == 2)
    future = Lock(session, "gpu").acquire_future(timeout=10)
    until(lambda: waiting(session) == 3)
    mine = next(s for s in contenders(other, "gpu") if s.session == session.id)
    other.nodes.delete(f"/locks/gpu/{mine.node}")
    middle.cancel()  # wakes it: it looks, and is not in the queue any more
    with pytest.raises(LeaseLost) as caught:
        future.wait()
    assert caught.value.reason == "removed"
    assert session.ephemeral_bytes == 0


def test_contenders_shows_holder_and_waiters_in_order(session: Session, other: Session) -> None:
    assert contenders(session, "gpu") == []
    lease = Lock(session, "gpu", label="trainer").acquire(timeout=5)
    Lock(other, "gpu").acquire_future()
    until(lambda: waiting(session) == 2)
    holder, waiter = contenders(session, "gpu")
    assert holder.identity is not None
    assert waiter.identity is not None
    assert (holder.position, holder.token, holder.session) == (0, lease.token, session.id)
    assert holder.identity.name == "trainer"
    assert (waiter.position, waiter.session, waiter.identity.name) == (1, other.id, "two")
    assert waiter.token > holder.token
    assert holder.identity.pid > 0
    assert holder.identity.since > 0
    assert len(contenders(session, "gpu", limit=1)) == 1


def test_guard_lets_a_write_through_only_while_the_lease_lives(session: Session) -> None:
    session.nodes.create("/data", b"0")
    lease = Lock(session, "gpu").acquire(timeout=5)
    lease.guard(session.nodes.transaction()).set("/data", b"1").commit()
    late = lease.guard(session.nodes.transaction()).set("/data", b"2")
    lease.release(timeout=5)
    with pytest.raises(NodeMissing):
        late.commit()
    with pytest.raises(LeaseLost, match="was released"):
        lease.guard(session.nodes.transaction())
    assert session.nodes.get("/data")[0] == b"1"


def test_a_lost_callback_may_block_and_use_the_session(session: Session, other: Session) -> None:
    lease = Lock(session, "gpu").acquire(timeout=5)
    said: list[bool] = []
    lease.on_lost(lambda: said.append(Lock(other, "gpu").acquire(timeout=5).lost.is_set()))
    session.close(timeout=10)
    until(lambda: said == [False])
