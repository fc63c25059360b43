"""Queues: verdict, fill, depth and rates as the leader publishes them; leader, agents, topics."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from zkcoord.core.records import AgentInfo, ClassPressure, Pressure, Priority
from zkcoord.errors import ConfigError, NodeMissing
from zkcoord.inspector.contenders import read_children, standing
from zkcoord.inspector.servers import Servers, read_json
from zkcoord.inspector.views import (
    AgentView,
    ClassView,
    ContenderView,
    QueueDetail,
    QueueView,
    TopicView,
)
from zkcoord.queue import administration
from zkcoord.queue.administration import QueueDescription
from zkcoord.queue.topics import KINDS
from zkcoord.zk import Session

_WORSE = ("unknown", "accept", "slow", "reject")


def queue(servers: Servers, name: str) -> QueueView:
    """One queue, from ZooKeeper alone. Raises NodeMissing when it is not there."""
    session = servers.session
    return _view(session, administration.describe_queue(session, name), {})


def queues(servers: Servers) -> list[QueueView]:
    """All queues, from ZooKeeper alone, by name.

    One that is deleted meanwhile is left out; one whose description cannot be read says so in
    `problem` and does not hide the others.
    """
    found = []
    for name in administration.list_queues(servers.session):
        try:
            found.append(queue(servers, name))
        except NodeMissing:
            continue
        except ConfigError as error:
            found.append(_unreadable(name, str(error.args[0])))
    return found


def detail(servers: Servers, name: str) -> QueueDetail:
    """One queue with its agents, topics and settings; asks Kafka too."""
    session = servers.session
    description = administration.describe_queue(session, name)
    topics = _topics(servers, description)
    unread = {topic.kind: topic.records for topic in topics}
    settings = msgspec.to_builtins(description.config)
    settings["partitions"] = description.partitions
    return QueueDetail(
        queue=_view(session, description, unread),
        agents=agents(session, name),
        topics=topics,
        settings=settings,
    )


def pressure(session: Session, name: str) -> Pressure | None:
    """What the leader published last; None when nothing, or nothing that can be read."""
    try:
        data, _ = session.nodes.get(administration.pressure_path(name))
    except NodeMissing:
        return None
    found = read_json(data, Pressure)
    return found if isinstance(found, Pressure) else None


def agents(session: Session, name: str) -> list[AgentView]:
    """The agents of a queue, by partition. None when nobody ever claimed a partition."""
    folder = administration.inbox_path(name)
    try:
        claims = read_children(session, folder)
    except NodeMissing:
        return []
    now = time.time()
    found = []
    for claim, data, stat in claims:
        info = read_json(data, AgentInfo)
        if not claim.isdecimal() or not isinstance(info, AgentInfo):
            continue
        found.append(
            AgentView(
                queue=name,
                name=info.name,
                host=info.host,
                pid=info.pid,
                slots=info.slots,
                partition=int(claim),
                incarnation=stat.czxid,
                tasks=list(info.tasks),
                capabilities=list(info.capabilities),
                since=stat.ctime / 1000,
                age=max(0.0, now - stat.ctime / 1000),
                draining=info.draining,
            )
        )
    return sorted(found, key=lambda agent: agent.partition)


def schedulers(session: Session, name: str) -> list[ContenderView]:
    """The leader first, then the standbys in the order in which they would follow."""
    return standing(session, "election", administration.queue_path(name))


def _view(session: Session, description: QueueDescription, unread: Mapping[str, int]) -> QueueView:
    name = description.queue
    published = pressure(session, name)
    found = schedulers(session, name)
    classes = [
        _class(Priority(place), published, description, unread) for place in range(len(Priority))
    ]
    return QueueView(
        name=name,
        namespace=description.namespace,
        verdict=max((c.verdict for c in classes), key=_WORSE.index),
        classes=classes,
        paused=published.paused if published else False,
        slots=published.slots if published else 0,
        busy=published.busy if published else 0,
        pressure_age=max(0.0, time.time() - published.at) if published else None,
        pressure_term=published.term if published else None,
        leader=found[0] if found else None,
        standbys=found[1:],
        agents=len(agents(session, name)),
    )


def _unreadable(name: str, problem: str) -> QueueView:
    return QueueView(
        name=name,
        namespace="",
        verdict="unknown",
        classes=[],
        paused=False,
        slots=0,
        busy=0,
        pressure_age=None,
        pressure_term=None,
        leader=None,
        standbys=[],
        agents=0,
        problem=problem,
    )


def _class(
    priority: Priority,
    published: Pressure | None,
    description: QueueDescription,
    unread: Mapping[str, int],
) -> ClassView:
    config = description.config.classes[priority]
    now = published.classes[priority] if published else ClassPressure(verdict="unknown", fill=0.0)
    name = priority.name.lower()
    return ClassView(
        priority=name,
        verdict=now.verdict if now.verdict in _WORSE else "unknown",
        fill=now.fill,
        pace=now.pace,
        retry_after=now.retry_after,
        depth=now.depth,
        oldest=now.oldest,
        rate_in=now.rate_in,
        rate_out=now.rate_out,
        budget=config.budget_s,
        floor=config.floor,
        reserved_slots=config.reserved_slots,
        unread=unread.get(name),
    )


def _topics(servers: Servers, description: QueueDescription) -> list[TopicView]:
    found = []
    present = servers.admin.describe(description.topics.all)
    for kind, name in zip(KINDS, description.topics.all, strict=True):
        if name not in present:
            continue
        offsets = servers.admin.offsets(name)
        found.append(
            TopicView(
                kind=kind,
                name=name,
                partitions=len(offsets),
                records=sum(end - beginning for beginning, end in offsets.values()),
            )
        )
    return found
