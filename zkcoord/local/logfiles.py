"""The servers' log files: which there are, their last lines, and what is added to them."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from zkcoord.errors import StackMissing
from zkcoord.local import paths, running

_LOOK_EVERY_SECONDS = 0.25


def of_stack(name: str, server: str | None = None) -> dict[str, Path]:
    """The log files of a stack by server name, or of one server; it need not run any more.

    Raises:
        StackMissing: there is no such stack, or it has no such server.
    """
    described = running.read(running.check_name(name))
    if described is not None:
        files = {item.name: Path(item.log) for item in described.servers}
    else:
        found = sorted(paths.data_dir(name).glob("*/server.log"))
        files = {path.parent.name: path for path in found}
    if not files:
        raise StackMissing(f"no local stack named {name!r} has left logs")
    if server is None:
        return files
    if server not in files:
        raise StackMissing(f"stack {name!r} has no server {server!r}, but {', '.join(files)}")
    return {server: files[server]}


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a file; none when it is not there."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return [line.rstrip("\n") for line in collections.deque(file, lines)]
    except OSError:
        return []


def read(files: Mapping[str, Path], lines: int, *, follow: bool) -> Iterator[tuple[str, str]]:
    """Yield (server, line): the last lines of each file, then for ever what is added to it."""
    places: dict[str, int] = {}
    for title, path in files.items():
        places[title] = path.stat().st_size if path.exists() else 0
        for line in tail(path, lines):
            yield title, line
    while follow:
        for title, path in files.items():
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(places[title])
                added = file.read()
            whole = added[: added.rfind(b"\n") + 1]
            places[title] += len(whole)
            for line in whole.decode("utf-8", "replace").splitlines():
                yield title, line
        time.sleep(_LOOK_EVERY_SECONDS)
