"""Additions of one process to one counter, put together.

While a write is on its way, further additions wait and go together with the next one: however many
threads and tasks add, one process has one write in flight for a counter, and does not compete with
itself.
"""

from __future__ import annotations

from collections.abc import Callable

from zkcoord.core.counting import NUMBER_MAX, NUMBER_MIN, Tally, fits
from zkcoord.errors import ConfigError, EnsembleUnavailable
from zkcoord.recipes.steps import Course, Steps
from zkcoord.zk.amounts import is_whole
from zkcoord.zk.clock import now
from zkcoord.zk.link import Link
from zkcoord.zk.promise import Promise
from zkcoord.zk.verbs import check_timeout, late

WAITING_MAX = 10_000

Change = Callable[[Callable[[Tally], int]], Course[Tally]]


class Addition:
    """One call of `add`."""

    __slots__ = ("amount", "course", "deadline", "promise")

    def __init__(self, amount: int, deadline: float, promise: Promise[int]) -> None:
        self.amount = amount
        self.deadline = deadline
        self.promise = promise
        self.course: Steps[Tally] | None = None


class Adding:
    """Takes additions from any thread; everything else runs on the loop.

    Args:
        name: of the counter, for messages.
        change: the course that applies a decision to the counter.
    """

    def __init__(self, link: Link, name: str, change: Change) -> None:
        self._link = link
        self._name = name
        self._change = change
        self._waiting: list[Addition] = []
        self._group: list[Addition] = []

    def add(self, amount: int, timeout: float) -> Promise[int]:
        """The count right after this addition."""
        self._link.check_open()
        amount = check_number(f"counter {self._name}: add", amount)
        promise: Promise[int] = Promise(self._link.dispatcher)
        addition = Addition(amount, now() + check_timeout(timeout), promise)
        timer = self._link.timer(timeout, self._expired, addition, timeout)
        promise.on_done(timer.cancel)
        self._link.loop.post(self._join, addition)
        return promise

    def _expired(self, addition: Addition, timeout: float) -> None:
        course = addition.course
        harmless = course is None or course.harmless()
        error = late(self._link, f"add to counter {self._name}", timeout, harmless)
        addition.promise.fail(error)

    def _join(self, addition: Addition) -> None:
        if len(self._waiting) >= WAITING_MAX:
            text = f"counter {self._name}: {WAITING_MAX} additions wait already"
            addition.promise.fail(EnsembleUnavailable(text))
            return
        self._waiting.append(addition)
        if not self._group:
            self._go()

    def _go(self) -> None:
        self._group = [one for one in self._waiting if not one.promise.done()]
        self._waiting = []
        if not self._group:
            return
        left = max(one.deadline for one in self._group) - now()
        course = Steps(
            self._link, self._change(self._sum), f"add to counter {self._name}", max(0.0, left)
        )
        for one in self._group:
            one.course = course
        course.promise.on_done(lambda: self._went(course.promise))
        course.begin()

    def _sum(self, tally: Tally) -> int:
        """The new number; who would leave the range of numbers is sent away."""
        number = tally.number
        for one in tuple(self._group):
            if fits(number + one.amount):
                number += one.amount
                continue
            self._group.remove(one)
            one.promise.fail(
                ConfigError(
                    f"counter {self._name}: {number} + {one.amount} leaves "
                    f"{NUMBER_MIN} to {NUMBER_MAX}"
                )
            )
        return number

    def _went(self, promise: Promise[Tally]) -> None:
        group, self._group = self._group, []
        error = promise.exception()
        if error is None:
            number = promise.result().number - sum(one.amount for one in group)
            for one in group:
                number += one.amount
                one.promise.fulfil(number)
        else:
            for one in group:
                one.promise.fail(error)
        # After the course has wound up: another begins.
        self._link.loop.post(self._go_on)

    def _go_on(self) -> None:
        if not self._group:
            self._go()


def check_number(what: str, number: object) -> int:
    """A whole number of 64 bits, given back.

    Raises:
        ConfigError: it is none.
    """
    if not is_whole(number):
        raise ConfigError(f"{what} {number!r}: must be a whole number")
    if not fits(number):
        raise ConfigError(f"{what} {number}: must be within {NUMBER_MIN} and {NUMBER_MAX}")
    return number
