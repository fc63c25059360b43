"""Waiters of one session that share a node, on a real server."""

import threading

import pytest

from tests.waiting import until
from zkcoord.errors import AcquireTimeout, ConfigError, LeaseLost, NodeMissing, SessionLost
from zkcoord.recipes import Lock
from zkcoord.recipes.sharing import shares
from zkcoord.zk import Session
from zkcoord.zk.call import Call


def waiting(session: Session) -> int:
    try:
        return len(session.nodes.children("/locks/gpu"))
    except NodeMissing:
        return 0


def nothing_left(session: Session) -> bool:
    return (
        waiting(session) == 0
        and len(session.link.watches) == 0
        and session.ephemeral_bytes == 0
        and not session.link.epoch._members  # type: ignore[union-attr]
    )


def test_local_waiters_hand_on_without_a_request(session: Session) -> None:
    lock = Lock(session, "gpu", local_handoffs=9)
    first = lock.acquire(timeout=5)
    futures = [Lock(session, "gpu", local_handoffs=9).acquire_future(timeout=10) for _ in range(9)]
    assert waiting(session) == 1
    sent: list[str] = []
    submit = session.link._connection.submit

    def spy(call: object) -> None:
        sent.append(call.what.split()[0])  # type: ignore[attr-defined]
        submit(call)

    session.link._connection.submit = spy
    assert first.release(timeout=5)
    with pytest.raises(LeaseLost, match="released"):
        first.check()
    with pytest.raises(LeaseLost):  # the node lives on, for others
        first.guard(session.nodes.transaction())
    for number, future in enumerate(futures):
        lease = future.wait()
        lease.check()
        assert lease.token == first.token
        assert not any(later.done() for later in futures[number + 1 :])
        assert sent == []
        lease.release()
    until(lambda: nothing_left(session))


def test_after_so_many_hand_offs_others_get_it(session: Session, other: Session) -> None:
    lock = Lock(session, "gpu", local_handoffs=2)
    first = lock.acquire(timeout=5)
    rival = Lock(other, "gpu").acquire_future(timeout=30)
    until(lambda: waiting(session) == 2)
    futures = [lock.acquire_future(timeout=30) for _ in range(5)]
    until(lambda: waiting(session) == 3)  # two joined the first node, three share another
    order: list[str] = []
    first.release()
    for future in futures[:2]:
        lease = future.wait()
        assert not rival.done()
        order.append("local")
        lease.release()
    second = rival.wait()
    assert not any(future.done() for future in futures[2:])
    second.release()
    tokens = []
    for future in futures[2:]:
        lease = future.wait()
        tokens.append(lease.token)
        lease.release()
    assert len(set(tokens)) == 1
    assert tokens[0] > second.token > first.token
    until(lambda: nothing_left(session))


def test_threads_exclude_each_other_in_their_own_order(session: Session, other: Session) -> None:
    inside: list[int] = []
    grants: list[int] = []

    def work(session: Session, number: int) -> None:
        lock = Lock(session, "gpu", local_handoffs=3)
        for _ in range(20):
            with lock.hold(timeout=60) as lease:
                inside.append(number)
                assert len(inside) == 1
                grants.append(lease.token)
                inside.pop()

    threads = [
        threading.Thread(target=work, args=(each, number))
        for number, each in enumerate((session, other) * 4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(grants) == 160
    assert grants == sorted(grants)
    assert max(grants.count(token) for token in set(grants)) <= 4
    until(lambda: nothing_left(session) and nothing_left(other))


def test_who_gives_up_leaves_the_others_in_peace(session: Session, other: Session) -> None:
    held = Lock(other, "gpu").acquire(timeout=5)
    lock = Lock(session, "gpu", local_handoffs=5)
    futures = [lock.acquire_future() for _ in range(4)]
    until(lambda: waiting(session) == 2)
    with pytest.raises(AcquireTimeout, match="others of this process"):
        lock.acquire(timeout=0.2)
    with pytest.raises(AcquireTimeout):
        lock.acquire(timeout=0)
    assert futures[0].cancel()
    assert futures[2].cancel()
    held.release()
    futures[1].wait().release()
    futures[3].wait().release()
    until(lambda: nothing_left(session))


def test_the_last_to_give_up_takes_the_node_along(session: Session, other: Session) -> None:
    held = Lock(other, "gpu").acquire(timeout=5)
    lock = Lock(session, "gpu", local_handoffs=5)
    futures = [lock.acquire_future() for _ in range(3)]
    until(lambda: waiting(session) == 2)
    for future in futures:
        assert future.cancel()
    until(lambda: waiting(session) == 1)
    again = lock.acquire_future(timeout=10)
    held.release()
    again.wait().release(timeout=5)
    lock.acquire(timeout=0).release(timeout=5)  # nobody is there: an ordinary try
    until(lambda: nothing_left(session))


def test_the_last_release_is_confirmed_when_the_node_is_gone_and_not_before(
    session: Session,
) -> None:
    lock = Lock(session, "gpu", local_handoffs=5)
    lock.acquire(timeout=5).release(timeout=5)
    lease = lock.acquire(timeout=5)
    submit = session.link._connection.submit
    kept: list[Call] = []

    def keep(call: Call) -> None:
        if call.what.startswith("delete"):
            kept.append(call)
        else:
            submit(call)

    session.link._connection.submit = keep  # type: ignore[method-assign]
    release = lease.release_future()
    until(lambda: kept)
    session.nodes.sync()  # whatever was under way has been done
    assert not release.done()
    session.link._connection.submit = submit  # type: ignore[method-assign]
    submit(kept[0])
    assert release.result(10)
    assert waiting(session) == 0


def test_the_end_of_the_session_ends_all_of_them(session: Session, other: Session) -> None:
    lock = Lock(session, "gpu", local_handoffs=5)
    lease = lock.acquire(timeout=5)
    futures = [lock.acquire_future() for _ in range(3)]
    queued = Lock(session, "gpu2", local_handoffs=5)
    Lock(other, "gpu2").acquire(timeout=5)
    futures.append(queued.acquire_future())
    session.close()
    assert lease.lost.wait(5)
    for future in futures:
        with pytest.raises((SessionLost, RuntimeError)):
            future.result(10)
    assert all(share.ended for share in shares.of(session.link)._latest.values())


def test_what_does_not_go_together_is_refused(session: Session) -> None:
    for bad in (-1, 10_001, 1.5):
        with pytest.raises(ConfigError):
            Lock(session, "gpu", local_handoffs=bad)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="on_position"):
        Lock(session, "gpu", local_handoffs=1).acquire(on_position=print)
