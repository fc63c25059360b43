"""`zkcoord node` against a real server."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from zkcoord.config import DigestConfig, SessionConfig
from zkcoord.zk import Session
from zkcoord_cli.exit_codes import ExitCode
from zkcoord_cli.main import cli


@pytest.fixture
def session(zookeeper: str) -> Iterator[Session]:
    with Session(zookeeper) as session:
        yield session


@pytest.fixture
def command(zookeeper: str, session: Session) -> Any:
    def run(*arguments: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(
            cli, ["node", *arguments], env={"ZKCOORD_ZOOKEEPER": zookeeper}, input=stdin
        )

    return run


def parsed(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_tree_shows_each_node_before_its_children(session: Session, command: Any) -> None:
    for path in ("/a/b/c", "/a/x", "/z"):
        session.nodes.create(path, b"12345", makepath=True)
    session.nodes.create("/a/e", ephemeral=True)
    shown = parsed(command("tree", "/", "--json"))
    items = {one["path"]: one for one in shown["items"]}
    assert list(items) == ["/", "/a", "/a/b", "/a/b/c", "/a/e", "/a/x", "/z"]
    assert items["/a"]["children"] == 3
    assert items["/a/x"]["size"] == 5
    assert int(items["/a/e"]["session"], 16) == session.id % (1 << 64)
    assert shown["cut"] is False
    shallow = parsed(command("tree", "/", "--depth", "1", "--json"))
    assert [one["path"] for one in shallow["items"]] == ["/", "/a", "/z"]
    text = command("tree", "/a").stdout.splitlines()
    assert [line.split()[0] for line in text] == ["NODE", "/a", "b", "c", "e", "x"]


def test_a_tree_is_cut_where_asked(session: Session, command: Any) -> None:
    for number in range(5):
        session.nodes.create(f"/many/{number}", makepath=True)
    shown = parsed(command("tree", "/many", "--limit", "3", "--json"))
    assert [one["path"] for one in shown["items"]] == ["/many", "/many/0", "/many/1"]
    assert shown["cut"] is True
    assert "more than 3 nodes" in command("tree", "/many", "--limit", "3").stderr


def test_a_tree_goes_on_where_something_is_denied(
    zookeeper: str, session: Session, command: Any
) -> None:
    config = SessionConfig(digest=DigestConfig(username="owner", password="secret"), acl="private")
    session.nodes.create("/t/z", makepath=True)
    with Session(zookeeper, config=config) as owner:
        owner.nodes.create("/t/a/hidden", b"123", makepath=True)
        shown = parsed(command("tree", "/t", "--json"))
        found = {one["path"]: one["denied"] for one in shown["items"]}
        assert found == {"/t": False, "/t/a": True, "/t/z": False}
        assert shown["cut"] is False
        text = command("tree", "/t")
        assert [line.split()[0] for line in text.stdout.splitlines()[1:]] == [
            "/t",
            "a",
            "z",
        ]
        assert "a (denied)" in text.stdout
        assert "1 denied" in text.stderr
        assert command("tree", "/t/a").exit_code == ExitCode.REFUSED
        owner.nodes.delete("/t/a/hidden")


def test_set_and_get(session: Session, command: Any) -> None:
    missing = command("set", "/flags/mode", "on")
    assert missing.exit_code == ExitCode.NOT_FOUND
    assert "--create" in missing.stderr
    assert parsed(command("set", "/flags/mode", "on", "--create", "--json"))["version"] == 0
    assert parsed(command("set", "/flags/mode", "off", "--version", "0", "--json"))["version"] == 1
    conflict = command("set", "/flags/mode", "x", "--version", "0")
    assert conflict.exit_code not in (0, ExitCode.UNEXPECTED)
    assert "version" in conflict.stderr
    shown = parsed(command("get", "/flags/mode", "--json"))
    assert (shown["text"], shown["version"]) == ("off", 1)
    assert command("set", "/flags/mode", stdin=b"\xff\x00").exit_code == 0
    assert command("get", "/flags/mode", "--raw").stdout_bytes == b"\xff\x00"
    assert parsed(command("get", "/flags/mode", "--json"))["base64"] == "/wA="
    assert "\\xff\\x00" in command("get", "/flags/mode").stdout
    assert session.nodes.get("/flags/mode")[1].version == 2


def test_watch_tells_of_changes(session: Session, zookeeper: str, command: Any) -> None:
    session.nodes.create("/w", b"1")
    found: list[Result] = []
    looking = threading.Thread(
        target=lambda: found.append(command("watch", "/w", "--for", "3", "--json"))
    )
    looking.start()
    until = 100
    while looking.is_alive() and until:
        session.nodes.set("/w", b"2" if until % 2 else b"3")
        looking.join(0.05)
        until -= 1
    looking.join(30)
    lines = [json.loads(line) for line in found[0].stdout.splitlines()]
    values = [line["node"]["text"] for line in lines]
    assert len(values) > 3
    assert set(values) >= {"2", "3"}
    assert lines[0]["schema"] == "zkcoord.node.watch/1"


@pytest.mark.parametrize("verb", ["tree", "get"])
def test_a_missing_node_is_told(command: Any, verb: str) -> None:
    result = command(verb, "/nothing/here")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "/nothing/here" in result.stderr


def test_what_is_no_path_is_told(command: Any) -> None:
    result = command("get", "nothing")
    assert result.exit_code not in (0, ExitCode.UNEXPECTED)
    assert "nothing" in result.stderr
