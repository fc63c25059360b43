"""Text instead of bytes and the like: refused at the call, and never at the cost of the link."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from zkcoord.errors import ConfigError, NameRefused
from zkcoord.recipes import (
    Barrier,
    Counter,
    DoubleBarrier,
    Election,
    FastCounter,
    Lease,
    Lock,
    Membership,
    MultiLock,
    NodeCache,
    Pool,
    Profile,
    ReadWriteLock,
    RLock,
    Semaphore,
    TreeCache,
    break_lock,
    broken_locks,
    contenders,
    observe,
    revoke,
)
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise
from zkcoord.zk.verbs import Verb

TEXT: Any = "text"
GROUP = "/m/g"


@dataclass
class Site:
    """A session with a lease that must outlive everybody's mistakes."""

    session: Session
    innocent: Lease
    states: list[str]

    def unharmed(self) -> None:
        """The link never fell."""
        self.session.nodes.get("/")
        self.innocent.check()
        assert self.states == []


@pytest.fixture
def site(zookeeper: str) -> Iterator[Site]:
    with Session(zookeeper) as session:
        session.nodes.create("/x", b"")
        lease = Lock(session, "innocent").acquire(timeout=10)
        states: list[str] = []
        session.on_state(states.append)
        yield Site(session, lease, states)


def _update(session: Session) -> None:
    with Membership(session, GROUP).join("a") as member:
        member.update(TEXT)


def _presence(session: Session) -> None:
    with Membership(session, GROUP).keep("a") as presence:
        presence.update(TEXT)


def _proclaim(session: Session) -> None:
    with Election(session, "e").lead(timeout=10) as leadership:
        leadership.proclaim(TEXT)


def _lead(session: Session) -> None:
    with Election(session, "e").lead(timeout=10, data=TEXT):
        pass


NUMBER: Any = "0"
FIVE: Any = 5
NOTHING: Any = None
MISTAKES: dict[str, Callable[[Session], object]] = {
    "create": lambda one: one.nodes.create("/y", TEXT),
    "create a number": lambda one: one.nodes.create("/y", FIVE),
    "create nothing": lambda one: one.nodes.create("/y", NOTHING),
    "create a list": lambda one: one.nodes.create("/y", [1]),  # type: ignore[arg-type]
    "create a container": lambda one: one.nodes.create("/y", TEXT, container=True),
    "create bytes as path": lambda one: one.nodes.create(b"/y/", sequential=True),  # type: ignore[arg-type]
    "set": lambda one: one.nodes.set("/x", TEXT),
    "set nothing": lambda one: one.nodes.set("/x", NOTHING),
    "set at version": lambda one: one.nodes.set("/x", b"", NUMBER),
    "set at true": lambda one: one.nodes.set("/x", b"", True),
    "delete at version": lambda one: one.nodes.delete("/x", NUMBER),
    "delete at half": lambda one: one.nodes.delete("/x", 0.5),  # type: ignore[arg-type]
    "get a number": lambda one: one.nodes.get(5),  # type: ignore[arg-type]
    "transaction create": lambda one: one.nodes.transaction().create("/y", TEXT),
    "transaction set": lambda one: one.nodes.transaction().set("/x", TEXT),
    "transaction set at": lambda one: one.nodes.transaction().set("/x", b"", NUMBER),
    "transaction delete at": lambda one: one.nodes.transaction().delete("/x", NUMBER),
    "transaction check at": lambda one: one.nodes.transaction().check("/x", NUMBER),
    "join": lambda one: Membership(one, GROUP).join("a", TEXT),
    "keep": lambda one: Membership(one, GROUP).keep("a", TEXT),
    "update": _update,
    "presence": _presence,
    "campaign": lambda one: Election(one, "e").campaign(timeout=10, data=TEXT),
    "lead": _lead,
    "proclaim": _proclaim,
    "label": lambda one: Lock(one, "l", label=b"me").acquire(timeout=10),  # type: ignore[arg-type]
}
NO_NUMBERS: dict[str, Callable[[Session], object]] = {
    "profile": lambda one: Membership(one, GROUP).join("a", profile=Profile(data=TEXT)),
    "counter": lambda one: Counter(one, "/c").add(NUMBER),
    "compare": lambda one: Counter(one, "/c").compare_and_set(NUMBER, 1),
    "fast counter": lambda one: FastCounter(one, "/f").add(NUMBER),
    "long version": lambda one: one.nodes.set("/x", b"", 1 << 31),
    "long timeout": lambda one: one.nodes.get("/x", timeout=10**400),
    "lock": lambda one: Lock(one, "l").acquire(timeout=10**400),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_type_is_refused_at_the_call(site: Site, mistake: str) -> None:
    with pytest.raises(TypeError, match="must be"):
        MISTAKES[mistake](site.session)
    site.unharmed()


@pytest.mark.parametrize("mistake", NO_NUMBERS)
def test_what_is_no_amount_is_refused_at_the_call(site: Site, mistake: str) -> None:
    with pytest.raises(ConfigError):
        NO_NUMBERS[mistake](site.session)
    site.unharmed()


RECIPES: list[Callable[[Any], object]] = [
    lambda session: Barrier(session, "x"),
    lambda session: Counter(session, "/x"),
    lambda session: DoubleBarrier(session, "x", 2),
    lambda session: Election(session, "x"),
    lambda session: FastCounter(session, "/x"),
    lambda session: Lock(session, "x"),
    lambda session: Lock(session, "x", lock_delay=1.0),
    lambda session: Membership(session, "/x"),
    lambda session: MultiLock(session, ["x", "y"]),
    lambda session: NodeCache(session, "/x"),
    lambda session: Pool(session, "x", slots=["a"]),
    lambda session: RLock(session, "x"),
    lambda session: ReadWriteLock(session, "x"),
    lambda session: Semaphore(session, "x", 2),
    lambda session: TreeCache(session, "/x"),
    lambda session: contenders(session, "x"),
    lambda session: revoke(session, "x", "reason"),
    lambda session: break_lock(session, "x", token=1, reason="reason"),
    broken_locks,
    lambda session: observe(session, print),
]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("wrong", [None, "server.example.org:2181", Session])
def test_a_recipe_wants_a_session(recipe: Callable[[Any], object], wrong: object) -> None:
    with pytest.raises(TypeError, match="must be a Session, not"):
        recipe(wrong)


def test_all_kinds_of_bytes_can_be_values(site: Site) -> None:
    nodes = site.session.nodes
    kinds: tuple[Any, ...] = (bytearray(b"one"), memoryview(b"one"))
    for value in kinds:
        nodes.set("/x", value)
        assert nodes.get("/x")[0] == b"one"
        nodes.transaction().set("/x", value).commit()
        assert nodes.get("/x")[0] == b"one"


@dataclass
class Broken:
    """A request that no server ever sees."""

    cause: Exception
    path: str = "/x"
    opcode: ClassVar[int] = 4

    def serialize(self) -> bytes:
        raise self.cause

    def deserialize(self, buffer: bytes, offset: int) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("cause", [TypeError("text"), ValueError("half"), AttributeError("no")])
def test_a_request_that_cannot_be_written_fails_alone(site: Site, cause: Exception) -> None:
    link = site.session.link
    before = site.session.nodes.get_future("/x")
    broken: Promise[bytes] = Verb[bytes](link, Broken(cause), "get", 10.0, repeat=True).promise
    after = site.session.nodes.get_future("/x")
    with pytest.raises(NameRefused, match="/x") as told:
        broken.wait()
    assert told.value.__cause__ is cause
    assert before.wait()[0] == after.wait()[0] == b""
    site.unharmed()
