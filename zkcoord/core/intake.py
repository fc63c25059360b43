"""Decide about records that come in from outside: submitted tasks and control records."""

from __future__ import annotations

from zkcoord.core import deadletters
from zkcoord.core.desk import EXPIRED, FACT_BYTES, TEXT_CHARS_MAX, Desk, weigh_text
from zkcoord.core.inputs import ControlRecord, Inputs, Misread
from zkcoord.core.records import (
    Cancelled,
    Died,
    Duplicate,
    Origin,
    Paused,
    Priority,
    Refused,
    Rejected,
    Submission,
)
from zkcoord.core.tasks import RUNNING

TASK_BYTES = 300
"""Of an accepted task beside its texts, value and headers, at most."""
INTAKE_SHARE = 0.75
"""Of a batch at most: the rest is left for dispatches, so that a flood does not stop them."""
SHARES = 8
"""One share in 8 of that is kept for each class that waits, whatever the others bring."""


def take_tasks(desk: Desk, inputs: Inputs) -> None:
    """Accept, refuse or drop submitted tasks: CRITICAL first, with a share for every class."""
    facts_max = int(INTAKE_SHARE * desk.own.batch_facts_max)
    bytes_max = int(INTAKE_SHARE * desk.own.batch_bytes_max)
    share = max(1, facts_max // SHARES)
    behind = sum(1 for queue in inputs.tasks if queue)
    for priority, queue in enumerate(inputs.tasks):
        if not queue:
            continue
        behind -= 1
        limit = max(share, facts_max - len(desk.facts) - share * behind)
        size_limit = bytes_max * (SHARES - behind) // SHARES
        taken = 0
        while queue and taken < limit and desk.admission.is_within_bounds(desk.state, priority):
            record = queue[0]
            size = _weigh(record)
            if not desk.fits(size) or (desk.facts and desk.size + size > size_limit):
                break
            if record.id in desk.gone:
                break  # two tasks of one id never meet in a batch: log offsets tell them apart
            queue.popleft()
            if desk.is_old(record.origin):
                continue
            taken += 1
            desk.consume(record.origin)
            if type(record) is Submission:
                _submission(desk, record, size)
            else:
                _misread(desk, record, size)  # type: ignore[arg-type]


def take_controls(desk: Desk, inputs: Inputs) -> None:
    """Obey control records."""
    queue = inputs.controls
    while queue and not desk.full():
        record = queue[0]
        if not desk.fits(FACT_BYTES + len(record.value or b"")):
            return
        queue.popleft()
        if desk.is_old(record.origin):
            continue
        desk.consume(record.origin)
        if isinstance(record, Misread):
            refuse(desk, record.origin, record.value, record.reason, record.detail)
        else:
            _obey(desk, record)


def refuse(desk: Desk, origin: Origin, value: bytes | None, reason: str, detail: str) -> None:
    """A control or report record comes to nothing; its bytes become a dead letter."""
    kept = deadletters.curtail(value, None, [])
    fact = Refused(
        origin, kept.value, reason, detail[:TEXT_CHARS_MAX], size=kept.size, sha256=kept.sha256
    )
    desk.write(fact, TASK_BYTES + len(kept.value or b"") + weigh_text(fact.detail))


def _weigh(record: Submission | Misread) -> int:
    size = TASK_BYTES + len(record.value or b"") + len(record.key or b"")
    if isinstance(record, Submission):
        size += weigh_text(record.id) + weigh_text(record.task)
        for text in record.requires:
            size += 8 + weigh_text(text)
    elif len(record.value or b"") > deadletters.KEEP_BYTES:
        size = TASK_BYTES + deadletters.KEEP_BYTES  # it will be cut
    for name, value in record.headers:
        size += 8 + weigh_text(name) + len(value or b"")
    return size


def _submission(desk: Desk, sub: Submission, size: int) -> None:
    if sub.id in desk.state.tasks:
        desk.write(Duplicate(sub.id, sub.origin), FACT_BYTES + weigh_text(sub.id))
        return
    if sub.expires_at is not None and sub.expires_at <= desk.now:
        task = desk.accept(sub, size)
        desk.end(task, Died(sub.id, 0, EXPIRED, "its deadline had passed when it was read"))
        return
    # Who can hear an answer has asked already; and `wait` keeps the rest in its topic.
    if (
        sub.reply is None
        and desk.config.classes[sub.priority].overflow == "reject"
        and desk.admission.refuses(sub.priority)
    ):
        _overload(desk, sub, size)
        return
    desk.accept(sub, size)


def _overload(desk: Desk, sub: Submission, size: int) -> None:
    retry_after = desk.admission.retry_after(sub.priority)
    fact = Rejected(
        origin=sub.origin,
        value=sub.value,
        key=sub.key,
        headers=sub.headers,
        reason="overload",
        detail=f"class {Priority(sub.priority).name} is full; try again in {retry_after:.1f} s",
        id=sub.id,
        reply=sub.reply,
        retry_after=retry_after,
    )
    desk.write(fact, size)


def _misread(desk: Desk, record: Misread, size: int) -> None:
    kept = deadletters.curtail(record.value, record.key, record.headers)
    fact = Rejected(
        origin=record.origin,
        value=kept.value,
        key=kept.key,
        headers=kept.headers,
        reason=record.reason,
        detail=record.detail[:TEXT_CHARS_MAX],
        id=record.id,
        reply=record.reply,
        size=kept.size,
        sha256=kept.sha256,
    )
    desk.write(fact, size + weigh_text(fact.detail))


def _obey(desk: Desk, record: ControlRecord) -> None:
    control = record.control
    who = control.who[:TEXT_CHARS_MAX]
    if control.action in {"pause", "resume"}:
        desk.write(Paused(control.action == "pause", who), FACT_BYTES + weigh_text(who))
        return
    problem = _problem(control.action, control.priority)
    task = desk.state.tasks.get(control.id or "")
    if problem or task is None:
        reason = "malformed" if problem else "not_live"
        detail = problem or f"{control.action}: no live task {control.id!r}"
        refuse(desk, record.origin, record.value, reason, detail)
    elif control.action == "reprioritize":
        if task.priority != control.priority:
            desk.reprioritize(task, control.priority or 0)
    else:
        reason = control.reason[:TEXT_CHARS_MAX] or "cancelled"
        if reason == EXPIRED:
            reason = "expired, somebody said"
        if task.phase != RUNNING:
            desk.end(task, Cancelled(task.sub.id, task.attempt, reason))
        elif task.cancel is None:
            desk.ask_cancel(task, reason)


def _problem(action: str, priority: int | None) -> str:
    if action == "cancel":
        return ""
    if action != "reprioritize":
        return f"action {action[:40]!r} is not known"
    if priority is None or not 0 <= priority < len(Priority):
        return "reprioritize: priority must be 0 to 3"
    return ""
