"""Is a concurrent history possible for an object that does one thing at a time?

The search of Wing and Gong ("Testing and verifying concurrent objects", 1993) with the memory of
Lowe ("Testing for linearizability", 2017): try the operations that may come first, one after the
other, and never again a set of operations that led to the same state.

An operation without an end may have taken effect at any time after its call, or never.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

StateT = TypeVar("StateT", bound=Hashable)
OpT_contra = TypeVar("OpT_contra", contravariant=True)
OpT = TypeVar("OpT")


class Model(Protocol[StateT, OpT_contra]):
    """What the object does, one operation at a time."""

    def start(self) -> StateT:
        """The state before anything happened."""

    def step(self, state: StateT, op: OpT_contra) -> StateT | None:
        """The state after `op`; None when it cannot happen in `state`."""


class Span(NamedTuple, Generic[OpT]):
    """An operation that took effect at one moment between `call` and `back`."""

    call: float
    back: float
    op: OpT


def stuck_at(model: Model[StateT, OpT], spans: Sequence[Span[OpT]]) -> Span[OpT] | None:
    """None when the history is possible, else the operation that no order explains.

    That is the earliest one to come back among those which the longest order found leaves out.
    """
    order = sorted(spans, key=lambda span: span.call)
    must = sum(1 << i for i, span in enumerate(order) if span.back < math.inf)
    best, done_most = 0, -1
    seen: set[tuple[int, StateT]] = set()
    stack: list[tuple[int, StateT]] = [(0, model.start())]
    while stack:
        done, state = stack.pop()
        if done & must == must:
            return None
        count = (done & must).bit_count()
        if count > done_most:
            best, done_most = done, count
        # Later calls first: the stack gives back the earliest.
        for i in reversed(_next(order, done)):
            after = model.step(state, order[i].op)
            if after is not None:
                entry = (done | 1 << i, after)
                if entry not in seen:
                    seen.add(entry)
                    stack.append(entry)
    left = [s for i, s in enumerate(order) if not best >> i & 1 and s.back < math.inf]
    return min(left, key=lambda span: span.back)


def _next(order: Sequence[Span[OpT]], done: int) -> list[int]:
    """Which may come next: those called before any that is left has come back."""
    first = (~done & (done + 1)).bit_length() - 1  # the lowest that is not done
    found: list[int] = []
    limit = math.inf
    for i in range(first, len(order)):
        span = order[i]
        if span.call > limit:
            break
        if not done >> i & 1:
            found.append(i)
            limit = min(limit, span.back)
    return [i for i in found if order[i].call <= limit]
