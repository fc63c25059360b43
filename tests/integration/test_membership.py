"""Groups, on a real server."""

import asyncio
import threading

import pytest
from kazoo.client import KazooClient

from tests.faults.frame_relay import Frame, FrameRelay
from tests.waiting import until
from zkcoord.errors import (
    ConfigError,
    EnsembleUnavailable,
    LeaseLost,
    NameRefused,
    NodeExists,
    SessionClosed,
)
from zkcoord.recipes import Joined, Left, Member, Membership, Updated
from zkcoord.recipes.member_watch import Diff
from zkcoord.zk import Session


def expire(session: Session, zookeeper: str) -> None:
    """Close a session from elsewhere, with its id and password."""
    client = session.link._client
    thief = KazooClient(
        zookeeper.split("/", maxsplit=1)[0],
        client_id=(client._session_id, client._session_passwd),
    )
    thief.start(timeout=15)
    thief.stop()
    thief.close()


def test_a_member_has_a_name_data_and_an_incarnation(session: Session, other: Session) -> None:
    group = Membership(session, "/groups/web")
    assert group.members() == []
    member = group.join("a", b"1")
    assert (member.name, member.path) == ("a", "/groups/web/a")
    assert Membership(other, "/groups/web").members() == [Joined("a", member.token, b"1")]
    member.check()
    assert member.release(timeout=5)
    assert group.members() == []
    assert session.ephemeral_bytes == 0
    assert group.join("a").token > member.token


def test_a_name_is_claimed_once(session: Session, other: Session) -> None:
    member = Membership(session, "/g").join("a")
    with pytest.raises(NodeExists):
        Membership(other, "/g").join("a")
    with pytest.raises(NodeExists, match="joined already"):
        Membership(session, "/g").join("a")
    assert other.ephemeral_bytes == 0
    member.release(timeout=5)
    Membership(other, "/g").join("a").check()


def test_leaving_and_joining_again_at_once(session: Session) -> None:
    group, tokens = Membership(session, "/g"), []
    for _ in range(20):
        with group.join("a") as member:
            tokens.append(member.token)
    assert tokens == sorted(set(tokens))


def test_shared_names_are_made_unique(session: Session, other: Session) -> None:
    members = [Membership(s, "/g").join("a", exclusive=False) for s in (session, session, other)]
    names = {member.name for member in members}
    assert len(names) == 3
    assert all(name.startswith("a.") for name in names)


def test_updates_are_published_and_the_last_of_many_wins(session: Session, other: Session) -> None:
    member = Membership(session, "/g").join("a", b"0")
    member.update(b"1")
    assert other.nodes.get("/g/a")[0] == b"1"
    futures = [member.update_future(b"%d" % number) for number in range(200)]
    for future in futures:
        future.wait()
    data, stat = session.nodes.get("/g/a")
    assert data == b"199"
    assert stat.version < 200
    with pytest.raises(ConfigError):
        member.update(b"", timeout=-1)
    with pytest.raises(NameRefused):
        member.update(b"." * 300_000)


def test_a_foreign_write_does_not_stop_updates(session: Session, other: Session) -> None:
    member = Membership(session, "/g").join("a", b"0")
    other.nodes.set("/g/a", b"operator")
    member.update(b"1")
    assert other.nodes.get("/g/a")[0] == b"1"


@pytest.mark.parametrize("taken", [False, True])
def test_an_update_finds_out_that_the_node_was_removed(
    session: Session, other: Session, taken: bool
) -> None:
    member = Membership(session, "/g").join("a", b"0")
    other.nodes.delete("/g/a")
    if taken:
        Membership(other, "/g").join("a", b"theirs")
    with pytest.raises(LeaseLost) as caught:
        member.update(b"1")
    assert caught.value.reason == "removed"
    assert member.lost.is_set()
    with pytest.raises(LeaseLost):
        member.release()


def test_an_update_does_not_write_over_another_of_the_same_name(
    session: Session, other: Session
) -> None:
    member = Membership(session, "/g").join("a", b"1")
    other.nodes.delete("/g/a")
    other.nodes.create("/g/a", b"another")
    other.nodes.set("/g/a", b"another, and it knows")
    with pytest.raises(LeaseLost):
        member.update(b"2")
    assert other.nodes.get("/g/a")[0] == b"another, and it knows"


def test_watching_tells_who_comes_changes_and_goes(session: Session, other: Session) -> None:
    diffs: list[Diff] = []
    early = Membership(other, "/g").join("early", b"0")
    with Membership(session, "/g").watch(diffs.append):
        until(lambda: diffs == [Joined("early", early.token, b"0")])
        late = Membership(other, "/g").join("late", b"1")
        until(lambda: diffs[1:] == [Joined("late", late.token, b"1")])
        late.update(b"2")
        until(lambda: diffs[2:] == [Updated("late", late.token, b"2")])
        early.release()
        until(lambda: diffs[3:] == [Left("early", early.token)])
        other.close()
        until(lambda: diffs[4:] == [Left("late", late.token)])
    until(lambda: len(session.link.watches) == 0)


