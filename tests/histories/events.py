"""What happened, as client processes wrote it down: one JSON line for each event.

Every line has a time of CLOCK_BOOTTIME: all processes run on one machine, so there is one clock.
A line is one ``write(2)`` to a file opened for appending, so a process that is killed leaves whole
lines, and nothing that it did before is missing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

Kind = Literal[
    # a client's own words
    "start",  # it has a session: session, until = the timeout granted
    "invoke",  # it asks: request, name, mode, weight, until = its own time limit in seconds
    "ok",  # granted: request, token, until = valid_until
    "fail",  # not granted: request, text
    "believe",  # it looked, and believes that it holds: request, until
    "lost",  # it learned that it does not hold any more: request
    "release",  # it lets go, from now on it does not believe: request
    "released",  # the release is confirmed: request
    "write",  # a counter: value = what it writes, text = begun, then ok | refused | unknown
    "store",  # a register fenced by tokens: token, text = ok | refused
    "rest",  # it holds nothing and says what it has left: counts
    "end",  # it leaves in good order
    # a story's words
    "killed",  # the client is no more
    "forced",  # somebody ended this session by force: session
    "healed",  # no fault from here on: until = seconds within which all who wait must get in
    "counter",  # what a counter says in the end: name, value
    "limit",  # permits of a semaphore: name, value
    "left",  # what is left in ZooKeeper or in a client when all rest: text, value
    "claim",  # something that a story must see and did not: text = rule: what
    "note",
]


class Event(msgspec.Struct, omit_defaults=True):
    """One line. What the fields mean depends on the kind, see there."""

    at: float
    client: str
    kind: Kind
    request: int = 0
    name: str = ""
    mode: Literal["x", "w", "r", "s"] = "x"
    weight: int = 1
    token: int = 0
    until: float = 0.0
    session: int = 0
    value: int = 0
    text: str = ""
    counts: dict[str, int] = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


def now() -> float:
    """The clock of all histories."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Journal:
    """Writes one client's events. From any thread."""

    def __init__(self, path: Path, client: str) -> None:
        self.client = client
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.turn = threading.RLock()  # held over a fork, so that the child may write too

    def write(self, kind: Kind, *, at: float = 0.0, **fields: object) -> Event:
        """Write an event of this moment, or of an earlier one."""
        with self.turn:
            event = Event(at or now(), self.client, kind, **fields)  # type: ignore[arg-type]
            os.write(self._file, _encode(event) + b"\n")
        return event

    def close(self) -> None:
        os.close(self._file)


class Tail:
    """Reads a journal while it is being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.events: list[Event] = []

    def update(self) -> list[Event]:
        """All events so far."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return self.events
        whole = data.rpartition(b"\n")[0]
        if whole:
            self._offset += len(whole) + 1
            self.events += [_decode(line) for line in whole.split(b"\n")]
        return self.events


def merge(journals: Iterable[Iterable[Event]]) -> list[Event]:
    """One history out of several, in the order of time."""
    return sorted((event for journal in journals for event in journal), key=lambda e: e.at)
