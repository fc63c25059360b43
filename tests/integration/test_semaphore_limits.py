"""The limit of a semaphore: declared, refused, changed while it is held. Real servers."""

import pytest

from tests.integration.semaphore_kit import FOLDER, jobs, nothing_left, queue
from tests.waiting import until
from zkcoord.errors import (
    AcquireTimeout,
    ConfigError,
    LimitExceeded,
    LimitMismatch,
    NameRefused,
    NodeForeign,
)
from zkcoord.recipes import PermitLease, Semaphore
from zkcoord.recipes.resizing import Resized
from zkcoord.zk import Session
from zkcoord.zk.call import Call


def test_the_first_to_come_stores_the_limit_and_another_limit_is_refused(
    session: Session, other: Session
) -> None:
    with pytest.raises(LimitMismatch, match="says permits=N") as caught:
        jobs(other, None).acquire(timeout=5)
    assert caught.value.stored is None
    lease = jobs(session, 2).acquire(timeout=5)
    for timeout in (5, 0):
        with pytest.raises(LimitMismatch, match="says 3 permits, the semaphore has 2") as caught:
            jobs(other, 3).acquire(timeout=timeout)
        assert (caught.value.given, caught.value.stored) == (3, 2)
    until(lambda: len(queue(session)) == 1)
    jobs(other, None).acquire(timeout=5).release(timeout=5)
    lease.release(timeout=5)
    until(lambda: nothing_left(session) and nothing_left(other))


def test_of_two_who_declare_at_once_the_first_counts(session: Session, other: Session) -> None:
    submit = session.link._connection.submit
    theirs: list[PermitLease] = []

    def overtake(call: Call) -> None:
        if call.what.startswith("set") and not theirs:
            theirs.append(jobs(other, 3).acquire(timeout=5))
        submit(call)

    session.link._connection.submit = overtake  # type: ignore[method-assign]
    with pytest.raises(LimitMismatch, match="says 2 permits, the semaphore has 3"):
        jobs(session, 2).acquire(timeout=10)
    assert theirs
    assert jobs(other, None).standing().permits == 3
    until(lambda: len(queue(other)) == 1)


def test_a_try_declares_its_limit_again_when_the_folder_goes_after_its_look(
    session: Session, other: Session
) -> None:
    """As the server removes a folder in which nobody is."""
    jobs(session, 2).acquire(timeout=5).release(timeout=5)
    submit, removed = session.link._connection.submit, []

    def remove(call: Call) -> None:
        if call.what.startswith("create") and not removed:
            removed.append(other.nodes.delete(FOLDER))
        submit(call)

    session.link._connection.submit = remove  # type: ignore[method-assign]
    lease = jobs(session, 2).acquire(timeout=0)
    assert removed
    assert other.nodes.get(FOLDER)[0] == b'{"permits":2}'
    lease.release(timeout=5)


def test_a_weight_above_the_limit_is_refused(session: Session) -> None:
    for timeout in (5, 0):
        with pytest.raises(LimitExceeded, match="a weight of 3 can never be granted") as caught:
            jobs(session).acquire(weight=3, timeout=timeout)
        assert (caught.value.asked, caught.value.limit) == (3, 2)
        until(lambda: nothing_left(session))


def test_bad_input_is_named(session: Session) -> None:
    for permits in (0, -1, 1_000_001, True, 1.5):
        with pytest.raises(ConfigError, match="permits"):
            Semaphore(session, "jobs", permits)  # type: ignore[arg-type]
    for weight in (0, -1, 1_000_001, True, "1"):
        with pytest.raises(ConfigError, match="weight"):
            jobs(session).acquire(weight, timeout=5)  # type: ignore[arg-type]
    for timeout in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError):
            jobs(session).acquire(timeout=timeout)
    for name in ("", "a/b", ".", "a\nb"):
        with pytest.raises(NameRefused):
            Semaphore(session, name, 2)
    with pytest.raises(TypeError, match=r"hold\(\)"), jobs(session):  # type: ignore[attr-defined]
        pass


def test_a_folder_with_something_else_in_it_is_refused(session: Session) -> None:
    session.nodes.create(FOLDER, b"hello", makepath=True)
    session.nodes.create(f"{FOLDER}/foreign", b"")
    for timeout in (5, 0):
        with pytest.raises(NodeForeign, match="not a limit"):
            jobs(session).acquire(timeout=timeout)
    for call in (lambda: jobs(session).resize(3), lambda: jobs(session).standing()):
        with pytest.raises(NodeForeign, match="not a limit"):
            call()
    until(lambda: nothing_left(session))
    session.nodes.set(FOLDER, b"")
    lease = jobs(session).acquire(timeout=5)  # foreign children do no harm
    assert session.nodes.get(FOLDER)[0] == b'{"permits":2}'
    lease.release(timeout=5)


