"""Waiting for the end of a task, and why it does not come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zkcoord.core.records import Pressure
    from zkcoord.errors import ResultTimeout, ZkcoordError
    from zkcoord.inspector import Inspector
    from zkcoord.queue.handle import Queue
    from zkcoord.queue.ticket import Ticket

UNFINISHED = "unfinished"


def wait_for(
    handle: Queue, ticket: Ticket[Any], wait: float, document: dict[str, Any]
) -> ZkcoordError | None:
    """Put the task's end into the document; the error when it did not succeed in time."""
    from zkcoord.errors import ResultTimeout, TaskFailed

    document["result"] = None
    try:
        document["result"] = ticket.result(timeout=wait)
    except TaskFailed as error:
        document |= {"state": error.state, "reason": error.reason, "error": str(error.args[0])}
        return error
    except ResultTimeout as error:
        _say_if_paused(error, handle.pressure(), handle.name)
        document |= {"state": UNFINISHED, "error": str(error.args[0])}
        return error
    document["state"] = "succeeded"
    return None


def explain(error: ResultTimeout, inspector: Inspector, queue: str) -> None:
    """Add to a wait that was in vain that the queue is paused, when that is known."""
    from zkcoord.errors import CoordinationError
    from zkcoord.inspector.queues import pressure

    try:
        published = pressure(inspector.servers.session, queue)
    except CoordinationError:  # then it is not known, and the error stays as it is
        return
    _say_if_paused(error, published, queue)


def _say_if_paused(error: ResultTimeout, published: Pressure | None, queue: str) -> None:
    if published is not None and published.paused:
        error.args = (f"{error.args[0]}: queue {queue} is paused", *error.args[1:])
        rest = error.hint.removeprefix("it goes on; ")
        error.hint = f"it goes on once the queue is resumed; {rest}"
