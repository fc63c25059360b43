"""What is remembered of running stacks and data folders, and how damage is explained."""

import dataclasses
import json
import os
import socket
from pathlib import Path

import pytest

from zkcoord.errors import StackError
from zkcoord.local import background, logfiles, paths, ports, running
from zkcoord.local.folder import DataFolder
from zkcoord.local.running import RunningServer, RunningStack
from zkcoord.settings import load_settings


@pytest.fixture(autouse=True)
def homes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("ZKCOORD_ZOOKEEPER", "ZKCOORD_KAFKA", "ZKCOORD_CONTEXT", "ZKCOORD_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))


def described(tmp_path: Path, **changes: object) -> RunningStack:
    server = RunningServer("broker-1", "127.0.0.1:9", 1, str(tmp_path / "server.log"))
    stack = RunningStack(
        name="default",
        zookeeper="127.0.0.1:1",
        kafka="127.0.0.1:9",
        data=str(tmp_path),
        pid=os.getpid(),
        started=1.5,
        servers=(server,),
    )
    return dataclasses.replace(stack, **changes)


def test_a_stack_is_found_while_its_supervisor_holds_the_lock(tmp_path: Path) -> None:
    stack = described(tmp_path)
    assert running.find_running() is None
    with running.lock("default"):
        running.write(stack)
        assert running.find_running() == stack
        assert running.find_running("other") is None
        assert running.names() == ["default"]
    assert running.find_running() is None  # its description is still there
    assert running.read("default") == stack


def test_a_half_dead_stack_is_explained(tmp_path: Path) -> None:
    stack = described(tmp_path)
    dead = dataclasses.replace(stack.servers[0], ended=-9)
    with running.lock("default"):
        running.write(dataclasses.replace(stack, servers=(dead,)))
        with pytest.raises(StackError, match=r"half dead: broker-1 ended with status -9") as caught:
            running.find_running()
    assert "zkcoord local down" in caught.value.hint


def test_what_restarts_a_stack_names_its_folder_and_its_counts(tmp_path: Path) -> None:
    stack = described(tmp_path, name="spare", data=str(tmp_path / "my data"))
    one = stack.servers[0]
    three = tuple(dataclasses.replace(one, name=f"broker-{number}") for number in (1, 2, 3))
    assert running.up_command(stack) == (
        f"zkcoord local up --name spare --data '{tmp_path}/my data'"
    )
    whole = dataclasses.replace(stack, servers=three)
    assert "--name spare --brokers 3 --data" in running.up_command(whole)
    usual = dataclasses.replace(stack, name="default", data=str(paths.data_dir("default")))
    assert running.up_command(usual) == "zkcoord local up"
    with running.lock("spare"):
        running.write(dataclasses.replace(stack, servers=(dataclasses.replace(one, ended=-9),)))
        with pytest.raises(StackError) as caught:
            running.find_running("spare")
        with pytest.raises(StackError, match="half dead"):
            background.up(name="spare")
    assert caught.value.hint == (
        f"run: zkcoord local down --name spare && {running.up_command(stack)}"
    )
    with pytest.raises(StackError) as caught:
        background.look("spare")
    assert caught.value.hint.endswith(running.up_command(stack))


def test_a_running_stack_is_stopped_by_its_name(tmp_path: Path) -> None:
    with running.lock("spare"):
        running.write(described(tmp_path, name="spare"))
        with pytest.raises(StackError) as caught:
            background.up(name="spare", brokers=3)
    assert "`zkcoord local down --name spare`" in caught.value.hint


@pytest.mark.parametrize(
    ("dead", "broken"),
    [
        (["broker-1"], {"kafka"}),
        (["zookeeper-1"], set()),
        (["zookeeper-1", "zookeeper-2"], {"zookeeper"}),
        (["zookeeper-1", "zookeeper-3", "broker-1"], {"zookeeper", "kafka"}),
    ],
)
def test_what_serves_of_a_half_dead_stack(
    tmp_path: Path, dead: list[str], broken: set[str]
) -> None:
    titles = ("zookeeper-1", "zookeeper-2", "zookeeper-3", "broker-1")
    servers = tuple(
        RunningServer(title, "127.0.0.1:9", 1, "log", ended=-9 if title in dead else None)
        for title in titles
    )
    with running.lock("default"):
        running.write(described(tmp_path, servers=servers))
        for found in (load_settings(), load_settings(context="local:default")):
            assert found.broken.keys() == broken
            for key, need in (("zookeeper", found.need_zookeeper), ("kafka", found.need_kafka)):
                if key in broken:
                    with pytest.raises(StackError, match="is half dead"):
                        need()
                else:
                    need()
        other = load_settings(flags={"kafka": "k:1", "zookeeper": "z:1"}, context="local:default")
        assert not other.broken


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    with running.lock("default"):
        running.write(described(tmp_path))
        with pytest.raises(StackError, match="runs already"):
            running.lock("default")
    running.lock("default").close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 99, "servers": []}'])
def test_a_description_that_cannot_be_read_is_named(text: str) -> None:
    with running.lock("default"):
        path = paths.state_dir() / "default.json"
        path.write_text(text)
        with pytest.raises(StackError, match=str(path)):
            running.find_running()