def test_watching_a_group_that_is_not_there_yet(session: Session, other: Session) -> None:
    diffs: list[Diff] = []
    with Membership(session, "/g").watch(diffs.append):
        member = Membership(other, "/g").join("a")
        until(lambda: diffs == [Joined("a", member.token, b"")])


def test_a_new_incarnation_comes_after_the_old_one_has_left(
    session: Session, other: Session
) -> None:
    diffs: list[Diff] = []
    with Membership(session, "/g").watch(diffs.append):
        tokens = []
        for _ in range(30):
            member = Membership(other, "/g").join("a")
            tokens.append(member.token)
            member.release()
        last = Membership(other, "/g").join("a", b"last")
        until(lambda: Joined("a", last.token, b"last") in diffs)
    present: int | None = None
    for diff in diffs:
        if isinstance(diff, Joined):
            assert present is None
            present = diff.token
        elif isinstance(diff, Left):
            assert present == diff.token
            present = None
    assert present == last.token


def test_watching_goes_on_after_the_watchers_session_is_lost(
    zookeeper: str, session: Session, other: Session
) -> None:
    diffs: list[Diff] = []
    member = Membership(other, "/g").join("a", b"1")
    with Membership(session, "/g").watch(diffs.append):
        until(lambda: len(diffs) == 1)
        lost = session.lost
        expire(session, zookeeper)
        assert lost.wait(10)
        member.update(b"2")
        until(lambda: diffs[1:] == [Updated("a", member.token, b"2")])


def test_keep_joins_again_after_the_session_was_lost(
    zookeeper: str, session: Session, other: Session
) -> None:
    joined: list[Member] = []
    presence = Membership(session, "/g").keep("a", b"1", on_join=joined.append)
    until(lambda: len(joined) == 1)
    expire(session, zookeeper)
    assert joined[0].lost.wait(10)
    until(lambda: len(joined) == 2)
    assert joined[1].token > joined[0].token
    assert presence.member is joined[1]
    presence.update(b"2")
    until(lambda: other.nodes.get("/g/a")[0] == b"2")
    presence.close()
    until(lambda: Membership(other, "/g").members() == [])
    assert len(joined) == 2


def test_keep_waits_for_a_name_that_another_has(session: Session, other: Session) -> None:
    held = Membership(other, "/g").join("a")
    joined: list[Member] = []
    with Membership(session, "/g").keep("a", on_join=joined.append) as presence:
        until(lambda: isinstance(presence.error, NodeExists))
        assert not joined
        held.release()
        until(lambda: len(joined) == 1)
        assert presence.error is None
    until(lambda: Membership(other, "/g").members() == [])


def test_joining_needs_an_open_session_and_a_good_name(session: Session) -> None:
    with pytest.raises(NameRefused):
        Membership(session, "/g").join("a/b")
    with pytest.raises(NameRefused):
        Membership(session, "g")
    with pytest.raises(NameRefused):
        Membership(session, "/g").join("a", b"." * 300_000)
    session.close()
    with pytest.raises(SessionClosed):
        Membership(session, "/g").join("a")


async def test_asyncio(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=10) as session:
        group = Membership(session, "/g")
        members = await asyncio.gather(*(group.join_future(f"m{n:02}") for n in range(50)))
        found = await group.members_future()
        assert [(m.name, m.token) for m in found] == [(m.name, m.token) for m in members]
        async with members[0] as member:
            await member.update_future(b"1")
        assert len(await group.members_future()) == 49


@pytest.mark.parametrize("how", ["in time", "cancelled"])
def test_who_gave_up_a_name_may_ask_for_it_again_at_once(zookeeper: str, how: str) -> None:
    """The first request is on its way still: the second one waits until nothing is left of it."""
    address, _, chroot = zookeeper.partition("/")
    open_again = threading.Event()
    open_again.set()

    def held(frame: Frame) -> bytes:
        assert open_again.wait(20)
        return frame.body

    with FrameRelay(address) as relay, Session(f"{relay.address}/{chroot}", timeout=20) as cut_off:
        group = Membership(cut_off, "/g")
        group.join("first").release(timeout=10)
        relay.down = held
        open_again.clear()
        if how == "cancelled":
            given_up = group.join_future("a", timeout=20)
            until(lambda: any(b"/g/a" in frame.body for frame in relay.requests()))
            assert given_up.cancel()
        else:
            with pytest.raises(EnsembleUnavailable):
                group.join("a", b"1", timeout=0.2)
        again = group.join_future("a", b"2", timeout=20)
        open_again.set()
        member = again.wait()
        assert group.members() == [Joined("a", member.token, b"2")]
        with pytest.raises(NodeExists, match="joined already"):
            group.join("a")
        member.release(timeout=10)
        assert group.join("a").release(timeout=10)
        assert cut_off.link.epoch is not None
        assert not cut_off.link.epoch.claims
