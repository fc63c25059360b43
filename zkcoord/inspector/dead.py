"""Dead letters: what could not be done, with its original bytes."""

from __future__ import annotations

from zkcoord.core import deadletters
from zkcoord.errors import NodeMissing
from zkcoord.inspector.servers import Servers
from zkcoord.inspector.views import DeadView
from zkcoord.queue import administration
from zkcoord.queue.deadletters import Buried, find_dead, list_dead


def letters(
    servers: Servers,
    queue: str,
    *,
    limit: int = 50,
    reason: str | None = None,
    task: str | None = None,
    timeout: float = 30.0,
) -> list[DeadView]:
    """The newest `limit` letters, newest first; only those with this reason, of this task."""
    topics = administration.describe_queue(servers.session, queue).topics
    found = list_dead(servers.kafka, topics, limit=limit, reason=reason, task=task, timeout=timeout)
    return [_view(buried) for buried in found]


def letter(servers: Servers, queue: str, which: str, *, timeout: float = 60.0) -> DeadView:
    """One letter by task id (the newest of that task) or by fact. Raises NodeMissing."""
    topics = administration.describe_queue(servers.session, queue).topics
    found = find_dead(servers.kafka, topics, which, timeout=timeout)
    if found is None:
        raise NodeMissing(
            f"queue {queue!r} has no dead letter {which!r}",
            hint=f"list them: zkcoord dead list {queue}",
        )
    return _view(found)


def _view(buried: Buried) -> DeadView:
    told = buried.letter
    return DeadView(
        where=f"{buried.partition}/{buried.offset}",
        fact=told.fact,
        id=told.id,
        task=told.task,
        reason=told.reason,
        error=told.error,
        attempts=told.attempts,
        source=deadletters.source(told.origin),
        submitted=told.origin.timestamp,
        died=told.last,
        key=told.key,
        value=told.value,
        headers=told.headers,
        size=told.size,
        sha256=told.sha256,
    )
