"""A file that many agents append to, one at a time, each under a lock and fenced by its token."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from zkcoord.errors import LeaseLost

LINE_BYTES_MAX = 64 * 1024


class Line(msgspec.Struct):
    """One answer in the file. `waited` is the seconds its writer waited for the lock."""

    token: int
    task: str
    attempt: int
    agent: str
    name: str
    answer: str
    waited: float


@dataclass(slots=True)
class Findings:
    """What an examination of the file found; a sound file has no `torn`, `backward`, `twice`."""

    lines: int = 0
    torn: int = 0  # lines that are not whole
    backward: int = 0  # lines whose token is not above the one before
    twice: int = 0  # tasks whose answer stands there more than once
    waits: tuple[float, ...] = ()

    @property
    def unbroken(self) -> bool:
        """Whether nothing is torn, out of order or doubled."""
        return not (self.torn or self.backward or self.twice)


def append(path: Path, line: Line) -> bool:
    """Append `line`, unless its task stands there already; return whether it was written.

    The caller holds the file's lock. The fence covers the holder that only thinks it still does:
    a line whose token is not above the last one is refused.

    Raises:
        LeaseLost: a later holder has written.
    """
    lines = _lines(path)
    if lines and lines[-1].token >= line.token:
        raise LeaseLost(
            f"{path.name}: a holder with token {lines[-1].token} has written, "
            f"so token {line.token} is no longer the lock's",
            name=path.name,
            token=line.token,
            reason="session",
        )
    if any(there.task == line.task for there in lines):
        return False
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, msgspec.json.encode(line) + b"\n")
    finally:
        os.close(file)
    return True


def examine(path: Path) -> Findings:
    """Read the whole file and look for what fair, fenced locks rule out."""
    found = Findings()
    if not path.exists():
        return found
    raw = path.read_bytes().split(b"\n")
    found.torn += bool(raw[-1])
    last, seen, waits = 0, set(), []
    for text in raw[:-1]:
        try:
            line = msgspec.json.decode(text, type=Line)
        except msgspec.DecodeError:
            found.torn += 1
            continue
        found.lines += 1
        found.backward += line.token <= last
        found.twice += line.task in seen
        last = line.token
        seen.add(line.task)
        waits.append(line.waited)
    found.waits = tuple(waits)
    return found


def _lines(path: Path) -> list[Line]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(text, type=Line) for text in raw.split(b"\n")[:-1]]
