"""From events to requests: who asked when, was granted when, and believed until when."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.histories.events import Event

NEVER = math.inf


@dataclass(slots=True)
class Request:
    """One acquire and what became of it. Times are of the histories' clock.

    Attributes:
        granted: when the client had it in hand; NEVER when it did not get it.
        failed: when it was told that it does not get it.
        ended: when it ceased to believe: it let go, was told, or its lease ran out. Somebody who
            looked at it later and still believed held it until then, whatever its lease said.
        released: when the release was confirmed; NEVER when it was not, or there was none.
        limit: seconds that it wanted to wait; 0 for ever.
    """

    client: str
    number: int
    name: str
    mode: str
    weight: int
    session: int
    invoked: float
    limit: float = 0.0
    granted: float = NEVER
    failed: float = NEVER
    why: str = ""
    token: int = 0
    ended: float = NEVER
    released: float = NEVER
    let_go: bool = False
    killed: float = NEVER

    def __str__(self) -> str:
        token = f" token {self.token:#x}" if self.token else ""
        return f"{self.client}'s request {self.number} for {self.name}{token}"

    @property
    def held(self) -> bool:
        """Whether there was any time at which it believed."""
        return self.granted < self.ended

    @property
    def answered(self) -> float:
        """When its acquire came back, one way or the other."""
        return min(self.granted, self.failed)

    @property
    def exclusive(self) -> bool:
        return self.mode in {"x", "w"}

    def conflicts(self, other: Request) -> bool:
        """Whether the two must not hold at one time. Semaphores are counted elsewhere."""
        return self.name == other.name and (self.exclusive or other.exclusive)

    def overlaps(self, other: Request) -> bool:
        return max(self.granted, other.granted) < min(self.ended, other.ended)


@dataclass(slots=True)
class _Belief:
    until: float = 0.0  # what leases said
    seen: float = 0.0  # when it last looked and believed
    stop: float = NEVER  # when it was told, or let go


@dataclass(slots=True)
class Requests:
    """All requests of a history, in the order in which they were made."""

    all: list[Request] = field(default_factory=list)

    def of(self, name: str) -> list[Request]:
        return [request for request in self.all if request.name == name]

    @property
    def names(self) -> list[str]:
        return sorted({request.name for request in self.all})


def read_requests(history: list[Event]) -> Requests:
    """Put a history's events together."""
    found: dict[tuple[str, int], Request] = {}
    beliefs: dict[tuple[str, int], _Belief] = {}
    sessions: dict[str, int] = {}
    for event in history:
        key = (event.client, event.request)
        request = found.get(key)
        if event.kind == "start":
            sessions[event.client] = event.session
        elif event.kind == "invoke":
            found[key] = Request(
                *(event.client, event.request, event.name, event.mode, event.weight),
                *(sessions.get(event.client, 0), event.at, event.until),
            )
            beliefs[key] = _Belief()
        elif event.kind == "killed":
            for other in found.values():
                if other.client == event.client:
                    other.killed = min(other.killed, event.at)
        elif event.kind == "forced":
            for other_key, other in found.items():
                if other.session == event.session and other.granted < NEVER:
                    beliefs[other_key].stop = min(beliefs[other_key].stop, event.at)
        elif request is not None:
            _note(event, request, beliefs[key])
    for key, request in found.items():
        belief = beliefs[key]
        if request.granted < NEVER:
            request.ended = min(belief.stop, max(belief.until, belief.seen))
    return Requests(list(found.values()))


def _note(event: Event, request: Request, belief: _Belief) -> None:
    if event.kind == "ok":
        request.granted = event.at
        request.token = event.token
        request.session = event.session or request.session
        belief.until = event.until
        belief.seen = event.at
    elif event.kind == "fail":
        request.failed = event.at
        request.why = event.text
    elif event.kind == "believe":
        belief.seen = event.at
        belief.until = max(belief.until, event.until)
    elif event.kind in {"lost", "release"}:
        belief.stop = min(belief.stop, event.at)
        request.let_go = request.let_go or event.kind == "release"
    elif event.kind == "released":
        request.released = event.at
