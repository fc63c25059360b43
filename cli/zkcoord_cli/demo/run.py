"""The demo from start to report."""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from zkcoord.config import ClassConfig, KafkaConfig, QueueConfig, RetryPolicy, SessionConfig
from zkcoord.core.records import Priority
from zkcoord.errors import ConfigError, Rejected, StackError, ZkcoordError
from zkcoord.kafka import Admin
from zkcoord.local import Stack
from zkcoord.queue import topics as queue_topics
from zkcoord.queue.administration import QueueDescription, create_queue, queue_path
from zkcoord.queue.handle import Queue
from zkcoord.settings import Settings
from zkcoord.zk import Session
from zkcoord_cli.demo.burst import Burst, press
from zkcoord_cli.demo.fleet import Fleet
from zkcoord_cli.demo.live import Screen
from zkcoord_cli.demo.model import MODEL
from zkcoord_cli.demo.plan import FILES, VARIABLE, Plan
from zkcoord_cli.demo.summary import Outcome
from zkcoord_cli.demo.tail import LogTail
from zkcoord_cli.demo.texts import docstrings

SESSION_TIMEOUT_S = 4.0
START_S = 60.0
ENDPOINT_S = 5.0
QUEUE = QueueConfig(
    classes=(
        ClassConfig(budget_s=2.0, floor=0.40),
        ClassConfig(budget_s=5.0, floor=0.30),
        ClassConfig(budget_s=10.0, floor=0.10),
        ClassConfig(budget_s=2.0, floor=0.05),
    ),
    retry=RetryPolicy(attempts=20, delay_s=0.2, delay_s_max=10.0),
    timeout_s=60.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user may choose."""

    agents: int = 8
    tasks: int = 100
    seed: int = 1
    faults: bool = True
    base_url: str | None = None
    api_key_file: str | None = None
    model: str | None = None
    wait_s: float = 180.0


class Demo:
    """One run on given servers.

    Args:
        options: what the user chose.
        screen: where progress goes.
        zookeeper, kafka: the servers.
        folder: for logs, ledgers and the shared files.
    """

    def __init__(
        self, options: Options, screen: Screen, *, zookeeper: str, kafka: KafkaConfig, folder: Path
    ) -> None:
        self._options = options
        self._screen = screen
        self._folder = folder
        self._description = QueueDescription(
            queue=f"demo-{uuid.uuid4().hex[:8]}",
            namespace="zkcoord",
            inboxes=max(16, options.agents),
            config=QUEUE,
        )
        self._plan = Plan(
            queue=self._description.queue,
            namespace=self._description.namespace,
            zookeeper=zookeeper,
            kafka=kafka.bootstrap,
            folder=str(folder),
            base_url=options.base_url or "",
            model=options.model or MODEL,
            api_key_file=options.api_key_file,
        )
        self._kafka = kafka
        plan_file = folder / "plan.json"
        self._fleet = Fleet(
            folder,
            {
                "ZKCOORD_ZOOKEEPER": zookeeper,
                "ZKCOORD_KAFKA": kafka.bootstrap,
                "ZKCOORD_NAMESPACE": self._description.namespace,
                "ZKCOORD_SESSION_TIMEOUT_S": str(SESSION_TIMEOUT_S),
                VARIABLE: str(plan_file),
            },
        )
        self._plan_file = plan_file
        self._drawn_at = 0.0

    def run(self) -> Outcome:
        """Run the job; everything started here is stopped at the end.

        Raises:
            StackError: a process did not start or ended by itself.
            EnsembleUnavailable, BrokerUnavailable: the servers do not answer.
        """
        try:
            self._start_model()
            self._create_queue()
            self._start_fleet()
            with (
                Queue(
                    self._plan.queue,
                    kafka=self._kafka,
                    zookeeper=self._plan.zookeeper,
                    namespace=self._plan.namespace,
                ) as queue,
                LogTail(self._kafka, self._description.topics.log, self._plan.queue) as tail,
            ):
                self._wait_for_agents(queue, tail)
                return self._job(queue, tail)
        finally:
            self._fleet.stop()

    def tidy(self) -> None:
        """Remove the demo's queue from servers that outlive it; a failure is only said."""
        try:
            with (
                Session(self._plan.zookeeper, config=SessionConfig()) as session,
                Admin(self._kafka) as admin,
            ):
                queue_topics.delete(admin, self._description.topics)
                _remove(session, queue_path(self._plan.queue))
        except ZkcoordError as error:
            self._screen.say(f"the queue {self._plan.queue} was left behind: {error}")

    # --- start ------------------------------------------------------------------------------------

    def _start_model(self) -> None:
        if not self._options.base_url:
            seed = str(self._options.seed)
            self._fleet.start("model", "zkcoord_cli.demo.model", "--seed", seed)
            port = self._fleet.output("model", time.monotonic() + START_S)
            self._plan.base_url = f"http://127.0.0.1:{port}"
            self._screen.say(f"model endpoint at {self._plan.base_url}, 60 requests/s at most")
        self._plan_file.write_bytes(msgspec.json.encode(self._plan))

    def _create_queue(self) -> None:
        with (
            Session(self._plan.zookeeper, config=SessionConfig()) as session,
            Admin(self._kafka) as admin,
        ):
            create_queue(session, admin, self._description)
        self._screen.say(f"queue {self._plan.queue} created")

    def _start_fleet(self) -> None:
        queue = self._plan.queue
        for n in (1, 2):
            name = f"scheduler-{n}"
            self._fleet.start(name, "zkcoord_cli", "scheduler", "run", queue, "--name", name)
        for n in range(1, self._options.agents + 1):
            name = f"agent-{n}"
            ledger = str(self._folder / f"{name}.ledger")
            self._fleet.start(
                name,
                *("zkcoord_cli", "agent", "run", queue, "--name", name, "--slots", "1"),
                *("--handlers", "zkcoord_cli.demo.work:queue", "--ledger", ledger),
            )
        self._screen.say(f"2 schedulers and {self._options.agents} agents started")

    def _wait_for_agents(self, queue: Queue, tail: LogTail) -> None:
        def all_there() -> bool:
            pressure = queue.pressure()
            return pressure is not None and pressure.slots >= self._options.agents

        if not self._until(all_there, tail, START_S):
            raise StackError(
                f"not all agents joined within {START_S:g} s",
                hint=f"their logs: {self._folder}",
            )
        self._screen.say("all agents joined")

    # --- the job ----------------------------------------------------------------------------------

    def _job(self, queue: Queue, tail: LogTail) -> Outcome:
        outcome = Outcome(tasks=self._options.tasks, agents=self._options.agents)
        texts = docstrings(self._options.tasks)
        rng = random.Random(self._options.seed)  # noqa: S311 - a mix of classes, not a secret
        began = time.time()
        for number, (name, text) in enumerate(texts):
            priority = rng.choices(list(Priority), weights=(1, 2, 4, 3))[0]
            outcome.submitted.append(self._submit(queue, (number, name, text), priority, outcome))
            self._draw(tail)
        self._screen.say(f"{len(texts)} tasks submitted")
        if self._options.faults:
            self._hurt(tail, outcome)
        self._until(lambda: _ended(tail, outcome.submitted), tail, self._options.wait_s)
        outcome.wall_s = time.time() - began
        self._screen.say("the tasks have ended; now a burst beyond capacity")
        burst: Burst = press(queue, lambda: self._draw(tail))
        outcome.burst = burst
        self._screen.say(
            "burst: " + ", ".join(f"{n} {kind}" for kind, n in sorted(burst.verdicts.items()))
        )
        self._until(lambda: _ended(tail, burst.ids), tail, self._options.wait_s)
        self._fleet.stop()
        outcome.history, outcome.voids = tail.history, tail.voids
        outcome.lives = dict(self._fleet.lives)
        outcome.read_ledgers(self._folder)
        outcome.examine_files([self._folder / file for file in FILES])
        return outcome

    def _submit(
        self,
        queue: Queue,
        arguments: tuple[int, str, str],
        priority: Priority,
        outcome: Outcome,
    ) -> str:
        while True:
            try:
                ticket = queue.submit_raw("summarise", arguments, priority=priority, result=False)
            except Rejected as refusal:
                outcome.verdicts["reject"] += 1
                time.sleep(refusal.retry_after)
            else:
                outcome.verdicts[ticket.verdict.kind] += 1
                return ticket.id

    def _hurt(self, tail: LogTail, outcome: Outcome) -> None:
        """SIGKILL one agent and then the leading scheduler, in the middle of the work."""
        total = self._options.tasks
        self._until(lambda: _count_ended(tail) >= total * 0.25, tail, self._options.wait_s)
        victim = f"agent-{self._options.agents}"
        outcome.agent_killed_at = self._fleet.kill(victim)
        self._screen.say(f"SIGKILL to {victim}")
        self._until(lambda: _count_ended(tail) >= total * 0.5, tail, self._options.wait_s)
        leader = tail.history.terms[-1][1]
        outcome.leader_killed_at = self._fleet.kill(leader)
        self._screen.say(f"SIGKILL to {leader}, the leader: nobody dispatches until the next leads")
        terms = len(tail.history.terms)
        self._until(lambda: len(tail.history.terms) > terms, tail, self._options.wait_s)
        if len(tail.history.terms) > terms:
            gap = time.time() - outcome.leader_killed_at
            self._screen.say(f"{tail.history.terms[-1][1]} leads, {gap:.1f} s later")

    # --- waiting ----------------------------------------------------------------------------------

    def _until(self, condition: Callable[[], bool], tail: LogTail, timeout: float) -> bool:
        """Wait for `condition` and keep the view alive.

        Raises:
            StackError: a process ended by itself.
        """
        deadline = time.monotonic() + timeout
        while not condition():
            if dead := self._fleet.dead():
                log = self._fleet.log(dead[0])
                raise StackError(f"{', '.join(dead)} ended unasked", hint=f"the log: {log}")
            if tail.error is not None:
                raise tail.error
            if time.monotonic() > deadline:
                return False
            self._draw(tail)
            tail.wait(lambda _: False, 0.02)
        return True

    def _draw(self, tail: LogTail) -> None:
        if time.monotonic() - self._drawn_at >= 0.1:
            self._drawn_at = time.monotonic()
            lives = [(name, end is None) for name, (_, end) in self._fleet.lives.items()]
            self._screen.show(tail.look(), lives)


def _remove(session: Session, path: str) -> None:
    """Remove a znode and all below it."""
    for name in session.nodes.children(path):
        _remove(session, f"{path}/{name}")
    session.nodes.delete(path)


def _count_ended(tail: LogTail) -> int:
    return sum(bool(story.terminals) for story in list(tail.history.stories.values()))


def _ended(tail: LogTail, ids: list[str]) -> bool:
    stories = tail.history.stories
    return all(i in stories and stories[i].terminals for i in ids)


def check_endpoint(base_url: str) -> None:
    """Whether somebody listens at `base_url`.

    Raises:
        ConfigError: it is no http or https URL.
        StackError: nothing answers there.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--base-url {base_url!r}: must look like https://host[:port][/path]")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname, port), timeout=ENDPOINT_S).close()
    except OSError as error:
        raise StackError(
            f"nothing answers at {base_url}: {error}", hint="check --base-url and the network"
        ) from error


def run_demo(
    options: Options, screen: Screen, *, settings: Settings, folder: Path | None = None
) -> Outcome:
    """Run the demo on the servers that `settings` name, else on a stack of its own.

    Args:
        options: what the user chose.
        screen: where progress goes.
        settings: where servers are.
        folder: kept, when given; otherwise a temporary one, deleted when the run was sound.

    Raises:
        StackError: servers or processes did not start; logs are kept and named.
        CoordinationError, StreamError: the servers do not answer.
    """
    if options.base_url is not None:
        check_endpoint(options.base_url)
    try:
        kept = folder if folder is not None else Path(tempfile.mkdtemp(prefix="zkcoord-demo-"))
        kept.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StackError(
            f"the folder for logs and files cannot be made: {error}", hint="name another: --folder"
        ) from error
    sound = False
    try:
        with contextlib.ExitStack() as opened:
            if settings.zookeeper is None and settings.kafka is None:
                screen.say("starting a local stack: ZooKeeper and Kafka")
                stack = opened.enter_context(Stack())
                zookeeper, kafka = stack.zookeeper, KafkaConfig(bootstrap=stack.kafka)
                screen.say("the local stack answers")
            else:
                zookeeper, kafka = settings.need_zookeeper(), settings.need_kafka()
            demo = Demo(options, screen, zookeeper=zookeeper, kafka=kafka, folder=kept)
            opened.callback(demo.tidy)
            outcome = demo.run()
            sound = outcome.sound
            return outcome
    finally:
        if folder is None and sound:
            shutil.rmtree(kept, ignore_errors=True)
        else:
            screen.say(f"logs, ledgers and shared files: {kept}")
