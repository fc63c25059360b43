"""A PostgreSQL server of one test module: in a folder of its own, reached by a Unix socket."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

START_S = 60


def programs() -> Path | None:
    """The folder of `postgres` and `initdb`: on the path, or where Debian puts them."""
    found = shutil.which("postgres")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((one for one in folders if (one / "initdb").exists()), None)


@contextmanager
def postgresql(binaries: Path) -> Iterator[str]:
    """Run a server; gives its address as a URI."""
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    data = str(folder / "data")
    try:
        as_user = unprivileged(folder)
        run = {"cwd": folder, "stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, **as_user}
        made = subprocess.run(
            [str(binaries / "initdb"), "-D", data, "-U", "postgres", "-A", "trust",
             "-E", "UTF8", "--no-locale", "--no-sync"],
            stdout=subprocess.PIPE, check=False, timeout=START_S, **run,
        )  # fmt: skip
        assert made.returncode == 0, made.stdout.decode()
        settings = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off"]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [str(binaries / "postgres"), "-D", data]
                + [word for setting in settings for word in ("-c", setting)],
                stdout=log, **run,
            )  # fmt: skip
        try:
            address = f"postgresql:///postgres?host={folder}&user=postgres"
            wait_until_it_answers(address, server, folder / "log")
            yield address
        finally:
            server.send_signal(signal.SIGQUIT)  # "immediate shutdown": the data is thrown away
            server.wait(30)
    finally:
        shutil.rmtree(folder)


def unprivileged(folder: Path) -> dict[str, Any]:
    """Who is to run the server, which refuses root: the folder is given to that user."""
    if os.getuid():
        return {}
    users = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = users.get("postgres") or users["nobody"]
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def wait_until_it_answers(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            return
