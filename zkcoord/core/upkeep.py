"""Decide what time and the loss of agents ask for, and fill free slots."""

from __future__ import annotations

from zkcoord.core.desk import EXPIRED, Desk
from zkcoord.core.fleet import UNSENT, Agent
from zkcoord.core.records import Checkpointed, Died
from zkcoord.core.tasks import READY, RUNNING, Task
from zkcoord.core.timers import DUE, EXPIRE


def take_losses(desk: Desk) -> None:
    """Release the attempts of agents that are gone."""
    fleet = desk.fleet
    while fleet.lost and not desk.full():
        agent = fleet.lost[-1]
        if not agent.live:
            for task in list(agent.running.values()):
                if desk.full():
                    return  # the rest in the next batch
                _lost(desk, task, agent)
            fleet.forget(agent)
        fleet.lost.pop()


def _lost(desk: Desk, task: Task, agent: Agent) -> None:
    if task.cancel is not None:
        desk.end(task, desk.cancelled_end(task, "its agent was lost"))
    elif agent.drains:
        desk.release(task, "agent left", crash=False)
    elif task.crashes + 1 >= desk.config.crashes_max:
        error = f"{task.crashes + 1} of its attempts ended with the loss of their agent"
        desk.end(task, Died(task.sub.id, task.attempt, "crashes", error))
    else:
        desk.release(task, "agent lost", crash=True)


def take_timers(desk: Desk) -> None:
    """Deal with what fell due."""
    tasks = desk.state.tasks
    while not desk.full():
        timer = desk.timers.pop(desk.now)
        if timer is None:
            break
        time, id_, kind = timer
        task = tasks.get(id_)
        if task is None:
            continue
        if kind == DUE:
            if task.phase == READY and task.due == time and not task.ticket:
                desk.queues.push(task)
        elif kind == EXPIRE:
            if task.sub.expires_at == time:
                _expired(desk, task)
        elif _is_overdue(desk, task, time):
            desk.abandon(task, desk.cancelled_end(task, "its agent did not stop it in time"))
    desk.timers.sweep(tasks, len(tasks))


def _is_overdue(desk: Desk, task: Task, time: float) -> bool:
    """Whether the timer is about the cancellation that the task's agent has not answered."""
    asked = task.asked + desk.own.cancel_s
    return task.phase == RUNNING and task.cancel is not None and asked == time


def _expired(desk: Desk, task: Task) -> None:
    if task.phase != RUNNING:
        error = "its deadline passed before it could be run to an end"
        desk.end(task, Died(task.sub.id, task.attempt, EXPIRED, error))
    elif task.cancel is None:
        desk.ask_cancel(task, EXPIRED)


def take_unknown(desk: Desk) -> None:
    """Bury tasks that no live agent has known for too long. Call about once a second."""
    wait = desk.config.unknown_task_s
    for task in desk.queues.unknown(desk.now, wait):
        if desk.full():
            return
        error = f"no live agent has known task {task.sub.task!r} for {wait:g} s"
        desk.end(task, Died(task.sub.id, task.attempt, "unknown_task", error))


def fill_slots(desk: Desk) -> None:
    """Dispatch while there are free slots and tasks that may take them."""
    queues, running_of = desk.queues, desk.state.running_of
    if queues.waiting and not desk.state.paused:
        queues.refresh(desk.now)
        while not desk.full():
            found = queues.take(running_of)
            if found is None:
                break
            desk.dispatch(*found)
    # Only a fleet with all its slots taken shows what it can do; reserved ones count as taken.
    if not queues.waiting or desk.state.running + desk.reserved < desk.fleet.slots:
        desk.meter.idle_seen = True


def keep_old(desk: Desk, ids: list[str]) -> None:
    """Checkpoint tasks that have been live, or changed, for long."""
    if ids:
        desk.write(Checkpointed(ids), sum(len(id_) * 4 + 3 for id_ in ids))


def unconfirmed(agent: Agent, now: float, after_s: float) -> list[Task]:
    """Dispatches to send again: not reported received for long. They count as sent now.

    What an earlier leader sent is given as long from the first look on: the agent's answer to the
    greeting will say what it has.
    """
    waiting = agent.unconfirmed
    found = []
    for id_, sent in waiting.items():
        if sent == UNSENT:
            waiting[id_] = now
        elif now - sent < after_s:
            break  # in the order in which they were sent
        else:
            found.append(id_)
    for id_ in found:
        del waiting[id_]
        waiting[id_] = now
    return [agent.running[id_] for id_ in found]
