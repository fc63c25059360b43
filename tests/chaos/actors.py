"""The client processes of a story, and the lines on which they reach the ensemble."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from tests.chaos.arena import Arena, wait_until
from tests.chaos.interposing import interposer
from tests.histories.events import Event, Journal, Tail
from zkcoord.local import Proxy
from zkcoord.local.servers import ZooKeeperServer

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 30.0


class Stuck(Exception):
    """A story cannot go on: what must come did not."""


class Line:
    """One client's way to all servers: a proxy in front of each; verbs hurt them all.

    Args:
        detours: what stands between the proxy and some servers.
    """

    def __init__(self, arena: Arena, detours: dict[ZooKeeperServer, str]) -> None:
        self._proxies = {
            server.number: Proxy(detours.get(server, server.address)).start()
            for server in arena.servers
        }

    @property
    def hosts(self) -> str:
        return ",".join(proxy.address for proxy in self._proxies.values())

    def to(self, server: ZooKeeperServer) -> Proxy:
        """The proxy in front of one server."""
        return self._proxies[server.number]

    def only(self, server: ZooKeeperServer) -> None:
        """From now on no other server can be reached."""
        for number, proxy in self._proxies.items():
            if number != server.number:
                proxy.refuse()
                proxy.cut()

    def _all(self, do: Callable[[Proxy], object]) -> None:
        for proxy in self._proxies.values():
            do(proxy)

    def blackhole(self, *, up: bool = True, down: bool = True) -> None:
        self._all(lambda proxy: proxy.blackhole(up=up, down=down))

    def cut(self) -> None:
        self._all(lambda proxy: proxy.cut())

    def refuse(self) -> None:
        self._all(lambda proxy: proxy.refuse())

    def delay(self, seconds: float) -> None:
        self._all(lambda proxy: proxy.delay(seconds))

    def heal(self) -> None:
        self._all(lambda proxy: proxy.heal())

    def cut_after(self, count: int, direction: Literal["up", "down"]) -> list[threading.Event]:
        return [proxy.cut_after(count, direction) for proxy in self._proxies.values()]

    def bytes(self, direction: Literal["up", "down"]) -> int:
        return sum(getattr(p, f"bytes_{direction}") for p in self._proxies.values())

    def close(self) -> None:
        self._all(lambda proxy: proxy.close())


class Actor:
    """A client process. Verbs that tell it something return at once; those that wait raise
    :class:`Stuck` when what must come does not, and say so in the history."""

    def __init__(
        self, how: dict[str, Any], line: Line | None, story: Journal, clock: Path | None = None
    ) -> None:
        self.name: str = how["client"]
        self.how = how
        self._line = line
        self._story = story
        self._tail = Tail(Path(how["journal"]))
        self.paused = False
        self.killed = False
        self._asked = 0
        self.hold_s = 0.0  # for how long at most while it works
        environment = dict(os.environ)
        if clock is not None:
            environment |= {"LD_PRELOAD": str(interposer()), "FAULT_CLOCK": str(clock)}
        with Path(how["journal"]).with_suffix(".err").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.programs.contender", json.dumps(how)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=ROOT,
                env=environment,
                text=True,
            )
        self._wait("starts", lambda: self.has("start"), "story")

    # --- what is known of it ----------------------------------------------------------------------

    @property
    def line(self) -> Line:
        assert self._line is not None, "it reaches the servers directly"
        return self._line

    @property
    def alive(self) -> bool:
        return not self.killed and self._process.poll() is None

    @property
    def events(self) -> list[Event]:
        return self._tail.update()

    def last(self, *kinds: str) -> Event | None:
        """The last event of these kinds."""
        return next((e for e in reversed(self.events) if e.kind in kinds), None)

    def has(self, *kinds: str) -> bool:
        return self.last(*kinds) is not None

    def of_request(self, *kinds: str) -> Event | None:
        """What its last request came to, of these kinds."""
        found = self.last(*kinds)
        return found if found is not None and found.request == self._asked else None

    @property
    def session(self) -> int:
        event = self.last("ok", "start")
        return 0 if event is None else event.session

    @property
    def has_it(self) -> bool:
        """Whether it was granted its last request and has not heard of an end."""
        return bool(self.of_request("ok")) and not self.of_request("lost", "release")

    # --- telling it -------------------------------------------------------------------------------

    def tell(self, *words: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()

    def asks(self, limit: float | None = None) -> None:
        """It asks for the lock."""
        self._asked += 1
        self.tell("acquire", *([] if limit is None else [limit]))
        self._wait("asks", lambda: self.of_request("invoke"), "C4")

    def lets_go(self) -> None:
        """It gives the lock back, and that is confirmed."""
        self.tell("release")
        self._wait("lets go", lambda: self.of_request("released", "lost"), "C4")

    def works(self, hold_s: float = 0.02) -> None:
        """From now on it takes the lock again and again."""
        self.hold_s = hold_s
        self.tell("work", hold_s)

    def adds(self) -> None:
        """It adds one to the counter and writes its token into the register."""
        self.reads()
        self.writes()

    def reads(self) -> None:
        count = len(self.events)
        self.tell("read")
        self._wait("reads", lambda: any(e.kind == "note" for e in self.events[count:]), "C4")

    def writes(self) -> str:
        """The second half of adding: it writes what follows from what it read."""
        count = len(self.events)
        self.tell("write")
        self._wait("writes", lambda: _outcome(self.events[count:]), "C4")
        self.tell("store")
        self._wait("stores", lambda: any(e.kind == "store" for e in self.events[count:]), "C4")
        return _outcome(self.events[count:])

    # --- waiting for it ---------------------------------------------------------------------------

    def holds(self, within: float = PATIENCE_S) -> Event:
        """Wait until it is granted."""
        self._wait("is granted", lambda: self.of_request("ok", "fail"), "C4", within)
        event = self.of_request("ok", "fail")
        assert event is not None
        if event.kind == "fail":
            self._stuck("C4", f"is not granted but told {event.text}")
        return event

    def fails(self, within: float = PATIENCE_S) -> Event:
        """Wait until it is refused."""
        self._wait("is told", lambda: self.of_request("ok", "fail"), "C4", within)
        event = self.of_request("ok", "fail")
        assert event is not None
        return event

    def learns_that_it_lost(self, within: float = PATIENCE_S) -> None:
        self._wait("learns that it lost", lambda: self.of_request("lost"), "told", within)

    def says(self, text: str, within: float = PATIENCE_S) -> None:
        """Wait for a note."""
        noted = lambda: any(e.kind == "note" and e.text.startswith(text) for e in self.events)  # noqa: E731
        self._wait(f"says {text}", noted, "C4", within)

    def keeps_it(self, why: str) -> None:
        """It must not have lost what it was granted."""
        if not self.has_it:
            self._story.write("claim", text=f"kept: {self.name} lost its lease: {why}")

    def rests(self) -> dict[str, int]:
        """What it has now, beyond what it had at its start."""
        count = len(self.events)
        self.tell("rest")
        self._wait("rests", lambda: any(e.kind == "rest" for e in self.events[count:]), "C4")
        before, after = self.last("start"), self.last("rest")
        assert before is not None
        assert after is not None
        return {what: n - before.counts.get(what, 0) for what, n in after.counts.items()}

    def _wait(
        self, what: str, holds: Callable[[], object], rule: str, within: float = PATIENCE_S
    ) -> None:
        if not wait_until(lambda: holds() or not self.alive, within) or not holds():
            if not self.alive:  # a fault of the program, and no verdict about a lock
                self._stuck("story", f"{self.name}'s process has ended before it {what}")
            self._stuck(rule, f"not within {within:g} s: {self.name} {what}")

    def _stuck(self, rule: str, text: str) -> None:
        self._story.write("claim", text=f"{rule}: {text}")
        raise Stuck(text)

    # --- hurting it -------------------------------------------------------------------------------

    def pause(self) -> None:
        self.paused = True
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.paused = False
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.killed = True
        self._process.kill()
        self._process.wait(10)
        self._journal_killed()

    def _journal_killed(self) -> None:
        event = self._story.write("note", text=f"{self.name} is killed")
        self._tail.events.append(Event(event.at, self.name, "killed"))

    def ends(self) -> None:
        """Close its standard input, and wait; by force when that does not help."""
        if self.alive:
            self.resume()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(8)
        self._process.kill()
        self._process.wait(10)
        if self._line is not None:
            self._line.close()


def _outcome(events: list[Event]) -> str:
    """Of the first write that is over."""
    return next((e.text for e in events if e.kind == "write" and e.text != "begun"), "")
