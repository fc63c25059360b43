"""Double barriers whose deadlines are near, and who looks again when: on a real server."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.waiting import until
from zkcoord.errors import WaitTimeout
from zkcoord.recipes import DoubleBarrier, Participant, arrival
from zkcoord.zk import Session
from zkcoord.zk.call import Call
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Delete, Multi

FOLDER = "/double-barriers/b"


@pytest.fixture
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again by itself, only when something has changed."""
    monkeypatch.setattr(arrival, "_AGAIN_S", (600.0, 600.0))


class Keeper:
    """Keeps back what a session sends of one kind, until it is let go."""

    def __init__(self, session: Session, kind: type) -> None:
        self._submit: Callable[[Call], None] = session.link._connection.submit
        self._kind = kind
        self.kept: list[Call] = []
        session.link._connection.submit = self._keep  # type: ignore[method-assign]

    def _keep(self, call: Call) -> None:
        if isinstance(call.request, self._kind):
            self.kept.append(call)
        else:
            self._submit(call)

    def let_go(self) -> None:
        """What was kept goes out, and nothing is kept any more."""
        self._kind = Keeper
        for call in self.kept:
            self._submit(call)


@pytest.fixture
def slow(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper, timeout=10, name="slow") as session:
        yield session


def enter(session: Session, timeout: float = 20) -> Promise[Participant]:
    """Enter, and come behind all who are there."""
    before = count(session)
    promise = DoubleBarrier(session, "b", 2).enter_future(timeout)
    until(lambda: count(session) == before + 1)
    return promise


def count(session: Session) -> int:
    return len(session.nodes.children(FOLDER)) if session.nodes.exists(FOLDER) else 0


def two_and_one_behind(
    session: Session, slow: Session, timeout: float = 20
) -> tuple[list[Promise[Participant]], Keeper]:
    """Two whose round is not made because the one whose turn it is is slow, and another one."""
    first = enter(session)
    keeper = Keeper(slow, Multi)
    second = enter(slow)
    until(lambda: keeper.kept)
    listing = len(session.link.watches)
    third = enter(session, timeout)
    until(lambda: len(session.link.watches) > listing)
    return [first, second, third], keeper


def leave(*inside: Promise[Participant]) -> None:
    for one in inside:
        one.wait().release(timeout=5)


@pytest.mark.usefixtures("no_second_look")
def test_who_stands_behind_a_round_is_told_of_its_own_at_once(
    session: Session, other: Session, slow: Session
) -> None:
    (first, second, third), keeper = two_and_one_behind(session, slow, timeout=5)
    keeper.let_go()
    assert [first.wait().rank, second.wait().rank] == [0, 1]
    fourth = enter(other)
    assert [third.wait().rank, fourth.wait().rank] == [0, 1]
    leave(first, second, third, fourth)


@pytest.mark.usefixtures("no_second_look")
def test_who_stands_behind_makes_the_next_round_when_one_was_made(
    session: Session, other: Session, slow: Session
) -> None:
    entering, keeper = two_and_one_behind(session, slow)
    entering += [enter(where, 5) for where in (other, session, other)]
    keeper.let_go()
    assert [one.wait().rank for one in entering] == [0, 1] * 3
    leave(*entering)


@pytest.mark.usefixtures("no_second_look")
def test_who_stands_behind_takes_the_place_of_one_who_goes(session: Session, slow: Session) -> None:
    (first, second, third), keeper = two_and_one_behind(session, slow)
    until(lambda: len(session.link.watches) == 4)  # two own nodes, the front, the folder
    second.cancel()
    assert [first.wait().rank, third.wait().rank] == [0, 1]
    keeper.let_go()
    leave(first, third)


def test_who_may_not_withdraw_is_in_even_beyond_its_deadline(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival, "_GRACE_S", 60.0, raising=False)
    keeper = Keeper(session, Delete)
    first = enter(session, 0.4)
    until(lambda: keeper.kept)
    threading.Event().wait(0.3)  # its deadline passes
    second = enter(other)
    assert second.wait().rank == 1
    keeper.let_go()
    assert first.wait().rank == 0
    leave(first, second)


def test_who_hears_nothing_of_its_withdrawal_gives_up_in_the_end(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival, "_GRACE_S", 0.2, raising=False)
    keeper = Keeper(session, Delete)
    first = enter(session, 0.2)
    with pytest.raises(WaitTimeout, match="not 2 came within"):
        first.wait()
    keeper.let_go()
    until(lambda: count(other) == 0)
    until(lambda: session.ephemeral_bytes == 0)


@pytest.mark.usefixtures("no_second_look")
def test_the_message_says_what_was_missing(session: Session, slow: Session) -> None:
    with pytest.raises(WaitTimeout, match=r"not 2 came within 0\.2 s, last count: 1$"):
        DoubleBarrier(session, "b", 2).enter(timeout=0.2)
    until(lambda: count(session) == 0)
    (first, second, third), keeper = two_and_one_behind(session, slow, timeout=1)
    with pytest.raises(WaitTimeout, match=r"no round of 2 was made with this one within 1 s$"):
        third.wait()
    keeper.let_go()
    leave(first, second)


@pytest.mark.parametrize(
    ("timeouts", "size"), [((0.15,) * 4, 2), ((0.3, 0.3, 0.05, 0.3, 0.05, 0.3, 0.05), 3)]
)
def test_all_of_a_round_are_in_when_all_come_at_once(
    zookeeper: str, timeouts: tuple[float, ...], size: int
) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(len(timeouts)) as threads:
        gate = threading.Barrier(len(timeouts))
        barriers = [
            DoubleBarrier(stack.enter_context(Session(zookeeper, timeout=10)), "b", size)
            for _ in timeouts
        ]

        def come(barrier: DoubleBarrier, timeout: float) -> Participant | None:
            gate.wait(30)
            try:
                return barrier.enter(timeout)
            except WaitTimeout:
                return None

        for _ in range(15):
            inside = [one for one in threads.map(come, barriers, timeouts) if one is not None]
            rounds: dict[int, list[int]] = {}
            for one in inside:
                rounds.setdefault(one._made, []).append(one.rank)
            assert all(sorted(ranks) == list(range(size)) for ranks in rounds.values()), rounds
            for one in inside:
                one.release(timeout=5)
