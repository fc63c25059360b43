"""A session and its znodes, on a real server."""

import asyncio
import logging
import multiprocessing
import os
import threading

import pytest

from tests.waiting import until
from zkcoord.config import SessionConfig
from zkcoord.errors import (
    ConfigError,
    EnsembleUnavailable,
    NameRefused,
    NodeExists,
    NodeMissing,
    SessionClosed,
    SessionFull,
    VersionConflict,
)
from zkcoord.local.ports import HOST
from zkcoord.zk import Session
from zkcoord.zk.clock import now


def test_start_creates_the_chroot_and_close_leaves_no_thread(zookeeper: str) -> None:
    before = threading.active_count()
    session = Session(zookeeper + "/deep/er", timeout=4)
    session.start()
    session.start()
    assert session.nodes.exists("/") is not None
    assert session.connected
    assert session.id
    assert session.close()
    assert session.close()
    assert threading.active_count() == before


def test_the_negotiated_timeout_is_told_and_the_lease_is_reckoned_by_it(zookeeper: str) -> None:
    config = SessionConfig(timeout_s=3600, margin_s=0.5)
    with Session(zookeeper, config=config) as session:
        assert 0 < session.negotiated_timeout < 3600
        assert session.valid_until <= now() + session.negotiated_timeout - 0.5


def test_use_before_start_and_after_close_is_an_error_at_once(zookeeper: str) -> None:
    session = Session(zookeeper, timeout=4)
    with pytest.raises(SessionClosed):
        session.nodes.get("/")
    session.start()
    session.close()
    with pytest.raises(SessionClosed):
        session.nodes.create("/x", ephemeral=True)
    with pytest.raises(SessionClosed):
        session.start()


def test_a_dead_address_is_an_error_with_the_reason_in_time() -> None:
    session = Session(f"{HOST}:1", timeout=4)
    begun = now()
    with pytest.raises(EnsembleUnavailable, match="refused"):
        session.start(timeout=0.5)
    assert now() - begun < 5
    with pytest.raises(SessionClosed):
        session.nodes.get("/")
    assert session.close()


@pytest.mark.parametrize("hosts", ["", "/chroot"])
def test_hosts_that_name_nobody_are_refused(hosts: str) -> None:
    with pytest.raises(ConfigError):
        Session(hosts)


def test_verbs(zookeeper: str) -> None:
    with Session(zookeeper, timeout=4) as session:
        nodes = session.nodes
        made = nodes.create("/a", b"1")
        assert made.path == "/a"
        data, stat = nodes.get("/a")
        assert (data, stat.czxid, stat.version) == (b"1", made.czxid, 0)
        assert nodes.set("/a", b"2", version=0).version == 1
        with pytest.raises(VersionConflict):
            nodes.set("/a", b"3", version=0)
        with pytest.raises(NodeExists):
            nodes.create("/a")
        with pytest.raises(NodeMissing):
            nodes.create("/b/c")
        assert nodes.create("/b/c/d", makepath=True).path == "/b/c/d"
        assert nodes.children("/b") == ["c"]
        with pytest.raises(VersionConflict, match="children"):
            nodes.delete("/b")
        nodes.delete("/a", version=1)
        assert nodes.exists("/a") is None
        with pytest.raises(NodeMissing):
            nodes.get("/a")
        nodes.sync()


def test_the_token_of_a_create_rises_even_when_the_path_is_deleted(zookeeper: str) -> None:
    with Session(zookeeper, timeout=4) as session:
        first = session.nodes.create("/a")
        session.nodes.delete("/a")
        assert session.nodes.create("/a").czxid > first.czxid


def test_sequential_and_ephemeral(zookeeper: str) -> None:
    with Session(zookeeper, timeout=4) as session, Session(zookeeper, timeout=4) as other:
        made = session.nodes.create("/s-", ephemeral=True, sequential=True)
        assert made.path == "/s-0000000000"
        _, stat = other.nodes.get(made.path)
        assert stat.owner == session.id
        session.close()
        assert other.nodes.exists(made.path) is None


def test_containers_hold_children_and_are_neither_ephemeral_nor_sequential(zookeeper: str) -> None:
    with Session(zookeeper, timeout=4) as session:
        made = session.nodes.create("/box", b"1", container=True)
        assert session.nodes.get("/box") == (b"1", session.nodes.exists("/box"))
        assert session.nodes.create("/box/child", ephemeral=True).czxid > made.czxid
        with pytest.raises(NameRefused):
            session.nodes.create("/box2", container=True, ephemeral=True)


def test_a_transaction_is_all_or_nothing(zookeeper: str) -> None:
    with Session(zookeeper, timeout=4) as session:
        made = session.nodes.transaction().create("/t", b"1").create("/t/u", b"2").commit()
        assert [node.path for node in made] == ["/t", "/t/u"]  # type: ignore[union-attr]
        with pytest.raises(VersionConflict, match="check /t"):
            session.nodes.transaction().set("/t/u", b"3").check("/t", 5).commit()
        assert session.nodes.get("/t/u")[0] == b"2"
        changed = session.nodes.transaction().check("/t", 0).set("/t/u", b"3").delete("/t/u")
        assert changed.commit()[2] is None
        with pytest.raises(NodeMissing, match="delete /t/u"):
            session.nodes.transaction().delete("/t/u").commit()
        with pytest.raises(NameRefused):
            session.nodes.transaction().commit()


