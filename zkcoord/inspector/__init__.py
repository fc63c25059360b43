"""One read API over ZooKeeper and Kafka, for the command line and for dashboards.

Nothing here writes, votes or takes part in a group: looking changes nothing. What needs Kafka is
imported when it is asked for, so that looking at a lock is quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from zkcoord.config import KafkaConfig, SessionConfig
from zkcoord.errors import NodeMissing, ZkcoordError
from zkcoord.inspector import contenders
from zkcoord.inspector.servers import Servers
from zkcoord.inspector.views import (
    STATES,
    TERMINAL,
    AgentView,
    ClassView,
    ContenderView,
    DeadView,
    ElectionView,
    FactView,
    LockView,
    MemberView,
    NodeView,
    PermitView,
    PoolView,
    QueueDetail,
    QueueView,
    SemaphoreView,
    SlotView,
    TaskHistory,
    TaskView,
    TopicView,
)

__all__ = [
    "STATES",
    "TERMINAL",
    "AgentView",
    "ClassView",
    "ContenderView",
    "DeadView",
    "ElectionView",
    "FactView",
    "Inspector",
    "LockView",
    "MemberView",
    "NodeView",
    "PermitView",
    "PoolView",
    "QueueDetail",
    "QueueView",
    "SemaphoreView",
    "Servers",
    "SlotView",
    "TaskHistory",
    "TaskView",
    "TopicView",
]


class Inspector:
    """Looks at queues, agents, tasks, dead letters, and at what coordinates processes.

    Connects when first needed: what only reads ZooKeeper never asks Kafka. Not thread-safe.

    Args:
        zookeeper: connect string with chroot; None when only Kafka is to be asked.
        kafka: how to reach Kafka; None when only ZooKeeper is to be asked.
        session_config: of the ZooKeeper session.
        broken: by ``zookeeper`` and ``kafka``: what to raise instead of asking a server that is
            known to have ended.

    Every method raises EnsembleUnavailable or BrokerUnavailable when a server that it needs does
    not answer in time, and ConfigError when nobody said where that server is.
    """

    def __init__(
        self,
        *,
        zookeeper: str | None = None,
        kafka: KafkaConfig | None = None,
        session_config: SessionConfig | None = None,
        broken: Mapping[str, ZkcoordError] | None = None,
    ) -> None:
        self.servers = Servers(
            zookeeper=zookeeper, kafka=kafka, session_config=session_config, broken=broken
        )

    def queues(self) -> list[QueueView]:
        """All queues, by name; asks ZooKeeper only."""
        from zkcoord.inspector import queues

        return queues.queues(self.servers)

    def queue(self, name: str) -> QueueDetail:
        """One queue with agents, topics and settings. Raises NodeMissing."""
        from zkcoord.inspector import queues

        return queues.detail(self.servers, name)

    def agents(self, queue: str | None = None) -> list[AgentView]:
        """The agents of one queue, or of all. Raises NodeMissing for a queue that is not there."""
        from zkcoord.inspector import queues

        if queue is not None:
            queues.queue(self.servers, queue)
            return queues.agents(self.servers.session, queue)
        names = [view.name for view in self.queues()]
        return [agent for name in names for agent in queues.agents(self.servers.session, name)]

    def locks(self) -> list[LockView]:
        """All locks under ``/locks``, free ones too."""
        return contenders.locks(self.servers.session)

    def lock(self, name: str) -> LockView:
        """One lock; a name that was never used is a free lock."""
        return contenders.lock(self.servers.session, name)

    def semaphores(self) -> list[SemaphoreView]:
        """All semaphores under ``/semaphores``."""
        from zkcoord.inspector import permits

        return permits.semaphores(self.servers.session)

    def semaphore(self, name: str) -> SemaphoreView:
        """One semaphore; one that nobody uses has no permits. Raises NodeForeign."""
        from zkcoord.inspector import permits

        return permits.semaphore(self.servers.session, name)

    def pools(self) -> list[PoolView]:
        """All pools under ``/pools``."""
        from zkcoord.inspector import permits

        return permits.pools(self.servers.session)

    def pool(self, name: str) -> PoolView:
        """One pool; one that nobody uses has no slots. Raises NodeForeign."""
        from zkcoord.inspector import permits

        return permits.pool(self.servers.session, name)

    def members(self, path: str) -> list[MemberView]:
        """The members of the group at `path`, by name; none when nobody ever joined it."""
        from zkcoord.inspector import members

        return members.members(self.servers.session, path)

    def elections(self) -> list[ElectionView]:
        """All elections under ``/elections``, and those of the queues as ``queue/NAME``."""
        session = self.servers.session
        names = contenders.names(session, contenders.ELECTIONS)
        names += [f"queue/{view.name}" for view in self.queues()]
        found = []
        for name in names:
            try:
                found.append(contenders.election(session, name))
            except NodeMissing:
                continue  # a queue that no scheduler ever served
        return found

    def election(self, name: str) -> ElectionView:
        """One election; ``queue/NAME`` is that of a queue. Raises NodeMissing."""
        return contenders.election(self.servers.session, name)

    def node(self, path: str) -> NodeView:
        """A znode with its value. Raises NodeMissing, AccessDenied."""
        from zkcoord.inspector import nodes

        return nodes.node(self.servers.session, path)

    def tree(
        self, path: str, *, depth: int, limit: int, timeout: float = 30.0
    ) -> tuple[list[NodeView], bool]:
        """A znode and what lies below it, and whether some were left out. Raises NodeMissing."""
        from zkcoord.inspector import nodes

        return nodes.tree(self.servers.session, path, depth=depth, limit=limit, timeout=timeout)

    def task(self, queue: str, task_id: str, *, timeout: float = 60.0) -> TaskHistory:
        """A task and its history from the log. Raises NodeMissing when nothing mentions it."""
        from zkcoord.inspector import tasks

        return tasks.history(self.servers, queue, task_id, timeout=timeout)

    def task_end(
        self, queue: str, task_id: str, *, wait: float, timeout: float = 60.0
    ) -> TaskHistory:
        """As :meth:`task`, waiting up to `wait` seconds for its end. Raises ResultTimeout."""
        from zkcoord.inspector import tasks

        return tasks.wait_for_end(self.servers, queue, task_id, wait=wait, timeout=timeout)

    def tasks(self, queue: str, *, timeout: float = 60.0) -> tuple[list[TaskView], int]:
        """All tasks the log still knows, latest change last, and how many were left out."""
        from zkcoord.inspector import tasks

        return tasks.tasks(self.servers, queue, timeout=timeout)

    def dead_letters(
        self,
        queue: str,
        *,
        limit: int = 50,
        reason: str | None = None,
        task: str | None = None,
        timeout: float = 30.0,
    ) -> list[DeadView]:
        """The newest letters, newest first; only those with this reason, of this task."""
        from zkcoord.inspector import dead

        return dead.letters(
            self.servers, queue, limit=limit, reason=reason, task=task, timeout=timeout
        )

    def dead_letter(self, queue: str, which: str, *, timeout: float = 60.0) -> DeadView:
        """One letter, by task id or by fact. Raises NodeMissing."""
        from zkcoord.inspector import dead

        return dead.letter(self.servers, queue, which, timeout=timeout)

    def close(self) -> None:
        """Close the connections."""
        self.servers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
