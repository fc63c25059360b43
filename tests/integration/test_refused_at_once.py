"""Wrong arguments and blocking calls that are refused at the call, with what to do instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.waiting import until
from zkcoord.errors import ConfigError, LeaseLost, NameRefused
from zkcoord.recipes import (
    DoubleBarrier,
    Election,
    FastCounter,
    Lease,
    Lock,
    Membership,
    MultiLock,
    NodeCache,
    Profile,
    ReadWriteLock,
    RLock,
    Semaphore,
    TreeCache,
    break_lock,
    broken_locks,
    contenders,
    observe,
)
from zkcoord.zk import Session
from zkcoord.zk.clock import now


class Caller:
    """An object whose call is async."""

    async def __call__(self, *_: object) -> None: ...


async def coroutine(*_: object) -> None: ...


def held(session: Session) -> Lease:
    return Lock(session, "held").acquire(timeout=10)


CALLBACKS: dict[str, Callable[[Session, Any], object]] = {
    "position of a lock": lambda one, fn: Lock(one, "x").acquire_future(on_position=fn),
    "revocation of a lock": lambda one, fn: Lock(one, "x").acquire_future(on_revoke=fn),
    "position of a reentrant lock": lambda one, fn: RLock(one, "x").acquire(on_position=fn),
    "position of a reader": lambda one, fn: ReadWriteLock(one, "x").read.acquire(on_position=fn),
    "revocation of a writer": lambda one, fn: ReadWriteLock(one, "x").write.acquire(on_revoke=fn),
    "position of a candidate": lambda one, fn: Election(one, "x").campaign(on_position=fn),
    "revocation of a leader": lambda one, fn: Election(one, "x").campaign(on_revoke=fn),
    "leaders": lambda one, fn: Election(one, "x").observe(fn),
    "change of a node": lambda one, fn: NodeCache(one, "/x", on_change=fn),
    "change of a tree": lambda one, fn: TreeCache(one, "/x", on_change=fn),
    "joining": lambda one, fn: Membership(one, "/g").keep("a", on_join=fn),
    "members": lambda one, fn: Membership(one, "/g").watch(fn),
    "metrics": observe,
    "states": lambda one, fn: one.on_state(fn),
    "loss": lambda one, fn: held(one).on_lost(fn),
    "what a leader does": lambda one, fn: Election(one, "x").run(fn, timeout=10),
}
REQUIRED = {"leaders", "members", "metrics", "states", "loss", "what a leader does"}


@pytest.mark.parametrize(
    "wrong", [5, "print", coroutine, Caller()], ids=["number", "text", "async", "async object"]
)
@pytest.mark.parametrize("site", CALLBACKS)
def test_what_cannot_be_called_back_is_refused(session: Session, site: str, wrong: object) -> None:
    with pytest.raises(TypeError, match=r"must be a|is async"):
        CALLBACKS[site](session, wrong)
    assert Lock(session, "x").acquire(timeout=10).release(timeout=10)
    assert contenders(session, "x", root="/elections") == []


@pytest.mark.parametrize("site", sorted(REQUIRED))
def test_nothing_is_no_function(session: Session, site: str) -> None:
    with pytest.raises(TypeError, match="must be a"):
        CALLBACKS[site](session, None)


def _transfer(session: Session, to: Any) -> None:
    with Election(session, "e").lead(timeout=10) as leadership:
        try:
            leadership.transfer(to, timeout=2)
        finally:
            leadership.check()  # it leads on


WRONG: dict[str, tuple[type[Exception], Callable[[Session], object]]] = {
    "token of text": (TypeError, lambda one: break_lock(one, "x", "17", "why")),  # type: ignore[arg-type]
    "token is true": (TypeError, lambda one: break_lock(one, "x", True, "why")),
    "size is true": (ConfigError, lambda one: DoubleBarrier(one, "x", size=True)),
    "stripes are true": (ConfigError, lambda one: FastCounter(one, "/x", stripes=True)),
    "delay is true": (ConfigError, lambda one: Lock(one, "x", lock_delay=True)),
    "delay is false": (ConfigError, lambda one: Lock(one, "x", lock_delay=False)),
    "hand-offs are true": (ConfigError, lambda one: Lock(one, "x", local_handoffs=True)),
    "permits are true": (ConfigError, lambda one: Semaphore(one, "x", True)),
    "timeout is true": (ConfigError, lambda one: Lock(one, "x").acquire(timeout=True)),
    "timeout is false": (ConfigError, lambda one: DoubleBarrier(one, "x", 2).enter(timeout=False)),
    "size is half": (ConfigError, lambda one: DoubleBarrier(one, "x", size=1.5)),  # type: ignore[arg-type]
    "to nobody": (TypeError, lambda one: _transfer(one, None)),
    "to true": (TypeError, lambda one: _transfer(one, True)),
    "to no name": (NameRefused, lambda one: _transfer(one, "")),
    "revoke for nobody": (
        TypeError,
        lambda one: Election(one, "x").revoke("why", to=None),  # type: ignore[arg-type]
    ),
    "no contenders": (ConfigError, lambda one: contenders(one, "x", limit=0)),
    "fewer contenders": (ConfigError, lambda one: contenders(one, "x", limit=-1)),
    "half a contender": (ConfigError, lambda one: contenders(one, "x", limit=0.5)),  # type: ignore[arg-type]
    "no records": (ConfigError, lambda one: broken_locks(one, limit=0)),
    "no permits shown": (ConfigError, lambda one: Semaphore(one, "x", 1).standing(limit=0)),
    "one capability": (ConfigError, lambda _: Profile(capabilities="gpu")),  # type: ignore[arg-type]
    "capability of bytes": (ConfigError, lambda _: Profile(capabilities=b"gpu")),  # type: ignore[arg-type]
    "profile of text": (TypeError, lambda one: Membership(one, "/g").join("a", profile="gpu")),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_argument_is_refused(session: Session, mistake: str) -> None:
    kind, call = WRONG[mistake]
    with pytest.raises(kind, match=r"must be|name a candidate"):
        call(session)


def test_one_capability_is_not_taken_as_letters() -> None:
    with pytest.raises(ConfigError, match="several names, not one"):
        Profile(capabilities="gpu")  # type: ignore[arg-type]


def test_an_async_function_in_disguise_is_not_run(session: Session) -> None:
    """A plain function that gives a coroutine, and the other way round."""
    election = Election(session, "e")
    disguised: Any = coroutine
    with pytest.raises(TypeError, match="run_async"):
        election.run(lambda _: disguised(), timeout=10)
    assert election.leader() is None

    async def main() -> None:
        with pytest.raises(TypeError, match=r"use run\(\)"):
            await election.run_async(lambda _: 5, timeout=10)  # type: ignore[arg-type,return-value]
        with pytest.raises(TypeError, match="must be an async function"):
            await election.run_async(5, timeout=10)  # type: ignore[arg-type]
        assert await election.leader_future() is None

    asyncio.run(main())


def test_waiting_for_a_promise_does_not_freeze_an_event_loop(session: Session) -> None:
    lock = Lock(session, "x")
    lease = lock.acquire(timeout=10)

    async def main() -> None:
        waiting = lock.acquire_future(timeout=20)
        for call in (waiting.result, waiting.exception):
            with pytest.raises(RuntimeError, match="await promise"):
                call()
            with pytest.raises(TimeoutError):
                call(timeout=0)
        lease.release()
        won = await waiting
        assert waiting.result() is waiting.wait() is won
        lost = lock.acquire_future(timeout=20)
        with pytest.raises(RuntimeError, match="await promise"):
            lost.wait()
        assert lost.cancelled()
        with pytest.raises(RuntimeError, match="wait_async"):
            won.lost.wait()
        assert not won.lost.wait(0)
        with pytest.raises(RuntimeError, match="release_future"):
            won.release(timeout=5)
        assert await won.release_future()

    asyncio.run(main())
    until(lambda: session.ephemeral_bytes == 0)


def test_a_session_can_be_closed_inside_an_event_loop(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(zookeeper)
    link, waits = session.link, list[float]()
    join = link.join

    def joined(deadline: float) -> bool:
        waits.append(deadline - now())
        return join(deadline)

    monkeypatch.setattr(link, "join", joined)

    async def main() -> None:
        await session.start_future()
        session.close(timeout=60)
        assert len(waits) == 1
        assert waits[0] <= 0
        await session.close_future()

    asyncio.run(main())
    assert session.close(timeout=10)


@pytest.mark.parametrize("kind", ["lock", "several"])
def test_a_released_lease_guards_nothing(session: Session, kind: str) -> None:
    lock = Lock(session, "x") if kind == "lock" else MultiLock(session, ["x", "y"])
    lease: Lease = lock.acquire(timeout=10)
    lease.release(timeout=10)
    with pytest.raises(LeaseLost, match="was released"):
        lease.guard(session.nodes.transaction())
