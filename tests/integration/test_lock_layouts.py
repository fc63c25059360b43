"""Our lock takes turns with kazoo's own Lock and with Curator's own InterProcessMutex."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests import waiting
from tests.curator.driver import DriverMissing
from tests.faults.frame_relay import Frame, FrameRelay
from tests.integration.rivals import PATH, ROOT, Curator, Kazoo, Rival
from zkcoord.core.ordering import parse
from zkcoord.errors import AcquireTimeout, ConfigError, LeaseLost
from zkcoord.recipes import Lock, contenders
from zkcoord.zk import Session
from zkcoord.zk.call import Call
from zkcoord.zk.requests import Create, CreateContainer

until = partial(waiting.until, seconds=20.0)


@pytest.fixture(params=[Kazoo, Curator])
def rival(zookeeper: str, request: pytest.FixtureRequest) -> Iterator[Rival]:
    try:
        found = request.param(zookeeper)
    except DriverMissing as missing:
        pytest.skip(str(missing))
    yield found
    found.close()


@pytest.fixture(scope="module", autouse=True)
def _end_of_curator() -> Iterator[None]:
    yield
    if Curator.shared is not None:
        Curator.shared.close()
        Curator.shared = None


@pytest.fixture
def session(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, timeout=10, name="ours") as session:
        yield session


@pytest.fixture
def lock(session: Session, rival: Rival) -> Lock:
    return Lock(session, "gpu", root=ROOT, layout=rival.layout)


def queue(session: Session) -> list[str]:
    """Who stands in the queue."""
    if session.nodes.exists(PATH) is None:
        return []
    return session.nodes.children(PATH)


def nothing_left(session: Session) -> bool:
    return not queue(session) and not len(session.link.watches) and not session.ephemeral_bytes


def test_the_rival_waits_for_us_and_our_release_wakes_it(
    session: Session, rival: Rival, lock: Lock
) -> None:
    lease = lock.acquire(timeout=5)
    assert not rival.ask(timeout=0.3).wait()
    turn = rival.ask()
    until(lambda: len(queue(session)) == 2)
    assert turn.waits()
    lease.release()
    assert turn.wait()
    turn.release()
    until(lambda: nothing_left(session))


def test_we_wait_for_the_rival_and_its_release_wakes_us(
    session: Session, rival: Rival, lock: Lock
) -> None:
    turn = rival.ask()
    assert turn.wait()
    future = lock.acquire_future(timeout=20)
    until(lambda: len(queue(session)) == 2)
    assert not future.done()
    turn.release()
    lease = future.wait()
    assert lease.token == session.nodes.get(lease.path)[1].czxid
    lease.check()
    lease.release()
    until(lambda: nothing_left(session))


def test_the_order_of_asking_holds_across_the_mix(
    session: Session, rival: Rival, lock: Lock
) -> None:
    first = lock.acquire(timeout=5)
    order: list[int] = []
    threads = []

    def watch(number: int, wait: Callable[[], object], release: Callable[[object], object]) -> None:
        def work() -> None:
            got = wait()
            order.append(number)
            release(got)

        threads.append(threading.Thread(target=work))
        threads[-1].start()

    for number in range(8):
        if number % 2:
            future = lock.acquire_future(timeout=60)
            watch(number, future.wait, lambda lease: lease.release())  # type: ignore[attr-defined]
        else:
            turn = rival.ask()
            watch(number, turn.wait, lambda _, turn=turn: turn.release())
        until(lambda number=number: len(queue(session)) == number + 2)
    first.release()
    for thread in threads:
        thread.join(30)
    assert order == list(range(8))
    until(lambda: nothing_left(session))


def test_never_two_inside(session: Session, rival: Rival, lock: Lock) -> None:
    inside: list[int] = []
    most: list[int] = []
    entries: list[str] = []

    def enter(who: str) -> None:
        inside.append(1)
        threading.Event().wait(0.005)  # time for another to come in, if it can
        most.append(len(inside))
        entries.append(who)
        inside.pop()

    def ours() -> None:
        for _ in range(10):
            with lock.hold(timeout=60):
                enter("ours")

    def theirs() -> None:
        for _ in range(10):
            turn = rival.ask()
            assert turn.wait(60)
            enter("theirs")
            turn.release()

    threads = [threading.Thread(target=work) for work in (ours, theirs) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(entries) == ["ours"] * 20 + ["theirs"] * 20
    assert max(most) == 1
    until(lambda: nothing_left(session))


def test_timeouts_and_tries_of_both_leave_nothing(
    session: Session, rival: Rival, lock: Lock
) -> None:
    turn = rival.ask()
    assert turn.wait()
    before = session.nodes.exists(PATH)
    with pytest.raises(AcquireTimeout):
        lock.acquire(timeout=0)
    after = session.nodes.exists(PATH)
    assert before is not None
    assert after is not None
    assert after.cversion == before.cversion
    with pytest.raises(AcquireTimeout, match="held by"):
        lock.acquire(timeout=0.4)
    until(lambda: len(queue(session)) == 1)
    turn.release()
    with lock.hold(timeout=5):
        assert not rival.ask(timeout=0.3).wait()
        until(lambda: len(queue(session)) == 1)
    until(lambda: nothing_left(session))


def test_the_crash_of_the_rival_lets_us_in(session: Session, rival: Rival, lock: Lock) -> None:
    assert rival.ask().wait()
    rival.ask()
    until(lambda: len(queue(session)) == 2)
    future = lock.acquire_future(timeout=60)
    until(lambda: len(queue(session)) == 3)
    rival.crash()
    future.wait().release()
    until(lambda: nothing_left(session))


def test_our_end_lets_the_rival_in(session: Session, rival: Rival, zookeeper: str) -> None:
    with Session(zookeeper, timeout=10, name="leaving") as leaving:
        lock = Lock(leaving, "gpu", root=ROOT, layout=rival.layout)
        lease = lock.acquire(timeout=5)
        lock.acquire_future()
        until(lambda: len(queue(session)) == 2)
        turn = rival.ask()
        until(lambda: len(queue(session)) == 3)
        assert turn.waits()
    assert turn.wait()
    with pytest.raises(LeaseLost):
        lease.check()
    turn.release()
    until(lambda: nothing_left(session))


def test_the_queue_shows_both(session: Session, rival: Rival, lock: Lock) -> None:
    turn = rival.ask()
    assert turn.wait()
    lock.acquire_future()
    until(lambda: len(queue(session)) == 2)
    theirs, mine = contenders(session, "gpu", root=ROOT)
    assert (theirs.kind, theirs.position, mine.kind, mine.session) == ("x", 0, "x", session.id)
    assert theirs.session not in (0, session.id)
    assert mine.identity is not None
    assert mine.identity.name == "ours"
    assert str(theirs.identity) == ("k1" if rival.layout == "kazoo" else theirs.identity.name)
    with pytest.raises(AcquireTimeout, match=f"held by {theirs.identity}"):
        lock.acquire(timeout=0)
    turn.release()


def test_the_folder_is_made_as_the_rival_makes_it(session: Session, rival: Rival) -> None:
    """kazoo makes its folder once for each Lock object, so the server must not remove it."""
    made: list[type] = []
    submit = session.link._connection.submit

    def spy(call: Call) -> None:
        if call.request.path.endswith(PATH):
            made.append(type(call.request))
        submit(call)

    session.link._connection.submit = spy
    Lock(session, "gpu", root=ROOT, layout=rival.layout).acquire(timeout=5).release(timeout=5)
    assert (CreateContainer in made) == (rival.layout == "curator")
    assert (Create in made) == (rival.layout == "kazoo")


def test_our_own_layout_waits_for_the_rival_too(session: Session, rival: Rival) -> None:
    """So a fleet can move from one layout to the other, once the rival's processes are gone."""
    turn = rival.ask()
    assert turn.wait()
    future = Lock(session, "gpu", root=ROOT).acquire_future(timeout=20)
    until(lambda: len(queue(session)) == 2)
    assert not future.done()
    theirs = Lock(session, "gpu", root=ROOT, layout=rival.layout).acquire_future(timeout=20)
    until(lambda: len(queue(session)) == 3)
    turn.release()
    future.wait().release()
    theirs.wait().release()
    until(lambda: nothing_left(session))


