"""A client process: asks for a lock, holds it, works under it, and writes down what happens to it.

Its argument is a JSON object (see `main`); a story tells it what to do over its standard input, one
command a line, and reads its journal. End of input: it closes its session and ends.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import queue
import random
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos.programs.fenced_register import store
from tests.chaos.programs.flavours import FLAVOURS, Client, Grant
from tests.chaos.programs.protections import MUTANTS, OTHERS
from tests.histories.events import Journal, Kind, now
from zkcoord.core import ordering

LOOK_S = 0.02
TELL_S = 0.05


class Hold:
    """A grant, watched: as long as it is believed that is journalled, and its loss too."""

    def __init__(self, journal: Journal, requests: list[int], grant: Grant) -> None:
        self.requests = requests  # one for each lock that is held by the grant
        self.grant = grant
        self._journal = journal
        self._told = 0.0
        self._over = False
        self._turn = threading.Lock()

    def look(self) -> bool:
        """Whether it is believed."""
        with self._turn:
            if self._over:
                return False
            moment = now()
            if self.grant.believed():
                if moment >= self._told + TELL_S:
                    self._told = moment
                    until = self.grant.until()
                    self._tell("believe", at=moment, until=until)
                return True
            self._over = True
            self._tell("lost")
            return False

    def end(self) -> bool:
        """From now on nothing is believed; whether it was until now."""
        with self._turn:
            if self._over:
                return False
            self._over = True
            self._tell("release")
            return True

    def released(self) -> None:
        """The release is confirmed."""
        self._tell("released")

    def _tell(self, kind: Kind, **fields: float) -> None:
        for request in self.requests:
            self._journal.write(kind, request=request, **fields)


class Contender:
    """See the module."""

    def __init__(self, how: dict[str, Any]) -> None:
        self._how = how
        self._name: str = how["name"]
        self._journal = Journal(Path(how["journal"]), how["client"])
        self._random = random.Random(how["seed"])
        self._client: Client = FLAVOURS[how["flavour"]](
            how["hosts"], how["timeout"], self._name, how
        )
        self._count = 0
        self._hold: Hold | None = None
        self._value = 0
        self._stop = threading.Event()
        self._busy = threading.Event()
        self._leaving = threading.Event()
        self._work: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        logging.getLogger("zkcoord").addHandler(_Blunders(self._journal))
        for run in (self._serve, self._believe, self._ask):
            threading.Thread(target=run, daemon=True).start()
        self._journal.write(
            "start",
            session=self._client.session,
            until=self._client.timeout,
            counts=self._client.counts(),
        )

    # --- commands ---------------------------------------------------------------------------------

    def obey(self, words: list[str]) -> None:
        """What is done at once is done here; the rest one after the other by the server."""
        if words[0] in {"stop", "busy", "cancel", "rest", "fork", "abuse", "password", "order"}:
            getattr(self, "_" + words[0] + "_now")(*words[1:])
        else:
            self._work.put(words)

    def _serve(self) -> None:
        while True:
            words = self._work.get()
            try:
                getattr(self, "_do_" + words[0])(*words[1:])
            except self._client.errors as error:
                self._journal.write("note", text=f"{words[0]}: {type(error).__name__} {error}")

    def _stop_now(self) -> None:
        self._stop.set()

    def _busy_now(self) -> None:
        self._busy.set()

    def _cancel_now(self) -> None:
        self._client.cancel()

    def _abuse_now(self, word: str) -> None:
        self._client.abuse(word)

    def _order_now(self) -> None:
        """In which order it takes nodes of these numbers."""
        numbers = [2**31 - 2, 2**31 - 1, -(2**31), 1 - 2**31]
        names = [f"{ordering.prefix('x', 1, 'a')}{number:010d}" for number in reversed(numbers)]
        found = [contender.sequence for contender in ordering.in_order(names)]
        self._journal.write("note", text=f"order {found == numbers}")

    def _password_now(self) -> None:
        """What somebody needs to end the session by force."""
        self._journal.write("note", text=f"password {self._client.password().hex()}")

    def _rest_now(self) -> None:
        self._journal.write("rest", counts=self._client.counts())

    def _fork_now(self) -> None:
        """A child looks at what its parent holds, tries to use it, and leaves."""
        hold = self._hold
        with self._journal.turn:
            child = os.fork()
        if child == 0:
            try:
                believed = hold is not None and hold.grant.believed()
                text = "told: a forked child believes that it holds" if believed else ""
                self._journal.write("claim" if believed else "note", text=text or "forked")
                self._client.cancel()
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    def _do_acquire(self, limit: str = "") -> None:
        self._acquire(float(limit) if limit else None)

    def _invoke(self, limit: float | None) -> list[int]:
        """Write down that it asks; the numbers of its requests, one for each lock."""
        names = [self._name]
        mode = self._how.get("mode", "x")
        if mode == "m":
            chosen = self._random.sample(range(self._how["several"]), 3)
            names, mode = [f"{self._name}.{number}" for number in chosen], "x"
            self._client.choose(names)
        requests = []
        for name in names:
            self._count += 1
            requests.append(self._count)
            weight = self._how.get("weight", 1)
            shape = {"name": name, "mode": mode, "weight": weight, "until": limit or 0}
            self._journal.write("invoke", request=self._count, **shape)
        return requests

    def _granted(self, requests: list[int], grant: Grant) -> Hold:
        until = grant.until()
        said = {"token": grant.token, "until": until, "session": grant.session}
        for request in requests:
            self._journal.write("ok", request=request, **said)
        return Hold(self._journal, requests, grant)

    def _acquire(self, limit: float | None) -> Hold | None:
        requests = self._invoke(limit)
        try:
            grant = self._client.acquire(limit)
        except Exception as error:
            for request in requests:
                self._journal.write("fail", request=request, text=type(error).__name__)
            return None
        self._hold = self._granted(requests, grant)
        return self._hold

    def _do_crowd(self, size: str) -> None:
        """So many requests at once; each lets go as soon as it is granted."""
        for _ in range(int(size)):
            self._client.queue_up(partial(self._pass_through, self._invoke(None)))

    def _pass_through(self, requests: list[int], grant: Grant) -> None:
        hold = self._granted(requests, grant)
        hold.end()
        grant.let_go(hold.released)

    def _do_release(self) -> None:
        hold, self._hold = self._hold, None
        if hold is None:
            return
        if not hold.end():
            return
        if hold.grant.release():
            hold.released()

    def _do_read(self) -> None:
        self._value = self._client.read(self._name)
        self._journal.write("note", text=f"read {self._value}")

    def _do_write(self) -> None:
        hold = self._hold
        if hold is not None:
            value = self._value + 1
            guarded = self._how["guarded"]
            self._journal.write("write", name=self._name, value=value, text="begun")
            outcome = self._client.write(self._name, value, hold.grant, guarded=guarded)
            self._journal.write("write", name=self._name, value=value, text=outcome)

    def _do_store(self) -> None:
        hold = self._hold
        if hold is not None:
            path = Path(self._how["register"])
            store(path, hold.grant.token, self._journal, fenced=self._how["guarded"])

    def _do_warm(self, count: str) -> None:
        for _ in range(int(count)):
            self._client.read(self._name)
        self._journal.write("note", text="warm")

    def _do_work(self, hold_s: str, limit: str = "") -> None:
        """Hold, add one, hold a little, let go; again and again until told to stop."""
        while not self._stop.is_set():
            hold = self._acquire(float(limit) if limit else None)
            if hold is None:
                self._stop.wait(0.05)
                continue
            try:
                self._do_read()
                self._leaving.wait(self._random.uniform(0, float(hold_s)))
                if hold.look() and self._how.get("mode", "x") in {"x", "w"}:
                    self._do_write()
                    self._do_store()
                self._do_release()
            except self._client.errors as error:
                self._journal.write("note", text=f"work: {type(error).__name__}")
                self._do_release_quietly()
            self._stop.wait(self._random.uniform(0, 0.05))

    def _do_release_quietly(self) -> None:
        try:
            self._do_release()
        except self._client.errors as error:
            self._journal.write("note", text=f"release: {type(error).__name__}")

    def _do_leak(self, rounds: str) -> None:
        """Many acquires that come to nothing, while somebody else holds. The first tenth fills
        what stays; behind it memory must not grow."""
        first = int(rounds) // 10
        self._client.come_to_nothing(first)
        before = _resident_kib()
        self._client.come_to_nothing(int(rounds) - first)
        self._journal.write("note", value=_resident_kib() - before, text="leaked")

    # --- threads ----------------------------------------------------------------------------------

    def _believe(self) -> None:
        while not self._leaving.wait(LOOK_S):
            hold = self._hold
            if hold is not None:
                hold.look()

    def _ask(self) -> None:
        self._busy.wait()
        while not self._leaving.wait(0.2):
            self._client.ask()

    def leave(self) -> None:
        self._leaving.set()
        self._client.close()
        self._journal.write("end")


def _resident_kib() -> int:
    """Of this process, once what is not used any more is gone."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 10


class _Blunders(logging.Handler):
    """A mutant that does not fit the code any more convicts nobody: the story says so."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.ERROR)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, (AssertionError, AttributeError, LookupError, NameError, TypeError)):
            self._journal.write("claim", text=f"story: {type(error).__name__} {error}")


def main() -> None:
    """Keys: client, name, journal, register, hosts, timeout, flavour, mutant, guarded, seed; rate
    of a clock that drifts; for other recipes than the lock mode, weight, permits, several."""
    how = json.loads(sys.argv[1])
    if how["mutant"]:
        (MUTANTS | OTHERS)[how["mutant"]]()
    contender = Contender(how)
    for line in sys.stdin:
        contender.obey(line.split())
    contender.leave()
    os._exit(0)  # whoever is stuck in a call stays there


if __name__ == "__main__":
    main()
