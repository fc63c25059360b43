"""Queues: topics as they must be, a leader and a standby, fresh pressure, agents and inboxes."""

from __future__ import annotations

import time
from collections.abc import Iterator

from zkcoord.errors import ConfigError
from zkcoord.inspector import contenders
from zkcoord.inspector import queues as queue_views
from zkcoord.inspector.checks.ensemble import clock
from zkcoord.inspector.checks.finding import FAIL, OK, WARN, Finding
from zkcoord.inspector.servers import Servers
from zkcoord.inspector.views import AgentView, QueueView
from zkcoord.queue import administration, topics
from zkcoord.queue.administration import QueueDescription

STALE_S = 30.0
OLD_HOLDER_S = 3600.0
INBOXES_SHARE = 0.8


def examine(servers: Servers) -> Iterator[Finding]:
    """All findings about queues and locks."""
    names = administration.list_queues(servers.session)
    if not names:
        advice = "create one: zkcoord queue create NAME"
        yield Finding(status=OK, check="queues", observed="there is none", advice=advice)
    for name in names:
        try:
            description = administration.describe_queue(servers.session, name)
        except ConfigError as error:
            check, advice = f"queue {name}", error.hint
            yield Finding(status=FAIL, check=check, observed=str(error.args[0]), advice=advice)
            continue
        yield from _queue(servers, description)
    yield from _locks(servers)


def _queue(servers: Servers, description: QueueDescription) -> Iterator[Finding]:
    name = description.queue
    wrong = topics.check(servers.admin, description.topics)
    for mismatch in wrong:
        missing = mismatch.found == "missing"
        advice = (
            f"zkcoord queue create {name} creates what is missing"
            if missing
            else f"kafka-configs.sh --alter --add-config {mismatch.what}={mismatch.wanted}"
        )
        check = f"queue {name} topics"
        yield Finding(status=FAIL, check=check, observed=str(mismatch), advice=advice)
    if not wrong:
        seen = f"all {len(description.topics.all)} as they must be"
        yield Finding(status=OK, check=f"queue {name} topics", observed=seen)
    view = queue_views.queue(servers, name)
    yield _leader(view)
    if view.leader is not None:
        yield from _pressure(servers, view)
    yield from _agents(servers, view)


def _leader(view: QueueView) -> Finding:
    check = f"queue {view.name} scheduler"
    advice = f"run one: zkcoord scheduler run {view.name}"
    if view.leader is None:
        return Finding(status=FAIL, check=check, observed="nobody leads", advice=advice)
    seen = f"{view.leader.name} leads in term {view.leader.token}, {len(view.standbys)} stand by"
    if not view.standbys:
        advice = f"nobody takes over when it dies; run another: zkcoord scheduler run {view.name}"
        return Finding(status=WARN, check=check, observed=seen, advice=advice)
    return Finding(status=OK, check=check, observed=seen)


def _pressure(servers: Servers, view: QueueView) -> Iterator[Finding]:
    check = f"queue {view.name} pressure"
    if view.pressure_age is None:
        advice = "its leader has not published yet: see the leader's log"
        yield Finding(status=WARN, check=check, observed="never published", advice=advice)
        return
    seen = f"published {view.pressure_age:.1f} s ago, verdict {view.verdict}"
    if view.pressure_age > STALE_S:
        advice = "submitters have become cautious; look at the leader's log and host"
        yield Finding(status=FAIL, check=check, observed=seen, advice=advice)
        return
    yield Finding(status=OK, check=check, observed=seen)
    published = queue_views.pressure(servers.session, view.name)
    if published is not None:
        now = time.time()
        yield clock(published.at, now - STALE_S, now, f"the leader of queue {view.name}")


def _agents(servers: Servers, view: QueueView) -> Iterator[Finding]:
    check = f"queue {view.name} agents"
    agents: list[AgentView] = queue_views.agents(servers.session, view.name)
    slots = sum(agent.slots for agent in agents)
    if not agents:
        advice = f"run one: zkcoord agent run {view.name} --handlers app:queue"
        yield Finding(status=WARN, check=check, observed="there is none", advice=advice)
        return
    partitions = len(servers.admin.offsets(_inbox(servers, view)))
    seen = f"{len(agents)} agents with {slots} slots, {partitions} inbox partitions"
    if len(agents) > INBOXES_SHARE * partitions:
        advice = "a new agent adds a partition where it may; else add some to the inbox topic"
        yield Finding(status=WARN, check=check, observed=seen, advice=advice)
    else:
        yield Finding(status=OK, check=check, observed=seen)


def _inbox(servers: Servers, view: QueueView) -> str:
    return administration.describe_queue(servers.session, view.name).topics.inbox


def _locks(servers: Servers) -> Iterator[Finding]:
    """A lock that is held for long while others wait is the usual reason for a standstill."""
    views = contenders.locks(servers.session)
    stuck = [
        view
        for view in views
        if view.holder is not None and view.waiters and view.holder.age > OLD_HOLDER_S
    ]
    for view in stuck:
        if view.holder is not None:
            seen = f"held for {view.holder.age / 3600:.1f} h by {view.holder.name}, "
            seen += f"{len(view.waiters)} wait"
            advice = f"look at the holder: zkcoord lock show {view.name}"
            yield Finding(status=WARN, check=f"lock {view.name}", observed=seen, advice=advice)
    if not stuck:
        seen = f"{len(views)} known, none is held for long while others wait"
        yield Finding(status=OK, check="locks", observed=seen)
