"""What must hold of every history. Pure: a history in, violations out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

from tests.histories.events import Event
from tests.histories.linearizability import stuck_at
from tests.histories.models import FencedMutex, Mutex, ReadWrite, Semaphore, spans
from tests.histories.requests import NEVER, Request, Requests, read_requests

LATE_S = 2.0
"""How much later than its own time limit a call may come back on a crowded machine."""


class Violation(NamedTuple):
    """A rule that a history breaks."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(history: list[Event]) -> list[Violation]:
    """Every violation in a history, sorted by rule."""
    requests = read_requests(history)
    found = [
        *exclusion(requests),
        *tokens(requests, history),
        *order(requests),
        *liveness(requests, history),
        *leftovers(history),
        *linearizability(requests, history),
        *counters(history),
        *claims(history),
    ]
    return sorted(set(found))


def exclusion(requests: Requests) -> Iterable[Violation]:
    """C1: no two who exclude each other believe at one time."""
    for name in requests.names:
        held = [r for r in requests.of(name) if r.held and r.mode != "s"]
        held.sort(key=lambda request: request.granted)
        running: list[Request] = []
        for request in held:
            running = [other for other in running if other.ended > request.granted]
            for other in running:
                if request.conflicts(other):
                    both = min(request.ended, other.ended) - request.granted
                    yield Violation("C1", f"{other} and {request} both believed for {both:.3f} s")
            running.append(request)


def tokens(requests: Requests, history: list[Event]) -> Iterable[Violation]:
    """C2: tokens rise in the order of holds; a fenced register takes no smaller one."""
    for name in requests.names:
        held = [r for r in requests.of(name) if r.held and r.token and r.exclusive]
        held.sort(key=lambda request: request.granted)
        for before, after in pairwise(held):
            if after.token <= before.token:
                yield Violation("C2", f"{after} came after {before}")
    last: dict[str, Event] = {}
    for event in history:
        if event.kind == "store" and event.text == "ok":
            before_it = last.get(event.name)
            if before_it is not None and event.token < before_it.token:
                text = f"{event.name} took {event.token:#x} of {event.client} after "
                yield Violation("C2", f"{text}{before_it.token:#x} of {before_it.client}")
            last[event.name] = event


def order(requests: Requests) -> Iterable[Violation]:
    """C3: who was created first is granted first, as long as it waits.

    A token is the czxid of a request's node, so it is the order of creation.
    """
    for name in requests.names:
        known = [r for r in requests.of(name) if r.held and r.token and r.mode != "s"]
        known.sort(key=lambda request: request.granted)
        later: list[Request] = []  # granted after `second`
        oldest = NEVER
        for second in reversed(known):
            for first in later if oldest < second.token else ():
                waited = first.invoked < second.granted < first.granted
                if waited and first.token < second.token and first.conflicts(second):
                    yield Violation("C3", f"{second} overtook {first}")
            later.append(second)
            oldest = min(oldest, second.token)


def liveness(requests: Requests, history: list[Event]) -> Iterable[Violation]:
    """C4: once all is healed everybody gets in soon; and a time limit is one always."""
    end = history[-1].at if history else 0.0
    healed = [event for event in history if event.kind == "healed"]
    for request in requests.all:
        if request.killed < NEVER:
            continue
        if request.limit:
            due = request.invoked + request.limit + LATE_S
            if min(end, request.answered) > due:
                text = f"{request} wanted to wait {request.limit:g} s, "
                late = request.answered - request.invoked
                text += f"waited {late:.1f} s" if late < NEVER else "and waits still"
                yield Violation("C4", text)
        if healed:
            due = max(request.invoked, healed[-1].at) + healed[-1].until
            if min(end, request.answered) > due:
                yield Violation("C4", f"{request} was not answered after all was healed")


def leftovers(history: list[Event]) -> Iterable[Violation]:
    """C5: nothing is left when all have gone."""
    for event in history:
        if event.kind == "left" and event.value:
            yield Violation("C5", f"{event.value} {event.text}")


def linearizability(requests: Requests, history: list[Event]) -> Iterable[Violation]:
    """C6: the history is one of a mutex, fenced mutex, semaphore or read-write lock."""
    limits = {event.name: event.value for event in history if event.kind == "limit"}
    for name in requests.names:
        found = requests.of(name)
        operations = spans(found)
        modes = {request.mode for request in found}
        if "s" in modes:
            stuck = stuck_at(Semaphore(limits[name]), operations)
        elif modes & {"r", "w"}:
            stuck = stuck_at(ReadWrite(), operations)
        elif all(request.token for request in found if request.held):
            stuck = stuck_at(FencedMutex(), operations)
        else:
            stuck = stuck_at(Mutex(), operations)
        if stuck is not None:
            yield Violation("C6", f"no order of all operations explains: {stuck.op.text}")


def counters(history: list[Event]) -> Iterable[Violation]:
    """C7: a counter's final value is the number of successful writes to it.

    Writes that a client began and never told of may have succeeded: it was killed.
    """
    for final in history:
        if final.kind != "counter":
            continue
        writes = [e.text for e in history if e.kind == "write" and e.name == final.name]
        sure, unsure = writes.count("ok"), writes.count("unknown")
        begun = writes.count("begun")
        unsure += max(0, begun - (len(writes) - begun))
        if not sure <= final.value <= sure + unsure:
            wanted = f"{sure} to {sure + unsure}" if unsure else str(sure)
            yield Violation("C7", f"{final.name} is {final.value}, not {wanted}")


def claims(history: list[Event]) -> Iterable[Violation]:
    """What stories claim for themselves."""
    for event in history:
        if event.kind == "claim":
            rule, _, text = event.text.partition(": ")
            yield Violation(rule, f"{event.client}: {text}")


RULES: dict[str, Callable[..., Iterable[Violation]]] = {
    "C1": exclusion,
    "C2": tokens,
    "C3": order,
    "C4": liveness,
    "C5": leftovers,
    "C6": linearizability,
    "C7": counters,
}
