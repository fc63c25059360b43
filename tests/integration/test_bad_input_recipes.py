"""Bad input, for every recipe: a typed error that names what is wrong, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests import waiting
from tests.integration.recipe_uses import READING, USES, WRITING
from tests.special_stack import SpecialStack, with_users
from zkcoord.config import SessionConfig
from zkcoord.errors import (
    AccessDenied,
    ConfigError,
    CoordinationError,
    LimitExceeded,
    NameRefused,
    NodeForeign,
    QuotaFull,
    SessionFull,
)
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
    Pool,
    ReadWriteLock,
    RLock,
    Semaphore,
    TreeCache,
    contenders,
)
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise

Tree = dict[str, tuple[bytes, int]]
BIG = "x" * 1_000_000


until = partial(waiting.until, seconds=20.0)


PATHS = {"Counter", "FastCounter", "NodeCache", "TreeCache", "count", "fast count"}
LEASES = [kind for kind in WRITING if kind not in {"Barrier", "Counter", "FastCounter"}]


def tree(session: Session, path: str = "/") -> Tree:
    """Everything there is: value and czxid."""
    found: Tree = {}
    if path != "/zookeeper":
        value, stat = session.nodes.get(path)
        found[path] = (value, stat.czxid)
        for name in session.nodes.children(path):
            found |= tree(session, f"/{name}" if path == "/" else f"{path}/{name}")
    return found


class Site(NamedTuple):
    """Who sets things up, and who does it wrong."""

    operator: Session
    session: Session

    def refuses(
        self, expected: type[BaseException], ask: Callable[[], Any], *, names: str = ""
    ) -> BaseException:
        """It fails so, soon, and nothing has changed."""
        before = tree(self.operator)
        with pytest.raises(expected) as caught:
            done = ask()
            if isinstance(done, Promise):
                done.wait()
        assert names in str(caught.value)
        self.assert_nothing_left()
        assert tree(self.operator) == before
        return caught.value

    def assert_nothing_left(self) -> None:
        link = self.session.link
        until(lambda: self.session.ephemeral_bytes == 0 and len(link.watches) == 0)
        assert link.epoch is not None
        assert not link.epoch.queues
        assert not link.epoch.claims


@pytest.fixture
def site(zookeeper: str) -> Iterator[Site]:
    with (
        Session(zookeeper, timeout=20, name="operator") as operator,
        Session(zookeeper, timeout=20, name="one") as session,
    ):
        yield Site(operator, session)


# --- names ----------------------------------------------------------------------------------------

BAD_PARTS = ["", ".", "..", "a//b", "a\0b", "a\tb", "a\x7fb", "a\ud800b", "a\uf8ffb", "\U0001f600"]


@pytest.mark.parametrize("kind", USES)
def test_names_that_cannot_be(site: Site, kind: str) -> None:
    names = [*BAD_PARTS, "x" * 1100]
    if kind not in PATHS:
        names += ["a/b", "x" * 201, "ü" * 101]
    for name in names:
        if kind == "MultiLock" and name.startswith("/"):
            continue
        error = site.refuses(NameRefused, lambda n=name: USES[kind](site.session, n, "/place", 5))
        assert isinstance(error, ValueError)
    for root in ("", "place", "/place/", "/a//b", "/../a", "/a\0"):
        if root or kind not in PATHS:
            site.refuses(NameRefused, lambda r=root: USES[kind](site.session, "gpu", r, 5))
    if kind not in PATHS:
        for root in (7, None, b"/place"):
            site.refuses(TypeError, lambda r=root: USES[kind](site.session, "gpu", r, 5))


@pytest.mark.parametrize("kind", USES)
def test_names_that_can_be(site: Site, kind: str) -> None:
    for name in ("größe", "a.b-c", "名前", "-", "0000000001", "with space", "%2F"):
        timeout = 1 if kind == "barrier's wait" else 10
        got = USES[kind](site.session, name, "/a place", timeout).wait()
        if isinstance(got, Lease):
            assert got.release(timeout=5)
        site.assert_nothing_left()


# --- times and counts -----------------------------------------------------------------------------

BAD_TIMES: list[Any] = [-1, -0.001, float("inf"), float("-inf"), float("nan"), "5", b"5", [1]]


@pytest.mark.parametrize("kind", USES)
def test_timeouts_that_cannot_be(site: Site, kind: str) -> None:
    for timeout in BAD_TIMES:
        site.refuses(
            ConfigError,
            lambda t=timeout: USES[kind](site.session, "gpu", "/place", t),
            names=f"timeout {timeout!r}",
        )


COUNTS: dict[str, Callable[[Session], Any]] = {
    "no permits": lambda s: Semaphore(s, "n", permits=0),
    "permits below none": lambda s: Semaphore(s, "n", permits=-1),
    "permits without end": lambda s: Semaphore(s, "n", permits=float("inf")),  # type: ignore[arg-type]
    "no weight": lambda s: Semaphore(s, "n", permits=2).acquire_future(0),
    "a weight below none": lambda s: Semaphore(s, "n", permits=2).acquire_future(-1),
    "half a weight": lambda s: Semaphore(s, "n", permits=2).acquire_future(0.5),  # type: ignore[arg-type]
    "a resize to none": lambda s: Semaphore(s, "n", permits=2).resize(0),
    "no locks": lambda s: MultiLock(s, []),
    "too many locks": lambda s: MultiLock(s, [f"l{number}" for number in range(101)]),
    "no slots": lambda s: Pool(s, "n", slots=[]),
    "too many slots": lambda s: Pool(s, "n", slots=[f"s{number}" for number in range(1001)]),
    "a slot twice": lambda s: Pool(s, "n", slots=["a", "a"]),
    "no round": lambda s: DoubleBarrier(s, "n", 0),
    "a huge round": lambda s: DoubleBarrier(s, "n", 10**9),
    "no depth": lambda s: RLock(s, "n", depth_max=0),
    "handoffs below none": lambda s: Lock(s, "n", local_handoffs=-1),
    "a delay below none": lambda s: Lock(s, "n", lock_delay=-1),
    "a delay without end": lambda s: Lock(s, "n", lock_delay=float("inf")),
    "no layout": lambda s: Lock(s, "n", layout="etcd"),  # type: ignore[arg-type]
    "no stripes": lambda s: FastCounter(s, "/n", stripes=0),
    "too much to add": lambda s: Counter(s, "/n").add_future(2**63),
    "half an addition": lambda s: Counter(s, "/n").add_future(0.5),  # type: ignore[arg-type]
    "a depth below none": lambda s: TreeCache(s, "/n", depth=-1),
    "no nodes": lambda s: TreeCache(s, "/n", nodes_max=0),
    "no terms": lambda s: Election(s, "n").run(lambda _: None, terms=0),
}


@pytest.mark.parametrize("what", COUNTS)
def test_counts_that_cannot_be(site: Site, what: str) -> None:
    site.refuses(ConfigError, lambda: COUNTS[what](site.session))


def test_more_permits_than_there_are(site: Site) -> None:
    semaphore = Semaphore(site.operator, "some", permits=3)
    held = semaphore.acquire(2, 5)
    ours = Semaphore(site.session, "some", permits=3)
    for timeout in (0, 5, None):
        error = site.refuses(LimitExceeded, lambda t=timeout: ours.acquire_future(4, t))
        assert isinstance(error, LimitExceeded)
        assert error.hint
    error = site.refuses(LimitExceeded, lambda: ours.resize(1))
    assert "2" in str(error)
    held.release(timeout=5)


# --- too much data --------------------------------------------------------------------------------

LARGE: dict[str, Callable[[Session], Any]] = {
    "Lock": lambda s: Lock(s, "n", label=BIG).acquire_future(5),
    "a try": lambda s: Lock(s, "n", label=BIG).acquire_future(0),
    "RLock": lambda s: RLock(s, "n", label=BIG).acquire_future(5),
    "reader": lambda s: ReadWriteLock(s, "n", label=BIG).read.acquire_future(5),
    "writer": lambda s: ReadWriteLock(s, "n", label=BIG).write.acquire_future(5),
    "MultiLock": lambda s: MultiLock(s, ["n", "m"], label=BIG).acquire_future(5),
    "Semaphore": lambda s: Semaphore(s, "n", permits=1, label=BIG).acquire_future(1, 5),
    "Pool": lambda s: Pool(s, "n", slots=["a"], label=BIG).acquire_future(5),
    "candidate": lambda s: Election(s, "n", label=BIG).campaign_future(5),
    "candidate's data": lambda s: Election(s, "n").campaign_future(5, BIG.encode()),
    "member": lambda s: Membership(s, "/g").join_future("n", BIG.encode()),
    "kept member": lambda s: Membership(s, "/g").keep("n", BIG.encode()),
    "DoubleBarrier": lambda s: DoubleBarrier(s, "n", 1, label=BIG).enter_future(5),
}


@pytest.mark.parametrize("what", LARGE)
def test_more_data_than_a_node_holds(site: Site, what: str) -> None:
    """A server would only drop the link; it is refused before it is sent."""
    id_before = site.session.id
    site.refuses(NameRefused, lambda: LARGE[what](site.session))
    assert site.session.id == id_before
    assert site.session.connected


def test_names_of_sessions_and_labels_are_texts(site: Site) -> None:
    for wrong, error in ((BIG, NameRefused), ("a\ud800", NameRefused), (7, TypeError)):
        site.refuses(error, lambda name=wrong: Session("127.0.0.1:1", name=name))
        site.refuses(error, lambda label=wrong: Lock(site.session, "gpu", label=label))
    for label in ("größe", "名前", "\U0001f600", 'a "b" \\ \0', "x" * 1000):
        with Lock(site.session, "gpu", label=label).hold(5):
            (holder,) = contenders(site.operator, "gpu")
            assert holder.identity is not None
            assert holder.identity.name == label


def test_what_is_published_later_may_not_be_too_much_either(site: Site) -> None:
    leader = Election(site.operator, "boss").campaign(5)
    member = Membership(site.operator, "/group").join("me")
    site.refuses(NameRefused, lambda: leader.proclaim_future(BIG.encode()))
    site.refuses(NameRefused, lambda: member.update_future(BIG.encode()))
    leader.check()
    member.check()


def test_a_session_that_is_full(zookeeper: str) -> None:
    small = SessionConfig(timeout_s=10, ephemeral_bytes_max=20)
    with Session(zookeeper, timeout=10) as operator, Session(zookeeper, config=small) as session:
        here = Site(operator, session)
        for kind in LEASES:
            error = here.refuses(SessionFull, lambda k=kind: USES[k](session, "gpu", "/place", 5))
            assert isinstance(error, SessionFull)
            assert error.hint


# --- paths that are something else ----------------------------------------------------------------


@pytest.mark.parametrize("kind", USES)
def test_a_path_with_children_of_somebody_else(site: Site, kind: str) -> None:
    """Children that are no contenders, and values that are no recipe's."""
    children = ["config", "lock-junk", "x", "xyz.1.0", "größe", "-0000000001-"]
    for name in children:
        site.operator.nodes.create(f"/place/gpu/{name}", b"something", makepath=True)
    site.operator.nodes.set("/place/gpu", b"something")
    before = tree(site.operator)
    if kind in {"Semaphore", "Pool", "Counter", "FastCounter", "count", "fast count"}:
        error = site.refuses(
            NodeForeign, lambda: USES[kind](site.session, "gpu", "/place", 5), names="gpu"
        )
        assert isinstance(error, CoordinationError)
        assert error.hint
    elif kind == "Barrier":
        site.refuses(NodeForeign, lambda: USES[kind](site.session, "gpu", "/place", 5))
        site.refuses(NodeForeign, Barrier(site.session, "gpu", root="/place").lift_future)
    elif kind in {"Membership", "barrier's wait"}:  # the name is taken; somebody's barrier
        site.refuses(CoordinationError, lambda: USES[kind](site.session, "gpu", "/place", 0.5))
    else:
        got = USES[kind](site.session, "gpu", "/place", 5).wait()
        if isinstance(got, Lease):
            assert got.release(timeout=5)
        site.assert_nothing_left()
        after = tree(site.operator)
        assert {path: what for path, what in after.items() if path in before} == before


