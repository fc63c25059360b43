"""Programs of the documentation, run against the shared stack with a queue of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pages import name_of

from zkcoord import Agent, KafkaConfig, Queue, Scheduler, Session
from zkcoord.config import AgentConfig, SchedulerConfig, SessionConfig
from zkcoord.inspector import Inspector
from zkcoord.kafka import Admin
from zkcoord.queue.administration import QueueDescription, create_queue


class Book:
    """One page's servers: a chroot and a namespace that no other page has.

    Attributes:
        names: what the page's programs have defined so far.
    """

    def __init__(self, zookeeper: str, kafka: str, namespace: str) -> None:
        self.zookeeper = zookeeper
        self.kafka = kafka
        self.namespace = namespace
        self.names: dict[str, Any] = {"__name__": "example"}
        self._stack = ExitStack()

    def close(self) -> None:
        """Stop what was started."""
        self._stack.close()

    def addressed(self, text: str) -> str:
        """A text with the addresses and topics of this page."""
        text = text.replace("localhost:2181", self.zookeeper).replace("localhost:9092", self.kafka)
        return re.sub(r"\bzkcoord\.(\w+)\.(critical|high|normal|low|dead|reader)\b",
                      rf"{self.namespace}.\1.\2", text)  # fmt: skip

    def run(self, page: Path, text: str, line: int) -> None:
        """Execute one program; a failure points to the page's own line."""
        source = "\n" * (line - 1) + self.addressed(text)
        exec(compile(source, name_of(page), "exec"), self.names)

    def serve(self, queue: str) -> None:
        """Create a queue and run a scheduler for it."""
        description = QueueDescription(queue=queue, namespace=self.namespace)
        with Session(self.zookeeper) as session, Admin(KafkaConfig(bootstrap=self.kafka)) as admin:
            create_queue(session, admin, description)
        scheduler = Scheduler(
            queue,
            kafka=self.kafka,
            zookeeper=self.zookeeper,
            config=SchedulerConfig(),
            session=SessionConfig(),
        )
        scheduler.start()
        self._stack.callback(scheduler.stop)

    def add_agent(self, queue: Queue | None = None) -> None:
        """Run an agent for the page's own queue, or for one that knows the task `send`."""
        served = queue
        if served is None:
            served = Queue("mail", kafka=self.kafka, zookeeper=self.zookeeper)
            served.task()(send)
        agent = Agent(served, config=AgentConfig(slots=4, drain_s=5))
        agent.start()
        self._stack.callback(agent.stop)

    @contextmanager
    def inspector(self) -> Iterator[Inspector]:
        """For what became of tasks."""
        with Inspector(
            zookeeper=self.zookeeper, kafka=KafkaConfig(bootstrap=self.kafka)
        ) as inspector:
            yield inspector


def send(to: str, template: str) -> str:
    """The task that most pages talk of."""
    return f"{template} sent to {to}"