def test_we_wait_for_kazoos_readers(zookeeper: str, session: Session) -> None:
    rival = Kazoo(zookeeper)
    try:
        reader = rival.client.ReadLock(PATH)
        reader.acquire(timeout=5)
        future = Lock(session, "gpu", root=ROOT, layout="kazoo").acquire_future(timeout=20)
        until(lambda: len(queue(session)) == 2)
        with contextlib.suppress(TimeoutError):
            future.result(0.2)
        assert not future.done()
        reader.release()
        future.wait().release()
    finally:
        rival.close()


@pytest.mark.parametrize("layout", ["kazoo", "curator"])
def test_an_uncertain_create_is_written_again_under_the_same_guid(
    zookeeper: str, session: Session, layout: str
) -> None:
    """The reply is lost: both nodes are known as ours, and one of them goes again."""
    xids: list[int] = []

    def note_the_create(frame: Frame) -> bytes:
        if frame.number and frame.opcode == Create.opcode:
            xids.append(frame.xid)
        return frame.body

    def lose_its_reply(frame: Frame) -> bytes | None:
        if xids[:1] == [frame.xid] and frame.link == 0:
            relay.cut()
            return None
        return frame.body

    chroot = zookeeper.partition("/")[2]
    with FrameRelay(zookeeper) as relay, Session(relay.address, timeout=10) as cut_off:
        lock = Lock(cut_off, "gpu", root=f"/{chroot}{ROOT}", layout=layout)
        lock.acquire(timeout=5).release(timeout=5)
        relay.up, relay.down = note_the_create, lose_its_reply
        lease = lock.acquire(timeout=5)
        assert len(xids) == 2
        until(lambda: len(queue(session)) == 1)
        assert lease.path.endswith(queue(session)[0])
        stat = session.nodes.exists(lease.path.removeprefix(f"/{chroot}"))
        assert stat is not None
        assert stat.czxid == lease.token
        lease.release(timeout=5)
        assert queue(session) == []


def test_our_names_tell_the_session_and_an_unknown_layout_is_refused(session: Session) -> None:
    for layout, mark in (("kazoo", "__lock__"), ("curator", "-lock-")):
        lease = Lock(session, layout, layout=layout).acquire(timeout=5)
        found = parse(lease.path.rpartition("/")[2])
        assert found is not None
        assert found.session == session.id
        assert mark in found.node
        lease.release()
    with pytest.raises(ConfigError, match="zkcoord, kazoo, curator"):
        Lock(session, "gpu", layout="etcd")
