"""Counters: a number that many change."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from zkcoord.core.counting import Tally
from zkcoord.errors import VersionConflict
from zkcoord.recipes.adding import Adding, check_number
from zkcoord.recipes.register import FRESH_S, Register
from zkcoord.recipes.steps import Course, Steps
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.clock import now
from zkcoord.zk.condition import shown
from zkcoord.zk.names import check_path
from zkcoord.zk.promise import Promise
from zkcoord.zk.session import Session, check_session

_TIMEOUT_S = 10.0


class Count(NamedTuple):
    """A counter as it was read.

    Attributes:
        number: the count.
        version: changes with every write; -1 when nothing was written yet.
    """

    number: int
    version: int


class Counter:
    """A number that many processes read and change, exactly once for every call.

    ::

        orders = Counter(session, "/counters/orders")
        number = orders.add(1)

    A call that is answered has changed the number once, also when links dropped, servers changed
    or the session was lost meanwhile: a write leaves a mark beside the number by which a lost
    answer is made up for. When that cannot be known the call raises OutcomeUnknown, and never
    guesses.

    Additions of one object are put together into one write at a time, so its threads and tasks do
    not compete. Processes do: with dozens of them adding all the time use a
    :class:`~zkcoord.recipes.fast_counter.FastCounter`.

    Numbers have 64 bits and a sign. The node is created by the first write and stays; delete it
    only when nobody counts any more. A plain number that somebody else writes into it is a count.

    Args:
        session: the counter goes on in the session's next life when it is lost.
        path: the node below the session's chroot, such as ``/counters/orders``.

    Raises:
        NameRefused: not a path.
    """

    def __init__(self, session: Session, path: str) -> None:
        self.session = check_session(session)
        self.path = check_path(path)
        link = session.link
        self._register = Register(link, link.absolute(path), Random())  # noqa: S311 - jitter
        self._known: Tally | None = None
        self._known_until = 0.0
        self._adding = Adding(link, path, self._change)

    def __repr__(self) -> str:
        return shown(self, self.path, self.session.link)

    def get(self, timeout: float = _TIMEOUT_S, *, sync: bool = False) -> int:
        """The count; 0 when nothing was counted yet.

        It may be behind by what other sessions wrote just now; what this session wrote is in it.

        Args:
            timeout: seconds.
            sync: let the server catch up first: what anybody had written before is in it.

        Raises:
            NodeForeign: the node holds no number.
            EnsembleUnavailable, SessionClosed, AccessDenied.
            RuntimeError: called inside an event loop; use ``await counter.get_future()``.
        """
        refuse_in_event_loop("counter.get()", "await counter.get_future()")
        return self.get_future(timeout, sync=sync).wait()

    def get_future(self, timeout: float = _TIMEOUT_S, *, sync: bool = False) -> Promise[int]:
        """The same, to be awaited."""
        return self.read_future(timeout, sync=sync).then(lambda count: count.number)

    def read(self, timeout: float = _TIMEOUT_S, *, sync: bool = False) -> Count:
        """The count with its version, for `compare_and_set`. Otherwise as `get`."""
        refuse_in_event_loop("counter.read()", "await counter.read_future()")
        return self.read_future(timeout, sync=sync).wait()

    def read_future(self, timeout: float = _TIMEOUT_S, *, sync: bool = False) -> Promise[Count]:
        """The same, to be awaited."""
        course = self._register.look(sync=sync)
        return self._run(course, f"read counter {self.path}", timeout).then(_count)

    def add(self, amount: int = 1, timeout: float = _TIMEOUT_S) -> int:
        """Add to it, exactly once.

        Args:
            amount: what to add; negative to subtract.
            timeout: seconds, over all tries.

        Returns:
            The count right after this addition: no two calls of anybody get the same one, as long
            as all amounts are positive.

        Raises:
            EnsembleUnavailable: no answer in time; the hint says whether it may still be counted.
            VersionConflict: others were faster a hundred times in a row; nothing was counted.
            OutcomeUnknown: the answer was lost and more than 64 other writes came after; it may be
                counted.
            NodeForeign: the node holds no number.
            ConfigError: not a whole number, or the count would leave 64 bits.
            SessionClosed, AccessDenied.
            RuntimeError: called inside an event loop; use ``await counter.add_future()``.
        """
        refuse_in_event_loop("counter.add()", "await counter.add_future()")
        return self.add_future(amount, timeout).wait()

    def add_future(self, amount: int = 1, timeout: float = _TIMEOUT_S) -> Promise[int]:
        """The same, to be awaited. What is cancelled may be counted once it was sent."""
        return self._adding.add(amount, timeout)

    def compare_and_set(
        self, expected: Count | int, number: int, timeout: float = _TIMEOUT_S
    ) -> Count:
        """Set it, if it is as expected.

        Args:
            expected: what `read` gave: nobody may have written since. Or a number: the count must
                be that, whoever wrote it.
            number: the new count.
            timeout: seconds.

        Raises:
            VersionConflict: it is not as expected; nothing was changed.
            EnsembleUnavailable, OutcomeUnknown, NodeForeign, ConfigError, SessionClosed,
                AccessDenied: as for `add`.
            RuntimeError: called inside an event loop; use ``await counter.compare_and_set_future``.
        """
        refuse_in_event_loop("compare_and_set()", "await counter.compare_and_set_future(...)")
        return self.compare_and_set_future(expected, number, timeout).wait()

    def compare_and_set_future(
        self, expected: Count | int, number: int, timeout: float = _TIMEOUT_S
    ) -> Promise[Count]:
        """The same, to be awaited."""
        number = check_number(f"counter {self.path}: compare_and_set", number)
        if not isinstance(expected, Count):
            check_number(f"counter {self.path}: compare_and_set: expected", expected)

        def decide(tally: Tally) -> int:
            if expected != (_count(tally) if isinstance(expected, Count) else tally.number):
                raise VersionConflict(
                    f"counter {self.path} is {tally.number} (version {tally.version}), not "
                    f"{expected if isinstance(expected, int) else expected.number}",
                    hint="read it again and decide anew",
                )
            return number

        course = self._compare(decide)
        return self._run(course, f"compare and set counter {self.path}", timeout).then(_count)

    def _compare(self, decide: Callable[[Tally], int]) -> Course[Tally]:
        tally = yield from self._register.look(sync=True)  # or it might differ for being old
        return (yield from self._register.change(decide, tally))

    def _change(self, decide: Callable[[Tally], int]) -> Course[Tally]:
        known, self._known = self._known, None
        if now() >= self._known_until:
            known = None
        self._known = yield from self._register.change(decide, known)
        self._known_until = now() + FRESH_S
        return self._known

    def _run(self, course: Course[Tally], what: str, timeout: float) -> Promise[Tally]:
        return Steps(self.session.link, course, what, timeout).begin()


def _count(tally: Tally) -> Count:
    return Count(tally.number, tally.version)
