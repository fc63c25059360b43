"""Random kills of everything, seeded; the log, the inboxes and the agents' ledgers must agree.

``ZKCOORD_KILL_SEEDS`` and ``ZKCOORD_KILL_TASKS`` set how much: 2 seeds over 400 tasks by default,
20 over 5,000 for the long run.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.faults.fleet import Fleet, Process, fleet, wait_for
from zkcoord.config import QueueConfig
from zkcoord.local import Stack

SEEDS = int(os.environ.get("ZKCOORD_KILL_SEEDS", "2"))
TASKS = int(os.environ.get("ZKCOORD_KILL_TASKS", "400"))
SESSION_S = 3.0
PRIORITIES = ("critical", "high", "normal", "low")


class Chaos:
    """Hurts one thing at a time, and lets it come back."""

    def __init__(self, crew: Fleet, stack: Stack, rng: random.Random) -> None:
        self.crew = crew
        self.stack = stack
        self.rng = rng
        self.done: list[str] = []

    def start(self) -> None:
        for _ in range(2):
            self.scheduler()
        for _ in range(3):
            self.agent()

    def scheduler(self) -> None:
        self.crew.add_scheduler("", *self._timeout(), "--checkpoint-after", "1")

    def agent(self) -> None:
        self.crew.add_agent("", *self._timeout())

    def step(self) -> None:
        """One random deed."""
        kinds = ["scheduler", "agent", "broker", "zookeeper"]
        kind = self.rng.choices(kinds, weights=[4, 4, 1, 1])[0]
        if kind == "broker":
            self._server(self.stack.brokers[0], kind)
        elif kind == "zookeeper":
            self._server(self.stack.zookeepers[0], kind)
        elif kind == "agent":
            self._process(self.crew.agents, self.agent, kind)
        else:
            self._process(self.crew.schedulers, self.scheduler, kind)

    def _process(self, group: dict[str, Process], replace: object, kind: str) -> None:
        victim = self.rng.choice([p for p in group.values() if p.alive])
        deed = self.rng.choice(["kill", "pause", "blink", "stop"])
        self.done.append(f"{deed} {victim.name}")
        if deed == "kill":
            victim.kill()
        elif deed == "stop":
            victim.send(signal.SIGTERM)
        else:
            victim.pause()
            time.sleep(SESSION_S + 1.0 if deed == "pause" else 0.3)
            victim.resume()
            return
        self.scheduler() if kind == "scheduler" else self.agent()

    def _server(self, server: object, kind: str) -> None:
        self.done.append(f"restart {kind}")
        server.kill()  # type: ignore[attr-defined]
        time.sleep(self.rng.random())
        server.start()  # type: ignore[attr-defined]

    @staticmethod
    def _timeout() -> tuple[str, str]:
        return "--session-timeout", str(SESSION_S)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_task_ends_once_whatever_is_killed(
    own_stack: Stack, queue_name: str, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    with fleet(own_stack.kafka, own_stack.zookeeper + "/kills", queue_name, tmp_path) as crew:
        crew.create(QueueConfig(crashes_max=1000))
        chaos = Chaos(crew, own_stack, rng)
        chaos.start()
        crew.leader()
        ids: set[str] = set()
        plan = [(rng.choice(PRIORITIES), rng.random() * 0.1) for _ in range(TASKS // 20)]

        given_up = threading.Event()

        def submit() -> None:
            for n, (priority, seconds) in enumerate(plan):
                if given_up.is_set():
                    return
                got = crew.submit(20, seconds=seconds, priority=priority, prefix=f"{n}")
                ids.update(got)
                time.sleep(5 / len(plan))

        submitting = threading.Thread(target=submit)
        submitting.start()
        try:
            while submitting.is_alive():
                time.sleep(rng.random() * 1.5)
                chaos.step()
        finally:
            given_up.set()
            submitting.join()
        assert len(ids) == len(plan) * 20, "a submission failed"
        try:
            wait_for("all to end", lambda: crew.history_if_ended(ids), timeout=180)
            crew.check(ids)
        except AssertionError as error:
            live = sorted(ids - crew.history.ends.keys())[:20]
            raise AssertionError(
                f"seed {seed}: {chaos.done}: {error}; live: {live}; {crew.logs()}"
            ) from error