def test_more_permits_wake_the_head_at_once(session: Session, other: Session) -> None:
    held = jobs(session).acquire(weight=2, timeout=5)
    waiters = []
    for number in range(4):
        waiters.append(jobs((other, session)[number // 2]).acquire_future(timeout=20))
        until(lambda number=number: len(queue(session)) == number + 2)
    assert jobs(other, None).resize(5) == (5, 2, 5)
    granted = [waiter.wait() for waiter in waiters[:3]]
    assert not waiters[3].done()
    jobs(other, 2).resize(6)
    granted.append(waiters[3].wait())
    for lease in (held, *granted):
        lease.release(timeout=5)
    until(lambda: nothing_left(session) and nothing_left(other))
    jobs(session, 2).acquire(timeout=5).release(timeout=5)  # it names what was declared
    jobs(session, 6).acquire(timeout=5).release(timeout=5)
    with pytest.raises(LimitMismatch):
        jobs(session, 5).acquire(timeout=5)


def test_fewer_permits_than_are_held_are_refused(session: Session, other: Session) -> None:
    held = [jobs(session, 4).acquire(timeout=5) for _ in range(3)]
    before = session.nodes.get(FOLDER)[0]
    with pytest.raises(LimitExceeded, match="3 permits are held, so the limit cannot be 2") as why:
        jobs(other, 4).resize(2)
    assert (why.value.asked, why.value.limit) == (2, 3)
    assert session.nodes.get(FOLDER)[0] == before
    assert "kept" not in session.nodes.children(FOLDER)
    assert jobs(other, 4).resize(3) == (3, 4, 3)
    with pytest.raises(AcquireTimeout):
        jobs(other, 4).acquire(timeout=0)
    held[0].release(timeout=5)
    jobs(other, 4).acquire(timeout=0).release(timeout=5)


def test_a_forced_resize_lets_the_surplus_drain(session: Session, other: Session) -> None:
    held = [jobs(session, 3).acquire(timeout=5) for _ in range(3)]
    assert jobs(other, 3).resize(2, force=True) == (2, 3, 3)
    waiters = []
    for number, asking in enumerate((other, session)):
        waiters.append(jobs(asking, 3).acquire_future(timeout=20))
        until(lambda number=number: len(queue(session)) == number + 4)
    for lease in held[:2]:
        assert not waiters[0].done()
        lease.check()
        lease.release(timeout=5)
    first = waiters[0].wait()  # although the node in front of it neither left nor ever waited
    assert not waiters[1].done()
    held[2].release()
    waiters[1].wait().release()
    first.release()
    until(lambda: nothing_left(session) and nothing_left(other))


def test_a_limit_that_changes_between_listing_and_reading_makes_it_look_again(
    session: Session, other: Session
) -> None:
    """A listing from before a resize and a limit from after it say nothing together."""
    held = [jobs(other, 3).acquire(timeout=5) for _ in range(2)]
    last = jobs(other, 3).acquire(timeout=5)
    submit = session.link._connection.submit
    kept: list[object] = []

    def keep(call: object) -> None:
        if call.what.startswith("get") and not kept:  # type: ignore[attr-defined]
            kept.append(call)
        else:
            submit(call)

    session.link._connection.submit = keep  # type: ignore[method-assign]
    future = jobs(session, 3).acquire_future(timeout=20)
    until(lambda: kept and len(queue(other)) == 4)
    session.link._connection.submit = submit  # type: ignore[method-assign]
    session.nodes.sync()  # the listing is answered
    for lease in held:
        lease.release(timeout=5)
    assert jobs(other, 3).resize(2) == (2, 3, 2)
    submit(kept[0])
    future.wait().release()  # three stood in front then, and none of them was waiting
    last.release()
    until(lambda: nothing_left(session) and nothing_left(other))


def test_a_resize_under_a_resize_is_seen(session: Session, other: Session) -> None:
    jobs(session).resize(3)
    submit = session.link._connection.submit
    under: list[Resized] = []

    def overtake(call: Call) -> None:
        if "resize: setdata" in call.what and not under:
            under.append(jobs(other, None).resize(7))
        submit(call)

    session.link._connection.submit = overtake  # type: ignore[method-assign]
    assert jobs(session, None).resize(5, force=True) == (5, 7, 0)
    assert under == [(7, 3, 0)]
    assert jobs(other, None).standing().permits == 5


def test_a_waiter_that_has_become_too_heavy_is_told(session: Session, other: Session) -> None:
    held = jobs(session, 3).acquire(timeout=5)
    heavy = jobs(other, 3).acquire_future(weight=3, timeout=20)
    until(lambda: len(queue(session)) == 2 and len(other.link.watches) == 2)
    jobs(session, 3).resize(2)
    with pytest.raises(LimitExceeded, match="a weight of 3"):
        heavy.wait()
    until(lambda: len(queue(session)) == 1)
    held.release(timeout=5)
    until(lambda: nothing_left(session) and nothing_left(other))


def test_a_resized_limit_is_kept_until_it_is_forgotten(session: Session) -> None:
    semaphore = jobs(session)
    assert semaphore.resize(4) == (4, 4, 0)  # nobody had declared one
    assert semaphore.resize(7) == (7, 4, 0)
    assert session.nodes.children(FOLDER) == ["kept"]
    semaphore.forget()
    semaphore.forget()
    assert session.nodes.children(FOLDER) == []
