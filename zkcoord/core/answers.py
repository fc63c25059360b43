"""Decide about what agents report.

A report counts when it is about the current attempt: same task, attempt and incarnation. Anything
else is recorded as superseded where it says how an attempt ended, and changes nothing.
"""

from __future__ import annotations

import msgspec

from zkcoord.core import backoff
from zkcoord.core.desk import FACT_BYTES, TEXT_CHARS_MAX, Desk, weigh_text
from zkcoord.core.fleet import block
from zkcoord.core.inputs import Inputs, Misread, ReportRecord
from zkcoord.core.intake import refuse
from zkcoord.core.records import (
    Cancel,
    DidFail,
    DidHave,
    DidReceive,
    DidReturn,
    DidStart,
    DidSucceed,
    Died,
    Discarded,
    Reports,
    Retrying,
    Started,
    Succeeded,
    Superseded,
)
from zkcoord.core.tasks import RUNNING, Task

REPORTS_SHARE = 0.5
RECORD_SHARE = 0.75
"""Of a batch, at which no further record is begun, and at which a long one is left unfinished.
There must be room to fill the slots that reports free."""
TIME_MAX = 1e11
DELAY_S_MAX = 30 * 86400.0

ENDINGS = (DidSucceed, DidFail, DidReturn)
_skim = msgspec.json.Decoder(msgspec.Raw).decode

_KINDS = {
    DidSucceed: "succeeded",
    DidFail: "failed",
    DidReturn: "returned",
}


def take_reports(desk: Desk, inputs: Inputs, stops: list[tuple[int, int, Cancel]]) -> None:
    """Take reports; adds to `stops` (partition, incarnation, order) what agents must not run."""
    queue = inputs.reports
    while queue and not desk.full(REPORTS_SHARE):
        record = queue[0]
        if desk.is_old(record.origin):
            queue.popleft()
            continue
        if not desk.fits(record.size):
            return
        if isinstance(record, Misread):
            refuse(desk, record.origin, record.value, record.reason, record.detail)
        elif not _reports(desk, record, stops):
            return
        queue.popleft()
        desk.consume(record.origin)


def _reports(desk: Desk, record: ReportRecord, stops: list[tuple[int, int, Cancel]]) -> bool:
    """Take what fits of a record; whether that was all."""
    said = record.reports
    tasks = desk.state.tasks
    incarnation = said.incarnation
    agent = desk.fleet.agents.get(incarnation)
    for place in range(record.done, len(said.reports)):
        if not place % 64 and desk.full(RECORD_SHARE):
            record.done = place
            return False
        report = said.reports[place]
        if isinstance(report, DidHave):
            _have(desk, said, report, stops)
            continue
        task = tasks.get(report.id)
        if (
            task is None
            or task.attempt != report.attempt
            or task.incarnation != incarnation
            or task.phase != RUNNING
            or (isinstance(report, ENDINGS) and 0 <= report.fence != task.fence)
        ):
            _late(desk, report, incarnation)
        else:
            if agent is not None:
                agent.unconfirmed.pop(report.id, None)
            _current(desk, task, report)
    return True


def _late(
    desk: Desk,
    report: DidReceive | DidStart | DidSucceed | DidFail | DidReturn,
    incarnation: int,
) -> None:
    if not isinstance(report, ENDINGS):
        return
    fact = Superseded(report.id, report.attempt, incarnation, _KINDS[type(report)])
    desk.write(fact, FACT_BYTES + weigh_text(report.id))
    agent = desk.fleet.agents.get(incarnation)
    if agent is not None and (report.id, report.attempt) in agent.lingering:
        agent.lingering.discard((report.id, report.attempt))
        desk.fleet.touch(agent)


