"""Where a story happens: its actors, its name for the lock, its end and its verdict."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.chaos.actors import Actor, Line, Stuck
from tests.chaos.arena import Arena, wait_until
from tests.chaos.programs.protections import MUTANTS, OTHERS
from tests.histories.events import Event, Journal, Tail, merge
from tests.histories.requests import read_requests
from tests.histories.rules import Violation, check
from zkcoord.local.servers import ZooKeeperServer

TIMEOUT_S = 4.0
SEVERAL = 8
SLACK_S = 6.0
_numbers = itertools.count(1)
_quiet = logging.getLogger("tests.chaos.kazoo")
_quiet.setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Subject:
    """Whose lock a story is about: ``zkcoord``, ``kazoo``, or the name of a mutant of ours.

    ``unguarded`` is ours without the guard around writes and without fencing, ``slow`` is ours on
    a clock that is slower than any margin covers.
    """

    name: str

    @property
    def flavour(self) -> str:
        return "kazoo" if self.name == "kazoo" else "zkcoord"

    @property
    def mutant(self) -> str:
        return self.name if self.name in MUTANTS | OTHERS else ""

    @property
    def guarded(self) -> bool:
        """Whether its writes are guarded by the lease and its register fenced by the token."""
        return self.name not in {"kazoo", "unguarded"}


OURS, KAZOO, UNGUARDED = Subject("zkcoord"), Subject("kazoo"), Subject("unguarded")
SLOW = Subject("slow")
SUBJECTS = [OURS, KAZOO, UNGUARDED, *map(Subject, MUTANTS), SLOW, *map(Subject, OTHERS)]


@dataclass
class Stage:
    """One run of one story. `with` cleans up; `verdict` is what the checker found.

    Attributes:
        size: 1 for the whole story, less for a slice of it; see `often`.
    """

    arena: Arena
    subject: Subject
    title: str
    seed: int = 0
    size: float = 1.0
    timeout: float = TIMEOUT_S
    actors: list[Actor] = field(default_factory=list)
    verdict: list[Violation] = field(default_factory=list)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.name = f"{self.title}-{self.subject.name}-{os.getpid()}-{next(_numbers)}"
        self.folder = Path(tempfile.mkdtemp(prefix=f"zkcoord-{self.name}-"))
        self.story = Journal(self.folder / "story.jsonl", "story")
        self._tail = Tail(self.folder / "story.jsonl")
        self._begun = time.monotonic()
        self._healed = False
        self._finished = False
        self.tails: list[Tail] = []  # of journals that are not an actor's
        self.root = "/locks"
        self._client = KazooClient(self.arena.hosts, timeout=30, logger=_quiet)

    def open(self) -> None:
        """Make what the actors find."""
        self._client.start(60)
        self._client.ensure_path("/locks")
        self._client.create(f"/counter-{self.name}", b"0")

    # --- who acts ---------------------------------------------------------------------------------

    def contender(
        self,
        name: str,
        *,
        aside: bool = False,
        hosts: str = "",
        detours: dict[ZooKeeperServer, str] | None = None,
        clock: Path | None = None,
        **how: Any,
    ) -> Actor:
        """A client process.

        Args:
            name: as the history calls it.
            aside: reaches the servers through proxies of its own, so that it can be cut off.
            hosts: where else it finds the servers.
            detours: what stands between its proxies and some servers.
            clock: a file with seconds by which its wall clock is wrong.
            how: more for the program: mode, weight, timeout.
        """
        line = Line(self.arena, detours or {}) if aside else None
        settings = {
            "client": name,
            "name": self.name,
            "journal": str(self.folder / f"{name}.jsonl"),
            "register": str(self.folder / "register"),
            "hosts": hosts or (self.arena.hosts if line is None else line.hosts),
            "timeout": self.timeout,
            "flavour": self.subject.flavour,
            "mutant": self.subject.mutant,
            "several": SEVERAL,
            "guarded": self.subject.guarded,
            "seed": self.random.randrange(1 << 30),
        }
        actor = Actor(settings | how, line, self.story, clock)
        self.actors.append(actor)
        return actor

    # --- what happens -----------------------------------------------------------------------------

    def often(self, count: int) -> int:
        """How often something is done in a story of this size."""
        return max(1, round(count * self.size))

    @property
    def folder_path(self) -> str:
        """The lock's folder."""
        return f"{self.root}/{self.name}"

    def ensure_folder(self) -> None:
        """Make it before anybody asks."""
        self._client.ensure_path(self.folder_path)

    def has_permits(self, count: int) -> None:
        """It is about a semaphore."""
        self.root = "/semaphores"
        self.story.write("limit", name=self.name, value=count)

    def queue(self) -> list[str]:
        """The nodes in the lock's folder, and in those of several locks."""
        found: list[str] = []
        for folder in (self.name, *(f"{self.name}.{number}" for number in range(SEVERAL))):
            with contextlib.suppress(NoNodeError):
                found += self._client.get_children(f"{self.root}/{folder}")
        return found

    def waits_in_line(self, count: int) -> None:
        """Wait until so many nodes stand in the queue."""
        self.comes_true(lambda: len(self.queue()) == count, f"{count} nodes in the queue")

    def comes_true(self, condition: Any, what: str, within: float = 30.0, rule: str = "C4") -> None:
        """Wait for what must come."""
        if not wait_until(condition, within):
            self.claim(rule, f"not within {within:g} s: {what}")
            raise Stuck(what)

    def passes(self, seconds: float) -> None:
        """Time passes: a fault is left to work."""
        time.sleep(seconds)

    def claim(self, rule: str, text: str) -> None:
        """A violation that the history alone does not show."""
        self.story.write("claim", text=f"{rule}: {text}")

    def note(self, text: str) -> None:
        self.story.write("note", text=text)

    def heal(self) -> None:
        """No more faults: from now on everybody gets in soon."""
        for actor in self.actors:
            if actor.alive and actor.paused:
                actor.resume()
            if actor._line is not None:
                actor.line.heal()
        self.arena.heal()
        self._healed = True
        self.story.write("healed", until=2 * self.timeout + SLACK_S)

    def looks_around(self) -> None:
        """Let everybody finish and see what is left, before what stands in between is gone."""
        self._finish()

    # --- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Heal, let everybody finish, look at what is left, end all, and judge."""
        try:
            if not self._finished:
                self._finish()
        except Stuck as stuck:
            self.note(f"the story ended early: {stuck}")
        except Exception as error:
            self.claim("story", f"{type(error).__name__} {error}")
        finally:
            for actor in self.actors:
                actor.ends()
            self._client.stop()
            self._client.close()
        self.verdict = check(self.history())
        self.seconds = time.monotonic() - self._begun
        self.story.close()

    def history(self) -> list[Event]:
        tails = [self._tail.update(), *(tail.update() for tail in self.tails)]
        return merge([*tails, *(actor.events for actor in self.actors)])

    def _finish(self) -> None:
        self._finished = True
        if not self._healed:
            self.heal()
        live = [actor for actor in self.actors if actor.alive]
        for actor in live:
            actor.tell("stop")
            actor.tell("release")
        bound = 2 * self.timeout + SLACK_S
        if not wait_until(lambda: self._answered(live), bound + 1):
            self.note("somebody is not answered")
        self._survey(live, bound)
        value = self._client.get(f"/counter-{self.name}")[0]
        self.story.write("counter", name=self.name, value=int(value))

    def _answered(self, live: list[Actor]) -> bool:
        names = {actor.name for actor in live}
        requests = read_requests(self.history()).all
        mine = [request for request in requests if request.client in names]
        return all(request.answered < float("inf") for request in mine)

    def _survey(self, live: list[Actor], bound: float) -> None:
        """Leave it some time to go, then count what is left."""
        wait_until(lambda: not self.queue(), bound, 0.05)
        self.story.write("left", text="znodes in the lock's folder", value=len(self.queue()))
        wait_until(lambda: not self.arena.watches(self.name), bound / 2, 0.1)
        watches = self.arena.watches(self.name)
        self.story.write("left", text="watches on the servers", value=watches)
        for actor in live:
            found: dict[str, int] = {}

            def rests(actor: Actor = actor, found: dict[str, int] = found) -> bool:
                found.clear()
                found.update(actor.rests())
                return not any(n > 0 for n in found.values())

            wait_until(rests, bound, 0.1)  # one that closes may first try another server
            for what, count in found.items():
                self.story.write("left", text=f"{what} of {actor.name}", value=max(0, count))
