"""The semaphore, on a real server. Faults are in tests/faults/test_semaphore_faults.py."""

import threading

import pytest

from tests.integration.semaphore_kit import FOLDER, jobs, nothing_left, queue, spied
from tests.waiting import until
from zkcoord.errors import (
    AcquireTimeout,
    LeaseLost,
    SessionClosed,
    SessionLost,
)
from zkcoord.recipes import PermitLease, Semaphore
from zkcoord.zk import Session


def test_so_many_hold_and_the_next_waits(session: Session, other: Session) -> None:
    first, second = jobs(session).acquire(timeout=5), jobs(other).acquire(timeout=5)
    assert second.token > first.token
    assert (first.weight, second.weight) == (1, 1)
    third = jobs(session).acquire_future(timeout=10)
    until(lambda: len(queue(session)) == 3)
    assert not third.done()
    second.release()
    lease = third.wait()
    assert lease.token > second.token
    first.check()
    for held in (first, lease):
        assert held.release(timeout=5)
    until(lambda: nothing_left(session) and nothing_left(other))


def test_never_more_than_the_limit(session: Session, other: Session) -> None:
    inside: list[int] = []
    tokens: list[int] = []
    lock, most = threading.Lock(), [0]

    def work(session: Session, weight: int) -> None:
        semaphore = jobs(session, permits=5)
        for _ in range(15):
            with semaphore.hold(weight, timeout=60) as lease:
                with lock:
                    tokens.append(lease.token)
                    inside.append(weight)
                    most[0] = max(most[0], sum(inside))
                    assert sum(inside) <= 5
                threading.Event().wait(0.001)
                with lock:
                    inside.remove(weight)

    threads = [
        threading.Thread(target=work, args=(s, w))
        for w, s in enumerate((session, other) * 2, start=1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(tokens) == 60
    assert most[0] > 1
    until(lambda: nothing_left(session) and nothing_left(other))


def test_an_uncontended_acquire_is_one_flight_and_a_release_one_request(session: Session) -> None:
    semaphore = jobs(session)
    semaphore.acquire(timeout=5).release(timeout=5)
    sent = spied(session)
    semaphore.acquire(timeout=5).release(timeout=5)
    assert sent == ["create", "children", "get", "delete"]


def test_waiters_get_in_by_the_order_of_asking(session: Session, other: Session) -> None:
    """Also from session to session, and each waiter watches one node unless it is the first."""
    held = [jobs(session).acquire(timeout=5), jobs(other).acquire(timeout=5)]
    order: list[int] = []
    for number in range(20):
        future = jobs((session, other)[number // 2 % 2]).acquire_future(timeout=30)
        until(lambda number=number: len(queue(session)) == number + 3)

        def got(done: object, number: int = number) -> None:
            order.append(number)
            done.result().release()  # type: ignore[attr-defined]

        future.add_done_callback(got)
    assert len(session.link.watches) + len(other.link.watches) <= 20 + 2
    for lease in held:
        lease.release()
    until(lambda: len(order) == 20)
    assert sorted(order) == list(range(20))
    assert all(abs(place - number) <= 2 for place, number in enumerate(order))
    until(lambda: nothing_left(session) and nothing_left(other))


def test_the_first_waiter_is_woken_whichever_holder_leaves(
    session: Session, other: Session
) -> None:
    """With two permits the end of the second holder must wake the first waiter, not the second."""
    first, second = jobs(session).acquire(timeout=5), jobs(other).acquire(timeout=5)
    waiters = []
    for number, asking in enumerate((other, session, other)):
        waiters.append(jobs(asking).acquire_future(timeout=20))
        until(lambda number=number: len(queue(session)) == number + 3)
    second.release()
    third = waiters[0].wait()
    assert not waiters[1].done()
    first.release()
    fourth = waiters[1].wait()
    fourth.release()
    waiters[2].wait().release()
    third.release()
    until(lambda: nothing_left(session) and nothing_left(other))


def test_a_heavy_request_at_the_head_is_not_overtaken(session: Session, other: Session) -> None:
    held = [jobs(session, 3).acquire(timeout=5) for _ in range(2)]
    heavy = jobs(other, 3).acquire_future(weight=3, timeout=20)
    until(lambda: len(queue(session)) == 3)
    light = jobs(session, 3).acquire_future(timeout=20)
    until(lambda: len(queue(session)) == 4)
    with pytest.raises(AcquireTimeout, match="held by one"):
        jobs(other, 3).acquire(timeout=0)
    held[0].release()
    until(lambda: len(queue(session)) == 3)
    session.nodes.sync()
    assert not heavy.done()
    assert not light.done()
    held[1].release()
    granted = heavy.wait()
    assert granted.weight == 3
    assert not light.done()
    granted.release()
    light.wait().release()
    until(lambda: nothing_left(session) and nothing_left(other))


def test_a_line_of_one_sessions_waiters_drains_without_a_listing(session: Session) -> None:
    semaphore = jobs(session)
    held = [semaphore.acquire(timeout=5) for _ in range(2)]
    futures = [semaphore.acquire_future(timeout=10) for _ in range(10)]
    until(lambda: len(session.link.watches) == 12)  # holders, limit, and nine followed
    sent = spied(session)
    for lease in held:
        lease.release()
    for future in futures:
        future.wait().release()
    until(lambda: nothing_left(session))
    assert "children" not in sent[: sent.index("unwatch")]
    assert sent.count("delete") == 12


def test_a_hand_off_between_sessions_lists_nothing(session: Session, other: Session) -> None:
    held = [jobs(session).acquire(timeout=5) for _ in range(2)]
    first = jobs(session).acquire_future(timeout=10)
    until(lambda: len(queue(session)) == 3)
    second = jobs(other).acquire_future(timeout=10)
    until(lambda: len(queue(session)) == 4 and len(other.link.watches) == 1)
    sent = spied(other)
    held[0].release()
    granted = first.wait()
    until(lambda: len(other.link.watches) == 3)  # it stands at the front now
    assert "children" not in sent
    granted.release()
    second.wait().release()
    assert "children" not in sent
    held[1].release()
    until(lambda: nothing_left(session) and nothing_left(other))


def test_a_try_that_cannot_win_writes_nothing(session: Session, other: Session) -> None:
    lease = jobs(other).acquire(weight=2, timeout=5)
    before = session.nodes.exists(FOLDER)
    sent = spied(session)
    with pytest.raises(AcquireTimeout, match="not to be had now, held by two"):
        jobs(session).acquire(timeout=0)
    assert set(sent) == {"children", "get"}
    after = session.nodes.exists(FOLDER)
    assert before is not None
    assert after is not None
    assert after.pzxid == before.pzxid
    lease.release(timeout=5)
    jobs(session).acquire(timeout=0).release(timeout=5)


def test_a_timeout_leaves_nothing_and_names_a_holder(session: Session, other: Session) -> None:
    lease = jobs(other).acquire(weight=2, timeout=5)
    with pytest.raises(AcquireTimeout, match="held by two") as caught:
        jobs(session).acquire(timeout=0.4)
    assert caught.value.waited >= 0.4
    until(lambda: len(queue(session)) == 1 and len(session.link.watches) == 0)
    assert session.ephemeral_bytes == 0
    lease.release()


def test_cancelling_a_waiter_in_the_middle_wakes_who_follows_it(
    session: Session, other: Session
) -> None:
    held = jobs(session).acquire(weight=2, timeout=5)
    heavy = jobs(other).acquire_future(weight=2)
    until(lambda: len(queue(session)) == 2)
    last = jobs(session).acquire_future(timeout=10)
    until(lambda: len(queue(session)) == 3)
    assert heavy.cancel()
    until(lambda: len(queue(session)) == 2)
    assert not last.done()
    held.release()
    last.wait().release()
    until(lambda: nothing_left(session) and nothing_left(other))


def test_standing_shows_who_holds_how_many_and_who_waits(session: Session, other: Session) -> None:
    assert jobs(session, None).standing() == (0, 0, 0, 0, ())
    lease = Semaphore(session, "jobs", 3, label="trainer").acquire(weight=2, timeout=5)
    waiter = jobs(other, 3).acquire_future(weight=3, timeout=20)
    until(lambda: len(queue(session)) == 2)
    seen = jobs(session, None).standing()
    assert seen[:4] == (3, 3, 2, 1)
    holder, waiting = seen.contenders
    assert (holder.holds, holder.weight, holder.token) == (True, 2, lease.token)
    assert holder.session == session.id
    assert holder.identity is not None
    assert holder.identity.name == "trainer"
    assert (waiting.holds, waiting.weight, waiting.position) == (False, 3, 1)
    assert len(jobs(session, None).standing(limit=1).contenders) == 1
    lease.release()
    waiter.wait()
    seen = jobs(session, None).standing()
    assert [one.holds for one in seen.contenders] == [True]
    assert seen.contenders[0].identity is not None
    assert seen.contenders[0].identity.name == "two"


def test_the_end_of_a_session_ends_leases_and_waiters(session: Session, other: Session) -> None:
    lease = jobs(session).acquire(weight=2, timeout=5)
    waiter = jobs(session).acquire_future()
    until(lambda: len(queue(other)) == 2)
    next_one = jobs(other).acquire_future(timeout=20)
    until(lambda: len(queue(other)) == 3)
    session.close()
    with pytest.raises((SessionClosed, SessionLost)):
        waiter.wait()
    with pytest.raises(LeaseLost):
        lease.check()
    with pytest.raises(SessionClosed):
        jobs(session).acquire(timeout=5)
    next_one.wait().release(timeout=5)
    until(lambda: nothing_left(other))


def test_a_node_removed_by_an_operator_ends_the_waiting(session: Session, other: Session) -> None:
    jobs(other).acquire(weight=2, timeout=5)
    middle = jobs(other).acquire_future(timeout=20)
    until(lambda: len(queue(session)) == 2)
    future = jobs(session).acquire_future(timeout=20)
    until(lambda: len(queue(session)) == 3)
    mine = next(one for one in jobs(other).standing().contenders if one.session == session.id)
    other.nodes.delete(f"{FOLDER}/{mine.node}")
    middle.cancel()
    with pytest.raises(LeaseLost) as caught:
        future.wait()
    assert caught.value.reason == "removed"
    assert session.ephemeral_bytes == 0


def test_a_thousand_waiters_need_no_thread_and_one_watch_each(session: Session) -> None:
    semaphore = jobs(session, 3)
    held = [semaphore.acquire(timeout=5) for _ in range(3)]
    threads, order = threading.active_count(), []

    def got(number: int, lease: PermitLease) -> None:
        order.append(number)
        lease.release()

    for number in range(1000):
        future = semaphore.acquire_future(timeout=120)
        future.on_done(lambda number=number, future=future: got(number, future.result()))
    until(lambda: len(queue(session)) == 1003, seconds=60)
    assert threading.active_count() == threads
    assert len(session.link.watches) <= 1004
    for lease in held:
        lease.release()
    until(lambda: len(order) == 1000, seconds=60)
    assert order == list(range(1000))
    until(lambda: nothing_left(session))


def test_raising_the_limit_lets_a_thousand_in_at_once(session: Session) -> None:
    semaphore = jobs(session, 1)
    held = semaphore.acquire(timeout=5)
    futures = [semaphore.acquire_future(timeout=60) for _ in range(1000)]
    until(lambda: len(queue(session)) == 1001, seconds=60)
    semaphore.resize(2000)
    for future in futures:
        future.wait().release()
    held.release()
    until(lambda: nothing_left(session), seconds=30)
