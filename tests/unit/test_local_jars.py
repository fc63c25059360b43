"""The lock of jars and the cache: a good copy or a clear error, never a bad file."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from zkcoord.errors import StackError
from zkcoord.local import download, jars
from zkcoord.local.jars import Jar

BODY = b"not really a jar" * 5000


class Repository(http.server.BaseHTTPRequestHandler):
    """Serves what is in `files`; None answers 503; counts requests by path."""

    files: dict[str, bytes | None]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = self.files.get(self.path, b"")
        if not body:
            self.send_error(404 if body == b"" else 503)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Repository]]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(download.time, "sleep", lambda _: None)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    handler = type("Handler", (Repository,), {"files": {}, "asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv(jars.MIRROR_VARIABLE, f"http://127.0.0.1:{server.server_port}/maven/")
        yield handler
        server.shutdown()
        thread.join()


def jar(body: bytes = BODY, artifact: str = "thing") -> Jar:
    return Jar("kafka", "org.example", artifact, "1.0", len(body), hashlib.sha256(body).hexdigest())


def url_path(item: Jar) -> str:
    return f"/maven/{item.path}"


def test_the_shipped_lock_pins_both_servers() -> None:
    locked = jars.locked()
    assert {item.server for item in locked} == {"zookeeper", "kafka"}
    assert all(item.size > 0 and int(item.sha256, 16) for item in locked)
    assert jars.version("zookeeper", "zookeeper").startswith("3.9.")
    assert jars.version("kafka", "kafka-clients").startswith("4.")
    assert len({(item.server, item.group, item.artifact) for item in locked}) == len(locked)


@pytest.mark.parametrize(
    "line",
    [
        "kafka org.example thing 1.0 12",
        "kafka org.example thing 1.0 many " + "0" * 64,
        "kafka org.example thing 1.0 12 " + "0" * 63,
    ],
)
def test_a_broken_line_of_a_lock_is_named(line: str) -> None:
    with pytest.raises(StackError, match="line 3"):
        jars.parse_lock(f"# comment\n\n{line}\n")


def test_an_empty_lock_is_refused() -> None:
    with pytest.raises(StackError, match="no jar"):
        jars.parse_lock("# nothing\n")


def test_jars_are_fetched_once_and_then_found_in_the_cache(repository: type[Repository]) -> None:
    wanted = [jar(), jar(BODY[::-1], "other")]
    repository.files = {url_path(wanted[0]): BODY, url_path(wanted[1]): BODY[::-1]}
    root = jars.ensure(wanted)
    assert (root / wanted[0].path).read_bytes() == BODY
    jars.ensure(wanted)
    assert sorted(repository.asked) == sorted(map(url_path, wanted))


def test_a_damaged_file_in_the_cache_is_fetched_again(repository: type[Repository]) -> None:
    wanted = jar()
    repository.files = {url_path(wanted): BODY}
    path = jars.ensure([wanted]) / wanted.path
    path.write_bytes(b"X" + BODY[1:])  # the same size
    jars.ensure([wanted])
    assert path.read_bytes() == BODY


@pytest.mark.parametrize(
    ("arrived", "reason"),
    [(b"X" + BODY[1:], "SHA-256 is"), (BODY + b"more", "more than"), (BODY[:-1], "ended after")],
)
def test_what_is_not_what_was_pinned_is_not_kept(
    repository: type[Repository], arrived: bytes, reason: str
) -> None:
    wanted = jar()
    repository.files = {url_path(wanted): arrived}
    with pytest.raises(StackError, match=reason):
        jars.ensure([wanted])
    assert not [path for path in jars.folder().rglob("*") if path.is_file()]


def test_a_server_in_trouble_is_asked_again_and_a_missing_file_is_not(
    repository: type[Repository],
) -> None:
    wanted = jar()
    repository.files = {url_path(wanted): None}
    with pytest.raises(StackError, match="503"):
        jars.ensure([wanted])
    assert len(repository.asked) == download.ATTEMPTS
    repository.asked.clear()
    repository.files = {}
    with pytest.raises(StackError, match="404"):
        jars.ensure([wanted])
    assert len(repository.asked) == 1


def test_offline_and_not_cached_says_what_to_do(
    repository: type[Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jars.MIRROR_VARIABLE, "http://127.0.0.1:9/nothing-listens-here")
    with pytest.raises(StackError, match=r"cannot be fetched.*refused") as caught:
        jars.ensure([jar()])
    assert jars.MIRROR_VARIABLE in caught.value.hint


def test_progress_is_plain_lines_when_stderr_is_no_terminal(
    repository: type[Repository], capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = jar()
    repository.files = {url_path(wanted): BODY}
    jars.ensure([wanted])
    captured = capsys.readouterr()
    assert "fetching 1 server jars" in captured.err
    assert captured.out == ""
