"""Tasks: their state, history and results, read from a queue's log and checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator

from zkcoord.core.outputs import POSITION_KEY
from zkcoord.errors import NodeMissing, RecordsTrimmed, ResultTimeout
from zkcoord.inspector.history import LogScan
from zkcoord.inspector.servers import CLIENT_ID, Servers
from zkcoord.inspector.views import TaskHistory, TaskView
from zkcoord.kafka import BEGINNING, LogReader, read_compacted
from zkcoord.queue import administration
from zkcoord.queue.following import read_position, read_task
from zkcoord.queue.topics import Topics

READ_LIMIT = 500
TRIES = 3


def history(servers: Servers, queue: str, task_id: str, *, timeout: float) -> TaskHistory:
    """One task and its facts. Raises NodeMissing when neither log nor checkpoint mentions it."""
    topics = _topics(servers, queue)
    scan = LogScan(only=task_id)
    for _ in _scan(servers, topics, scan, timeout):
        pass
    return _told(scan, queue, task_id)


def wait_for_end(
    servers: Servers, queue: str, task_id: str, *, wait: float, timeout: float
) -> TaskHistory:
    """As :func:`history`, but follows the log up to `wait` seconds until the task has ended.

    Raises:
        ResultTimeout: it has not ended yet; it goes on.
        NodeMissing: nothing mentions it, also not at the end of the wait.
    """
    topics = _topics(servers, queue)
    scan = LogScan(only=task_id)
    deadline = time.monotonic() + wait
    for _ in _scan(servers, topics, scan, timeout, until=deadline):
        view = scan.tasks.get(task_id)
        if view is not None and view.is_terminal:
            break
    told = _told(scan, queue, task_id)
    if not told.task.is_terminal:
        raise ResultTimeout(
            f"task {task_id} of queue {queue!r} is {told.task.state} after {wait:g} s",
            hint=f"it goes on; see it with: zkcoord task show {queue} {task_id}",
        )
    return told


def tasks(servers: Servers, queue: str, *, timeout: float) -> tuple[list[TaskView], int]:
    """All tasks that log and checkpoint know, latest change last; how many were left out."""
    topics = _topics(servers, queue)
    scan = LogScan()
    for _ in _scan(servers, topics, scan, timeout):
        pass
    return sorted(scan.tasks.values(), key=lambda task: task.changed), scan.dropped


def _topics(servers: Servers, queue: str) -> Topics:
    return administration.describe_queue(servers.session, queue).topics


def _scan(
    servers: Servers, topics: Topics, scan: LogScan, timeout: float, until: float | None = None
) -> Iterator[None]:
    """Feed checkpoint and log to `scan`; a step per read. With `until`, go on to that moment."""
    deadline = time.monotonic() + timeout
    ended = _start(servers, topics, scan, timeout)
    with LogReader(servers.kafka, topics.log, client_id=CLIENT_ID, group=topics.group) as reader:
        for attempt in range(TRIES):
            try:
                for records in reader.read_to_end(max(0.01, deadline - time.monotonic())):
                    for record in records:
                        scan.feed(record.offset, record.value)
                    yield
                break
            except RecordsTrimmed:
                # The leader trims behind its history window while we read the oldest part.
                if attempt + 1 == TRIES:
                    raise
                reader.seek(BEGINNING)
        for task_id in ended:
            if (view := scan.tasks.get(task_id)) is not None and not view.is_terminal:
                del scan.tasks[task_id]  # its end is trimmed away, its tombstone not written yet
        yield
        while until is not None and (left := until - time.monotonic()) > 0:
            for record in reader.read(READ_LIMIT, min(left, 0.5)):
                scan.feed(record.offset, record.value)
            yield


def _start(servers: Servers, topics: Topics, scan: LogScan, timeout: float) -> list[str]:
    """Feed the checkpoint topic; the ids of tasks that stand there although they have ended."""
    table = read_compacted(
        servers.kafka,
        topics.checkpoint,
        client_id=CLIENT_ID,
        timeout=timeout,
        group=topics.group,
    )
    position = read_position(table.pop(POSITION_KEY, None))
    scan.start_with(map(read_task, table.values()))
    return [task_id for task_id, _ in position.ended] if position else []


def _told(scan: LogScan, queue: str, task_id: str) -> TaskHistory:
    view = scan.tasks.get(task_id)
    if view is None:
        raise NodeMissing(
            f"the log of queue {queue!r} does not mention task {task_id!r}",
            hint="it may not have been read yet, or it ended before the history window; "
            f"compare with: zkcoord queue show {queue}",
        )
    complete = any(fact.what in ("accepted", "rejected") for fact in scan.facts)
    return TaskHistory(task=view, facts=scan.facts, complete=complete)