def _current(
    desk: Desk, task: Task, report: DidReceive | DidStart | DidSucceed | DidFail | DidReturn
) -> None:
    """A report about the task's current attempt."""
    id_ = report.id
    if isinstance(report, DidSucceed):
        started, finished = _time(report.started), _time(report.finished)
        if not _is_json(report.result):
            error = "the agent reported a result that is not JSON"
            _failed(
                desk, task, DidFail(id_, report.attempt, "error", error, None, started, finished)
            )
            return
        desk.succeed(task, Succeeded(id_, report.attempt, report.result, started, finished))
    elif isinstance(report, DidFail):
        _failed(desk, task, report)
    elif isinstance(report, DidReturn):
        _returned(desk, task, report)
    elif isinstance(report, DidStart) and not task.started:
        desk.write(Started(id_, report.attempt, report.started), FACT_BYTES + weigh_text(id_))
        desk.touched.append(task)


def _is_json(result: bytes) -> bool:
    """Whether the result can go to those who wait, who would wait for ever for another; or none."""
    try:
        return not result or bool(_skim(result))
    except (msgspec.MsgspecError, RecursionError):
        return False


def _time(said: float) -> float:
    """A time that an agent said, 0 for nonsense such as NaN, which JSON cannot hold."""
    return said if 0.0 < said < TIME_MAX else 0.0


def _failed(desk: Desk, task: Task, report: DidFail) -> None:
    id_, attempt = task.sub.id, task.attempt
    error = report.error[:TEXT_CHARS_MAX]
    if report.kind == "discard":
        desk.end(task, Discarded(id_, attempt, error))
    elif task.cancel is not None:
        desk.end(task, desk.cancelled_end(task, error))
    elif report.kind == "malformed":
        desk.end(task, Died(id_, attempt, "malformed", error))
    else:
        _retry(desk, task, report, error)


def _retry(desk: Desk, task: Task, report: DidFail, error: str) -> None:
    policy, sub = desk.config.retry, task.sub
    failures = task.failures + 1
    if failures >= (policy.attempts if sub.attempts is None else sub.attempts):
        reason = "unknown_task" if report.kind == "unknown_task" else "exhausted"
        desk.end(task, Died(sub.id, task.attempt, reason, error))
        return
    if report.delay is not None and 0 <= report.delay <= DELAY_S_MAX:
        wait = report.delay
    else:
        wait = backoff.delay(policy, failures, desk.rng, sub.delay)
    fact = Retrying(sub.id, task.attempt, desk.now + wait, error, report.started, report.finished)
    desk.retry(task, fact)


def _returned(desk: Desk, task: Task, report: DidReturn) -> None:
    agent = desk.fleet.agents.get(task.incarnation)
    if task.cancel is not None:
        desk.end(task, desk.cancelled_end(task, report.reason))
    else:
        desk.release(task, report.reason[:TEXT_CHARS_MAX] or "returned", crash=False)
    if agent is not None:  # it has no room or is leaving, whatever its slots say
        block(agent, desk.now)


def _have(desk: Desk, said: Reports, report: DidHave, stops: list[tuple[int, int, Cancel]]) -> None:
    """The agent answers for all it has.

    What it has is confirmed; what it has and should not is stopped. What it was known to have and
    has no more, although every report before this one was taken, is lost: it is released. What was
    never confirmed may still be on its way and is left to the reminders.
    """
    agent = desk.fleet.agents.get(said.incarnation)
    if agent is None:
        return
    held = set(report.attempts)
    for id_, attempt in report.attempts:
        task = agent.running.get(id_)
        if task is not None and task.attempt == attempt:
            agent.unconfirmed.pop(id_, None)
        elif (id_, attempt) not in agent.lingering:
            stops.append((agent.partition, said.incarnation, Cancel(id_, attempt, "superseded")))
    gone = {pair for pair in agent.lingering if pair not in held}
    if gone:
        agent.lingering -= gone
        desk.fleet.touch(agent)
    for id_, task in list(agent.running.items()):
        if (id_, task.attempt) not in held and id_ not in agent.unconfirmed:
            if task.cancel is not None:
                desk.end(task, desk.cancelled_end(task, "its agent no longer has it"))
            else:
                desk.release(task, "not held", crash=False)