@pytest.mark.parametrize("kind", LEASES)
def test_a_path_below_an_ephemeral_node(site: Site, kind: str) -> None:
    """An ephemeral node has no children."""
    site.operator.nodes.create("/place", ephemeral=True)
    site.refuses(
        NameRefused, lambda: USES[kind](site.session, "gpu", "/place", 5), names="ephemeral"
    )


# --- what the server refuses ----------------------------------------------------------------------


def closed(operator: Session, acl: str) -> None:
    for path in ("/place/gpu", "/place"):
        operator.nodes.create(path, b"", makepath=True) if path != "/place" else None
    for path in ("/place/gpu", "/place"):
        operator.nodes.set_acl(path, acl)


@pytest.mark.parametrize("kind", WRITING)
@pytest.mark.parametrize("acl", ["world:anyone:ra", "world:anyone:a"])
def test_no_permission(site: Site, kind: str, acl: str) -> None:
    closed(site.operator, acl)
    ask = USES[kind]
    name = "new" if kind in {"Membership", "Barrier", "Counter"} else "gpu"
    before = site.session.id
    with pytest.raises(AccessDenied) as caught:
        ask(site.session, name, "/place", 5).wait()
    assert "/place" in str(caught.value)
    assert caught.value.hint
    site.assert_nothing_left()
    for path in ("/place", "/place/gpu"):
        site.operator.nodes.set_acl(path, "open")
    assert list(tree(site.operator)) == ["/", "/place", "/place/gpu"]
    assert site.session.id == before


