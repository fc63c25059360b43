"""What locks are, as objects that do one thing at a time; see linearizability.py.

A grant that was not given back ends by itself at some time after its holder ceased to believe in
it: that is an operation without an end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.histories.linearizability import Span
from tests.histories.requests import NEVER, Request


class Op(NamedTuple):
    """Taking or giving back.

    Attributes:
        who: tells grants apart.
    """

    take: bool
    who: int
    mode: str
    weight: int
    token: int
    text: str


class Mutex:
    """One at a time. The state is who holds it."""

    def start(self) -> int:
        return 0

    def step(self, state: int, op: Op) -> int | None:
        if op.take:
            return op.who if state == 0 else None
        return 0 if state == op.who else None


class FencedMutex:
    """One at a time, and every token is above all before it."""

    def start(self) -> tuple[int, int]:
        return 0, -1

    def step(self, state: tuple[int, int], op: Op) -> tuple[int, int] | None:
        holder, token = state
        if op.take:
            return (op.who, op.token) if holder == 0 and op.token > token else None
        return (0, token) if holder == op.who else None


class Semaphore:
    """So many permits, taken by weight."""

    def __init__(self, permits: int) -> None:
        self._permits = permits

    def start(self) -> tuple[int, frozenset[int]]:
        return 0, frozenset()

    def step(self, state: tuple[int, frozenset[int]], op: Op) -> tuple[int, frozenset[int]] | None:
        taken, holders = state
        if op.take:
            if taken + op.weight > self._permits:
                return None
            return taken + op.weight, holders | {op.who}
        if op.who not in holders:
            return None
        return taken - op.weight, holders - {op.who}


class ReadWrite:
    """Many readers or one writer."""

    def start(self) -> tuple[int, frozenset[int]]:
        return 0, frozenset()

    def step(self, state: tuple[int, frozenset[int]], op: Op) -> tuple[int, frozenset[int]] | None:
        writer, readers = state
        if not op.take:
            if op.who == writer:
                return 0, readers
            return (writer, readers - {op.who}) if op.who in readers else None
        if writer or (op.mode != "r" and readers):
            return None
        return (writer, readers | {op.who}) if op.mode == "r" else (op.who, readers)


def spans(requests: Iterable[Request]) -> list[Span[Op]]:
    """The operations of those that were granted. The others changed nothing that one can see."""
    found: list[Span[Op]] = []
    for who, request in enumerate(requests, 1):
        if not request.held:
            continue

        def op(take: bool, who: int = who, request: Request = request) -> Op:
            what = "granted" if take else "ended"
            text = f"{request} {what}"
            return Op(take, who, request.mode, request.weight, request.token, text)

        found.append(Span(request.invoked, request.granted, op(take=True)))
        back = request.released if request.let_go else NEVER
        found.append(Span(request.ended, back, op(take=False)))
    return found
