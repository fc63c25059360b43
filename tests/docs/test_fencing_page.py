"""The page on fencing: what its programs do when a holder is paused right before it writes."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx
import psycopg
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from database import postgresql, programs
from fencing import STEP_S, Holder, Place, free_address, serving

from zkcoord import (
    Lock,
    NodeMissing,
    Session,
    break_lock,
    contenders,
)
from zkcoord.errors import LeaseLost
from zkcoord.local import Stack

needs_postgresql = pytest.mark.skipif(
    programs() is None, reason="no PostgreSQL server: neither on the path nor as Debian has it"
)
EXAMPLES = [
    pytest.param("fence_row", marks=needs_postgresql),
    pytest.param("fence_rows", marks=needs_postgresql),
    "fence_client",
    "fence_file",
]


@pytest.fixture(scope="module")
def place(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    chroot = f"/fencing-{os.getpid()}"
    with Session(stack.zookeeper) as session:
        session.nodes.create(chroot, b"")
    folder = tmp_path_factory.mktemp("fencing")
    with ExitStack() as servers:
        binaries = programs()
        database = servers.enter_context(postgresql(binaries)) if binaries else ""
        made = Place(folder, stack.zookeeper + chroot, database, free_address())
        made.save(timeout_s=6)
        if database:
            with psycopg.connect(database) as db:
                db.execute(made.schema())
        servers.enter_context(serving(made))
        yield made


@pytest.fixture
def db(place: Place) -> Iterator[psycopg.Connection]:
    with psycopg.connect(place.database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def session(place: Place) -> Iterator[Session]:
    with Session(place.zookeeper) as opened:
        yield opened


# --- paused until a successor wrote --------------------------------------------------------------


def story(place: Place, name: str) -> tuple[object, object, int, str]:
    """What is written after the successor, and after the paused holder; how that one ended."""
    with Holder(place, name) as paused:
        paused.wait_until_it_asks()
        paused.stop()
        with Holder(place, name) as successor:
            successor.wait_until_it_asks()
            status, _, err = successor.go_on()
        assert (status, err) == (0, "")
        before = written(place, name)
        status, _, err = paused.go_on()
        return before, written(place, name), status, err


def written(place: Place, name: str) -> object:
    """What the successor, and the paused holder, write to."""
    if name == "fence_client":
        with closing(sqlite3.connect(place.folder / "documents.db")) as store:
            return store.execute("SELECT text FROM document WHERE name = 'plan'").fetchall()
    if name == "fence_file":
        return (place.folder / "plan.txt").read_text().partition("\n")[2]
    accounts = ["7"] if name == "fence_row" else ["8", "9"]
    with psycopg.connect(place.database) as db:
        query = "SELECT balance FROM account WHERE id = ANY(%s) ORDER BY id"
        return [balance for (balance,) in db.execute(query, (accounts,))]


WRITTEN_ONCE = {
    "fence_row": [110],
    "fence_rows": [90, 110],
    "fence_client": [("one more line\n",)],
    "fence_file": "one more line\n",
}


@pytest.fixture(scope="module")
def stories(place: Place) -> dict[str, tuple[object, object, int, str]]:
    """All at the same time: each waits for the end of a session."""
    names = [name for name in WRITTEN_ONCE if place.database or "row" not in name]
    with ThreadPoolExecutor(len(names)) as crowd:
        return dict(zip(names, crowd.map(lambda name: story(place, name), names), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_late_write_changes_nothing_and_says_so(
    name: str, stories: dict[str, tuple[object, object, int, str]]
) -> None:
    before, after, status, err = stories[name]
    assert before == after == WRITTEN_ONCE[name]
    assert status == 1
    assert err.splitlines()[-1].startswith("nothing written: ")
    assert "Traceback" not in err


# --- a row, and several --------------------------------------------------------------------------


@needs_postgresql
def test_a_row_refuses_smaller_tokens_and_takes_equal_ones(
    place: Place, db: psycopg.Connection
) -> None:
    row = place.module("fence_row")
    row.put(db, "new", 1, 20)  # inserts
    row.put(db, "new", 2, 20)
    row.write(db, "new", 3, 21)
    for late in (row.put, row.write):
        with pytest.raises(row.FencedOut):
            late(db, "new", 0, 20)
    assert row.read(db, "new", 21) == 3
    assert db.execute("SELECT fence FROM account WHERE id = 'new'").fetchone() == (21,)
    with pytest.raises(row.FencedOut):
        row.write(db, "nobody", 0, 2**62)


@needs_postgresql
def test_reading_a_row_shuts_the_predecessor_out(place: Place, db: psycopg.Connection) -> None:
    row = place.module("fence_row")
    row.put(db, "read", 5, 30)
    assert row.read(db, "read", 31) == 5
    with pytest.raises(row.FencedOut):
        row.write(db, "read", 6, 30)
    with pytest.raises(row.FencedOut):
        row.read(db, "read", 30)


@needs_postgresql
@pytest.mark.parametrize("late", ["write", "put"])
def test_a_write_that_waited_for_the_row_compares_again(
    late: str, place: Place, db: psycopg.Connection
) -> None:
    row = place.module("fence_row")
    row.put(db, late, 1, 40)
    with psycopg.connect(place.database, autocommit=True) as other, ThreadPoolExecutor(1) as aside:
        with db.transaction():
            row.write(db, late, 2, 41)
            blocked = aside.submit(getattr(row, late), other, late, 3, 40)
            wait_for_a_lock(place, other.info.backend_pid)
        with pytest.raises(row.FencedOut):
            blocked.result(STEP_S)
    assert row.read(db, late, 41) == 2


@needs_postgresql
def test_a_transaction_that_enters_late_is_undone(place: Place, db: psycopg.Connection) -> None:
    rows = place.module("fence_rows")
    with psycopg.connect(place.database, autocommit=True) as other, ThreadPoolExecutor(1) as aside:
        with db.transaction():
            rows.enter(db, "other ledger", 2**62)
            blocked = aside.submit(in_transaction, rows.enter, other, "other ledger", 2**62 - 1)
            wait_for_a_lock(place, other.info.backend_pid)
        with pytest.raises(rows.FencedOut):
            blocked.result(STEP_S)


def in_transaction(
    enter: Callable[..., None], db: psycopg.Connection, name: str, token: int
) -> None:
    with db.transaction():
        enter(db, name, token)


def wait_for_a_lock(place: Place, pid: int) -> None:
    query = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s"
    deadline = time.monotonic() + STEP_S
    with psycopg.connect(place.database, autocommit=True) as db:
        while db.execute(query, (pid,)).fetchone() != ("Lock",):
            assert time.monotonic() < deadline
            time.sleep(0.01)


# --- an API --------------------------------------------------------------------------------------


def test_the_api_answers_412_and_428(place: Place) -> None:
    client = place.module("fence_client")
    with httpx.Client(base_url=place.api) as http:
        assert client.ask(http, "PUT", "note", 7, "seven") == "seven"
        assert client.ask(http, "GET", "note", 8) == "seven"
        with pytest.raises(client.FencedOut, match="above 7"):
            client.ask(http, "PUT", "note", 7, "late")
        assert client.ask(http, "PUT", "note", 8, "eight") == "eight"
        for token in ("", "x", "-1", str(2**63)):
            answer = http.put("/documents/note", content="", headers={"X-Fencing-Token": token})
            assert answer.status_code == 428
        assert http.get("/documents/note").status_code == 428
        assert client.ask(http, "GET", "note", 8) == "eight"


# --- a file --------------------------------------------------------------------------------------


def test_a_file_refuses_smaller_tokens(place: Place, tmp_path: Path) -> None:
    file = place.module("fence_file")
    path = tmp_path / "file"
    assert file.read(path, 5) == ""
    file.write(path, 6, "six\nlines")
    file.write(path, 6, "six\nlines more")
    assert file.read(path, 7) == "six\nlines more"
    for late in (lambda: file.write(path, 6, "late"), lambda: file.read(path, 6)):
        with pytest.raises(file.FencedOut):
            late()
    assert path.read_text() == "7\nsix\nlines more"


def test_a_file_takes_the_largest_of_a_crowd(place: Place, tmp_path: Path) -> None:
    file = place.module("fence_file")
    path = tmp_path / "crowded"

    def put(token: int) -> None:
        with suppress(file.FencedOut):
            file.write(path, token, f"text of {token}")

    with ThreadPoolExecutor(8) as crowd:
        list(crowd.map(put, [(n * 37) % 101 + 1 for n in range(101)]))
    assert path.read_text() == "101\ntext of 101"


# --- a node --------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarded", [True, False])
def test_only_a_guarded_counter_keeps_every_success(
    guarded: bool, place: Place, session: Session
) -> None:
    name = "guests" if guarded else "strangers"
    changes = {'"visitors"': f'"{name}"', "/visitors": f"/{name}", "timeout_s=6": "timeout_s=60"}
    if not guarded:
        changes["lease.guard(change).commit()"] = "change.commit()"
    place.variant("fence_node", name, changes)
    with Holder(place, name) as paused:
        paused.wait_until_it_asks()
        paused.stop()
        break_lock(session, name, contenders(session, name)[0].token, "it does not answer")
        with Holder(place, name) as successor:
            successor.wait_until_it_asks()
            ends = [successor.go_on(), paused.go_on()]
    successes = sum("written" in out for _, out, _ in ends)
    assert successes == (1 if guarded else 2)
    assert session.nodes.get(f"/{name}")[0] == b"1"  # so without the guard one is lost
    if guarded:
        assert ends[1][0] == 1
        assert ends[1][2].splitlines()[-1].startswith("nothing written: ")


def test_a_guarded_counter_counts_its_successes_while_its_lock_is_broken_again_and_again(
    place: Place, session: Session
) -> None:
    session.nodes.create("/storm", b"0")

    def count(_: int) -> tuple[int, int]:
        """Successes and refusals; every fourth hold is broken between its read and its write."""
        ends = [0, 0]
        with Session(place.zookeeper) as own:
            for turn in range(40):
                with suppress(LeaseLost), Lock(own, "storm").hold(timeout=STEP_S) as lease:
                    value = int(own.nodes.get("/storm")[0])
                    if turn % 4 == 0:
                        break_lock(session, "storm", lease.token, "for the test")
                    change = own.nodes.transaction().set("/storm", str(value + 1).encode())
                    try:
                        lease.guard(change).commit()
                    except NodeMissing:
                        ends[1] += 1
                    else:
                        ends[0] += 1
        return ends[0], ends[1]

    with ThreadPoolExecutor(4) as crowd:
        ends = list(crowd.map(count, range(4)))
    assert ends == [(30, 10)] * 4
    assert session.nodes.get("/storm")[0] == b"120"