@pytest.mark.parametrize("kind", [kind for kind in READING if kind != "barrier's wait"])
def test_no_permission_to_read(site: Site, kind: str) -> None:
    closed(site.operator, "world:anyone:a")
    with pytest.raises(AccessDenied, match="/place"):
        READING[kind](site.session, "gpu", "/place", 5).wait()
    site.assert_nothing_left()


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpecialStack]:
    with with_users(tmp_path_factory.mktemp("jaas"), ops="ops word") as stack:
        yield stack


def test_a_full_quota(strict: SpecialStack) -> None:
    with Session(strict.zookeeper, timeout=10) as root:
        root.nodes.create("/few/place/gpu", makepath=True)
        for name in ("also", "slots"):
            root.nodes.create(f"/few/place/{name}")
        limits = b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=5"
        root.nodes.create("/zookeeper/quota/few/zookeeper_limits", limits, makepath=True)
        root.nodes.create("/zookeeper/quota/few/zookeeper_stats", b"count=5,bytes=0")
        below = strict.zookeeper + "/few"
        with Session(below, timeout=10) as operator, Session(below, timeout=10) as session:
            here = Site(operator, session)
            for kind, ask in WRITING.items():
                name = "new" if kind in {"Membership", "Barrier", "Counter"} else "gpu"
                if kind in {"Semaphore", "Pool"}:  # they write their limit first
                    name = "new"
                error = here.refuses(
                    QuotaFull, lambda a=ask, n=name: a(session, n, "/place", 5), names="quota"
                )
                assert isinstance(error, QuotaFull)
                assert error.hint
