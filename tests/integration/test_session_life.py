"""The life of a session: started, closed, called back, forked, and in a world of greenlets."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.faults.frame_relay import FrameRelay
from tests.waiting import until
from zkcoord import Election, LeaseLost, Lock, Membership, Session, SessionClosed
from zkcoord.local import Proxy
from zkcoord.local.ports import HOST


@pytest.fixture
def frozen() -> Iterator[str]:
    """A server that takes a connection and never says a word."""
    with socket.create_server((HOST, 0)) as listener:
        yield f"{HOST}:{listener.getsockname()[1]}"


USES: list[Callable[[Session], object]] = [
    lambda session: session.nodes.get("/"),
    lambda session: session.nodes.create("/x", ephemeral=True),
    lambda session: session.nodes.watch("/", lambda *_: None),
    lambda session: session.nodes.transaction().delete("/x").commit(),
    lambda session: Lock(session, "l").acquire(),
    lambda session: Election(session, "e").campaign(),
    lambda session: Membership(session, "/m").join("one"),
]


@pytest.mark.parametrize("use", USES)
def test_nothing_waits_for_a_session_that_is_not_there(
    zookeeper: str, use: Callable[[Session], object]
) -> None:
    session = Session(zookeeper, timeout=4)
    with pytest.raises(SessionClosed, match="not started"):
        use(session)
    session.start()
    session.close()
    with pytest.raises(SessionClosed, match="closed"):
        use(session)


def test_many_threads_start_and_close_one_session(zookeeper: str) -> None:
    before = threading.active_count()
    session = Session(zookeeper, timeout=4)
    for act in (session.start, session.close):
        threads = [threading.Thread(target=act) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    until(lambda: threading.active_count() == before)
    with pytest.raises(SessionClosed):
        session.start()


def test_close_while_it_still_connects(frozen: str) -> None:
    session = Session(frozen, timeout=3)
    started = session.start_future(timeout=30)
    closing = threading.Thread(target=session.close)
    closing.start()
    with pytest.raises(SessionClosed):
        started.result(10)
    closing.join(10)
    assert session.close()


def test_close_in_a_partition_keeps_its_timeout_and_ends_by_itself(zookeeper: str) -> None:
    host, chroot = zookeeper.split("/")
    with Proxy(host) as proxy:
        session = Session(f"{proxy.address}/{chroot}", timeout=3)
        session.start()
        lease = Lock(session, "l").acquire(5)
        proxy.blackhole()
        assert not session.close(timeout=0)
        until(lambda: session.close(timeout=0))  # once the silence is noticed
        with pytest.raises(LeaseLost, match="session is over"):
            lease.check()


@pytest.mark.parametrize("where", ["state", "lost", "promise", "watch", "signal"])
def test_a_callback_may_close_the_session_and_ask_it_things(zookeeper: str, where: str) -> None:
    before = threading.active_count()
    session = Session(zookeeper, timeout=4)
    said: list[object] = []

    def callback(*_: object) -> None:
        if not said:
            said.append(session.close() and session.close(timeout=1))

    if where == "state":
        session.on_state(callback)
    session.start()
    if where == "lost":
        Lock(session, "l").acquire(5).on_lost(callback)
        session.link._connection.abandon(session.id)
    elif where == "promise":
        session.nodes.get_future("/").add_done_callback(callback)
    elif where == "watch":
        session.nodes.watch("/w", callback)
    elif where == "signal":
        session.lost.add_callback(callback)
        session.link._connection.abandon(session.id)
    until(lambda: said == [True])
    until(lambda: threading.active_count() == before)


# --- other processes -----------------------------------------------------------------------------


def _child(session: Session, lease: object) -> int:
    """What a forked child does with what it inherited; 0 when all of it is refused."""
    refused = 0
    attempts: list[Callable[[], object]] = [
        lambda: session.nodes.get("/"),
        lambda: session.set_hosts("a:1"),
        lambda: Lock(session, "l").acquire(),
        lease.check,  # type: ignore[attr-defined]
        lease.release,  # type: ignore[attr-defined]
    ]
    for attempt in attempts:
        try:
            attempt()
        except SessionClosed:
            refused += 1
    gone = session.lost.wait(5) and lease.lost.wait(5)  # type: ignore[attr-defined]
    return 0 if refused == len(attempts) and session.close() and gone else 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_sends_nothing_and_believes_nothing(zookeeper: str) -> None:
    host, chroot = zookeeper.split("/")
    with FrameRelay(host) as relay, Session(f"{relay.address}/{chroot}", timeout=60) as session:
        lease = Lock(session, "l").acquire(5)
        sent = len(relay.sent)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = _child(session, lease)
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        session.nodes.sync()
        assert len(relay.sent) == sent + 1
        assert relay.sent[-1].link == 0
        lease.check()
        assert session.connected


def _work(hosts: str) -> None:
    with Session(hosts, timeout=4) as session:
        Lock(session, "l").acquire(5).release(5)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_of_either_kind_opens_its_own_session(zookeeper: str) -> None:
    with Session(zookeeper, timeout=4) as session:
        session.nodes.get("/")
        for kind in ("fork", "spawn"):
            child = multiprocessing.get_context(kind).Process(target=_work, args=(zookeeper,))
            child.start()
            child.join(30)
            assert child.exitcode == 0
        assert session.connected


def test_a_session_cannot_be_sent_to_another_process(zookeeper: str) -> None:
    with Session(zookeeper, timeout=4) as session:
        lease = Lock(session, "l").acquire(5)
        for thing in (session, session.nodes, Lock(session, "l"), lease):
            with pytest.raises(TypeError, match="stays in its process"):
                pickle.dumps(thing)


GREEN = """
import sys
from gevent import monkey
monkey.patch_all()
import threading
from zkcoord import Lock, Session
seen, tokens = [], []
with Session(sys.argv[1], timeout=6) as session:
    watch = session.nodes.watch("/w", lambda data, _: seen.append(data))
    session.nodes.create("/w", b"1")
    lease = Lock(session, "l").acquire(5)

    def wait():
        with Lock(session, "l").hold(timeout=20) as lease:
            tokens.append(lease.token)

    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    lease.release()
    for thread in threads:
        thread.join(20)
    watch.close()
assert len(tokens) == 5 and tokens == sorted(tokens), tokens
assert seen[-1] == b"1", seen
assert threading.active_count() == 1
print("fine")
"""


def test_it_works_when_gevent_has_replaced_threads_and_sockets(zookeeper: str) -> None:
    command = [sys.executable, "-c", GREEN, zookeeper]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.returncode) == ("fine\n", 0), ended.stderr