@pytest.mark.parametrize("name", ["", "../up", "a/b", "-x", "x" * 41])
def test_names_that_are_no_file_names_are_refused(name: str) -> None:
    with pytest.raises(StackError, match="no name for a stack"):
        running.find_running(name)


def test_a_supervisor_that_was_killed_is_told_apart_from_none(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="no local stack named 'default' runs"):
        background.look()
    with running.lock("default"):
        running.write(described(tmp_path))
    with pytest.raises(StackError, match="ended without `down`"):
        background.look()


def test_state_is_for_its_user_only(tmp_path: Path) -> None:
    with running.lock("default"):
        running.write(described(tmp_path))
    assert (paths.state_dir() / "default.json").stat().st_mode & 0o077 == 0
    assert paths.state_dir().stat().st_mode & 0o077 == 0


def test_ports_and_cluster_of_a_data_folder_are_kept(tmp_path: Path) -> None:
    first = DataFolder(tmp_path / "data")
    layout = first.layout(1, 1)
    first.close()
    second = DataFolder(tmp_path / "data")
    assert second.layout(1, 1) == layout
    moved = second.layout(1, 1, wanted={0: 20001})
    assert moved.ports == (20001, *layout.ports[1:])
    second.close()


def test_a_taken_port_between_servers_moves_and_one_for_clients_stays(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    layout = folder.layout(1, 1)
    with (
        socket.create_server(("127.0.0.1", layout.ports[3])),
        socket.create_server(("127.0.0.1", layout.ports[5])),
    ):
        moved = folder.layout(1, 1)
    folder.close()
    assert moved.ports[:5] == layout.ports[:5]
    assert moved.ports[5] != layout.ports[5]


def test_a_data_folder_in_use_is_explained(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    with pytest.raises(StackError, match=rf"in use by a running stack \(process {os.getpid()}\)"):
        DataFolder(tmp_path / "data")
    folder.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"zookeepers": 3}, "made for 3 ZooKeeper and 1 Kafka servers, not 1 and 1"),
        ({"kafka_version": "99.0.0"}, "later than"),
        ({"format": 7}, "format 7"),
        ({"surprise": 1}, "cannot be read"),
    ],
)
def test_a_stale_data_folder_is_explained(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    folder = DataFolder(tmp_path)
    folder.layout(1, 1)
    marker = tmp_path / "stack.json"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | change))
    with pytest.raises(StackError, match=reason) as caught:
        folder.layout(1, 1)
    assert str(tmp_path) in caught.value.hint
    folder.close()


def test_a_folder_with_other_files_is_not_taken_for_data(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    folder = DataFolder(tmp_path)
    with pytest.raises(StackError, match=r"holds other files, such as thesis\.tex"):
        folder.layout(1, 1)
    folder.close()
    assert background.down(delete_data=True) is False
    assert (tmp_path / "thesis.tex").exists()


def test_ports_are_different_and_below_the_range_of_outgoing_connections() -> None:
    chosen = ports.choose(20, avoid={20000})
    assert len(set(chosen)) == 20
    assert all(1024 < port < 32768 for port in chosen)


def test_logs_of_a_stack_are_its_servers_logs(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    with running.lock("default"):
        running.write(described(tmp_path))
    files = logfiles.of_stack("default")
    assert list(logfiles.read(files, 2, follow=False)) == [
        ("broker-1", "line 98"),
        ("broker-1", "line 99"),
    ]
    follower = logfiles.read(files, 1, follow=True)
    assert next(follower) == ("broker-1", "line 99")
    with log.open("a") as file:
        file.write("half a line")
        file.flush()
        file.write(", whole\n")
    assert next(follower) == ("broker-1", "half a line, whole")
    follower.close()
    with pytest.raises(StackError, match="has no server 'broker-2'"):
        logfiles.of_stack("default", "broker-2")


def test_ports_are_remembered_only_when_told_so(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    wanted = folder.layout(1, 1, wanted={0: 20001})
    assert wanted.ports[0] == 20001
    kept = folder.layout(1, 1)
    assert kept.ports[0] != 20001
    assert kept.ports[1:] == wanted.ports[1:]
    folder.remember(wanted)
    assert folder.layout(1, 1) == wanted
    folder.close()


def test_other_ports_than_a_running_stack_has_are_refused(tmp_path: Path) -> None:
    servers = (
        RunningServer("zookeeper-1", "127.0.0.1:2181", 1, "log"),
        RunningServer("broker-1", "127.0.0.1:9092", 2, "log"),
    )
    stack = described(tmp_path, servers=servers)
    data = tmp_path
    with running.lock("default"):
        running.write(stack)
        assert background.up(data=data, zookeeper_port=2181, kafka_port=9092) == stack
        with pytest.raises(StackError, match="ports 2181 and 9092"):
            background.up(data=data, zookeeper_port=2182)
        with pytest.raises(StackError, match="ports 2181 and 9092"):
            background.up(data=data, kafka_port=9093)


def test_the_data_of_a_stack_is_known_whether_it_runs_or_not(tmp_path: Path) -> None:
    assert background.data_of("default") is None
    folder = DataFolder(paths.data_dir("default"))
    folder.layout(1, 1)
    folder.close()
    assert background.data_of("default") == paths.data_dir("default")
    assert background.down(delete_data=True) is False
    assert background.data_of("default") is None