def test_values_and_names_are_checked_before_they_are_sent(zookeeper: str) -> None:
    with Session(zookeeper, timeout=4) as session:
        for path in ("x", "/x/", "//x", "/x/../y", "/a\0b", "/\ud800", "/" + "n" * 1100, ""):
            with pytest.raises(NameRefused):
                session.nodes.create(path)
        with pytest.raises(NameRefused):
            session.nodes.create("/big", b"." * (session.config.value_bytes_max + 1))
        with pytest.raises(NameRefused):
            session.nodes.transaction().create("/a", b"." * 200_000).create("/b", b"." * 200_000)
        assert session.nodes.children("/") == []
        assert session.connected
        for timeout in (-1.0, float("inf"), float("nan")):
            with pytest.raises(ConfigError):
                session.nodes.get("/", timeout=timeout)


def test_ephemeral_bytes_are_counted_and_bounded(zookeeper: str) -> None:
    config = SessionConfig(timeout_s=4, ephemeral_bytes_max=300)
    with Session(zookeeper, config=config) as session:
        made = session.nodes.create("/" + "n" * 100, ephemeral=True)
        with pytest.raises(SessionFull):
            session.nodes.create("/" + "m" * 180, ephemeral=True)
        with pytest.raises(NodeExists):
            session.nodes.create("/" + "n" * 100, ephemeral=True)
        session.nodes.delete(made.path)
        assert session.ephemeral_bytes == 0
        session.nodes.create("/" + "m" * 180, ephemeral=True)


def test_a_watch_tells_every_state_and_leaves_nothing(zookeeper: str) -> None:
    seen: list[bytes | None] = []
    with Session(zookeeper, timeout=4) as session:
        with session.nodes.watch("/w", lambda data, stat: seen.append(data)):
            until(lambda: seen == [None])
            session.nodes.create("/w", b"1")
            until(lambda: seen == [None, b"1"])
            session.nodes.set("/w", b"2")
            until(lambda: seen == [None, b"1", b"2"])
            session.nodes.delete("/w")
            until(lambda: seen == [None, b"1", b"2", None])
        until(lambda: len(session.link.watches) == 0)
        session.nodes.create("/w", b"3")
        session.nodes.sync()
        assert seen == [None, b"1", b"2", None]


def test_an_intended_close_is_no_trouble_in_the_log(
    zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "zkcoord")
    for _ in range(5):
        with Session(zookeeper, timeout=4) as session:
            session.nodes.create("/x", ephemeral=True)
    assert [record.getMessage() for record in caplog.records if "link down" in record.msg] == []


def test_a_callback_may_block_and_may_close_the_session(zookeeper: str) -> None:
    session = Session(zookeeper, timeout=4)
    session.start()
    called: list[object] = []

    def callback(data: bytes | None, stat: object) -> None:
        called.append(session.nodes.create("/from-callback").path)
        called.append(session.close())

    session.nodes.watch("/w", callback)
    until(lambda: len(called) == 2)
    assert called[0] == "/from-callback"
    assert session.close()


async def test_asyncio(zookeeper: str) -> None:
    async with Session(zookeeper, timeout=4) as session:
        made = await session.nodes.create_future("/a", b"1")
        found = await asyncio.gather(*(session.nodes.get_future("/a") for _ in range(20)))
        assert {stat.czxid for _, stat in found} == {made.czxid}
        with pytest.raises(NodeMissing):
            await session.nodes.get_future("/b")
    with pytest.raises(SessionClosed):
        await session.nodes.get_future("/a")


def test_done_callbacks_run_on_the_dispatcher(zookeeper: str) -> None:
    with Session(zookeeper, timeout=4, name="me") as session:
        names: list[str] = []
        future = session.nodes.get_future("/")
        future.add_done_callback(lambda _: names.append(threading.current_thread().name))
        until(lambda: names == ["zkcoord-calls-me"])


def test_many_callers_at_once(zookeeper: str) -> None:
    with Session(zookeeper, timeout=10) as session:
        futures = [session.nodes.create_future(f"/n{number}") for number in range(2000)]
        assert len({future.wait().czxid for future in futures}) == 2000
        assert len(session.nodes.children("/")) == 2000


def _in_child(session: Session, answers: "multiprocessing.SimpleQueue[str]") -> None:
    for attempt in (
        lambda: session.nodes.get("/"),
        lambda: session.nodes.watch("/", lambda *_: None),
        session.start,
    ):
        try:
            attempt()
            answers.put("no error")
        except SessionClosed:
            answers.put("SessionClosed")
    answers.put(str(session.close(timeout=1)))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_gets_an_error_and_the_parent_goes_on(zookeeper: str) -> None:
    with Session(zookeeper, timeout=4) as session:
        context = multiprocessing.get_context("fork")
        answers = context.SimpleQueue()
        child = context.Process(target=_in_child, args=(session, answers))
        child.start()
        assert [answers.get() for _ in range(3)] == ["SessionClosed"] * 3
        assert answers.get() == "True"
        child.join(10)
        assert child.exitcode == 0
        assert session.nodes.exists("/") is not None
        assert session.connected
        assert os.getpid() == session.link._pid
