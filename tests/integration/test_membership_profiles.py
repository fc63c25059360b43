"""Members with capabilities and load, on a real server."""

import threading
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.waiting import until
from zkcoord.errors import ConfigError, LeaseLost
from zkcoord.recipes import Joined, Left, Member, Membership, Profile, Updated
from zkcoord.recipes.member_watch import Diff
from zkcoord.recipes.profiles import read_profile
from zkcoord.zk import Session


def test_capabilities_are_seen_by_others(session: Session, other: Session) -> None:
    profile = Profile(capabilities=("gpu", "region=eu"), capacity=8, load=2.5, data=b"10.0.0.1")
    member = Membership(session, "/g").join("a", profile=profile)
    Membership(session, "/g").join("b", b"plain")
    first, second = Membership(other, "/g").members()
    assert first.profile == profile
    assert first.profile.can("gpu")
    assert not first.profile.can("gpu", "tpu")
    assert first.profile.free == 5.5
    assert second.profile is None
    assert member.profile == profile


def test_loads_are_written_once_in_an_interval_and_the_last_wins(
    session: Session, other: Session
) -> None:
    diffs: list[Diff] = []
    profile = Profile(capacity=1000)
    member = Membership(session, "/g").join("a", profile=profile, load_interval=0.5)
    with Membership(other, "/g").watch(diffs.append):
        until(lambda: len(diffs) == 1)
        for load in range(1, 501):
            member.report_load(load)
        until(
            lambda: (
                isinstance(diffs[-1], Updated)
                and diffs[-1].profile is not None
                and diffs[-1].profile.load == 500
            )
        )
        assert other.nodes.get("/g/a")[1].version <= 3
        version = other.nodes.get("/g/a")[1].version
        member.report_load(500)  # the same again is no news
        member.report_load(7)
        member.release(timeout=5)
        until(lambda: isinstance(diffs[-1], Left))
        with pytest.raises(LeaseLost):
            member.report_load(1)
    assert version >= 1


def seen_by_now(session: Session) -> None:
    """What was reported before has been looked at, and what followed from it was answered."""
    done = threading.Event()
    session.link.loop.post(done.set)
    assert done.wait(10)
    session.nodes.sync()


def test_the_same_load_again_is_not_written(session: Session, other: Session) -> None:
    member = Membership(session, "/g").join("a", profile=Profile(), load_interval=0.05)
    member.report_load(5)
    until(lambda: other.nodes.get("/g/a")[1].version == 1)
    member.report_load(5)
    until(lambda: member._loads._waiting is None)  # its interval is over
    seen_by_now(session)
    assert other.nodes.get("/g/a")[1].version == 1
    member.report_load(6)
    until(lambda: other.nodes.get("/g/a")[1].version == 2)


def test_what_is_reported_last_is_written_before_the_node_goes(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Membership(session, "/g")
    member = group.join("a", profile=Profile(), load_interval=60)
    member.report_load(1)
    until(lambda: other.nodes.get("/g/a")[1].version == 1)
    member.report_load(2)  # its interval is a minute
    seen_by_now(session)
    member.report_load(2)
    seen_by_now(session)
    assert other.nodes.get("/g/a")[1].version == 1
    asked: list[object] = []
    call = session.link.call

    def spy(request: Any, *args: Any, **options: Any) -> Any:
        asked.append(request)
        return call(request, *args, **options)

    monkeypatch.setattr(session.link, "call", spy)
    assert member.release(timeout=5)
    assert [type(one).__name__ for one in asked] == ["SetData", "Delete"]
    assert read_profile(asked[0].data) == Profile(load=2)  # type: ignore[attr-defined]
    assert session.ephemeral_bytes == 0


def test_a_kept_member_joins_again_with_its_load(
    zookeeper: str, session: Session, other: Session
) -> None:
    joined: list[Member] = []
    group = Membership(session, "/g")
    profile = Profile(capabilities=("gpu",))
    with group.keep("a", profile=profile, load_interval=0.05, on_join=joined.append) as presence:
        until(lambda: len(joined) == 1)
        presence.report_load(0.5)
        client = session.link._client
        thief = KazooClient(
            zookeeper.split("/", maxsplit=1)[0],
            client_id=(client._session_id, client._session_passwd),
        )
        thief.start(timeout=15)
        thief.stop()
        thief.close()
        until(lambda: len(joined) == 2)
        (found,) = Membership(other, "/g").members()
        assert found == Joined("a", joined[1].token, profile.with_load(0.5).encode())
        with pytest.raises(ConfigError):
            presence.update(b"x")


def test_bad_input(session: Session) -> None:
    for wrong in (
        {"capacity": -1},
        {"load": float("nan")},
        {"load": "1"},
        {"capabilities": ("a b",)},
        {"capabilities": "gpu"},
        {"capabilities": tuple(f"c{number}" for number in range(101))},
    ):
        with pytest.raises(ConfigError):
            Profile(**wrong)  # type: ignore[arg-type]
    group = Membership(session, "/g")
    with pytest.raises(ConfigError):
        group.join("a", b"data", profile=Profile())
    with pytest.raises(ConfigError):
        group.join("a", profile=Profile(), load_interval=0)
    member = group.join("a")
    with pytest.raises(ConfigError, match="without a profile"):
        member.report_load(1)
    with_load = group.join("b", profile=Profile())
    with pytest.raises(ConfigError):
        with_load.report_load(-1)
