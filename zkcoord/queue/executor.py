"""Runs what the inbox orders, within the agent's slots, and answers for it.

Everything here happens on one thread, the one of the agent's event loop, so there are no locks.
Times and rules:

- an attempt's time limit runs from its start; when it is over the handler is told to stop
  (asyncio cancellation, or ``ctx.cancelled`` for a thread) and has the agent's grace to do so;
  its end is reported when it stops, or when the grace is over;
- a handler that does not stop keeps its slot until it does: the agent then offers fewer slots,
  it never runs more than it was given;
- nothing is started unless the session can be believed at that moment;
- when the session is lost, everything is told to stop at once and nothing of it is reported.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from zkcoord.config import AgentConfig
from zkcoord.core.inbox import Decision, Drop
from zkcoord.core.records import DidFail, DidHave, DidReceive, DidReturn, Report, Run
from zkcoord.queue.attempt import Attempt, Verdict
from zkcoord.queue.backlog import Backlog
from zkcoord.queue.context import TaskContext
from zkcoord.queue.failures import tell
from zkcoord.queue.handlers import Handler, Kind, report_verdict
from zkcoord.queue.ledger import Entry, Ledger, outcome_of
from zkcoord.queue.runners import AsyncRunners, ThreadRunners
from zkcoord.queue.tenure import Reporting, Tenure, read_record

_log = logging.getLogger(__name__)

ARM_S = 0.005
"""Time limits are armed this long after the start, so that short attempts need no timer."""

REPORTS_MAX = 20_000
REPORTS_BYTES_MAX = 64 * 1024 * 1024
"""Reports without confirmation, or their bytes, at which an agent stops taking orders."""

WAITING_MAX = 50_000
"""Orders that may wait for a slot; more are given back. Reading stops far below."""


class Executor:
    """The slots of one agent. All methods are for the thread of `loop`.

    Args:
        loop: the agent's event loop.
        handlers: by task name.
        config: slots and grace.
        reporter: where reports go.
        agent: its name.
        ledger: where starts and ends are written, or None.
        on_change: called when `capacity` changed.
        on_invalid: called with a reason when the session cannot be believed any more.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handlers: Mapping[str, Handler],
        config: AgentConfig,
        reporter: Reporting,
        *,
        agent: str = "agent",
        ledger: Ledger | None = None,
        on_change: Callable[[], None] = lambda: None,
        on_invalid: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._loop = loop
        self._handlers = handlers
        self._config = config
        self._reporter = reporter
        self._agent = agent
        self._ledger = ledger
        self._on_change = on_change
        self._on_invalid = on_invalid
        self._coroutines = AsyncRunners(loop, config.slots, self._ended)
        self._threads = ThreadRunners(loop, config.slots, self._ended)
        self._tenure: Tenure | None = None
        self._attempts: dict[str, Attempt] = {}  # by task id: what the leader may ask about
        self._backlog = Backlog()
        self._busy = 0  # slots in use
        self._hidden = 0  # of these, by attempts that the leader believes to be over
        self._fresh: list[Attempt] = []  # started, time limit not armed
        self._draining = False
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self._dismissed = asyncio.Event()

    # --- what the agent may ask -----------------------------------------------------------------

    @property
    def incarnation(self) -> int | None:
        """The incarnation that is served now."""
        return self._tenure.rules.incarnation if self._tenure is not None else None

    @property
    def busy(self) -> int:
        """Slots in use, by attempts of earlier incarnations too."""
        return self._busy

    @property
    def waiting(self) -> int:
        """Attempts that wait for a slot."""
        return len(self._backlog)

    @property
    def capacity(self) -> int:
        """Slots that a leader may count on: those not kept by handlers that did not stop."""
        return self._config.slots - self._hidden

    @property
    def has_room(self) -> bool:
        """Whether more orders should be read. Bounds what waits and what is not yet reported."""
        return (
            len(self._backlog) < max(1000, 2 * self._config.slots)
            and self._reporter.unacknowledged < REPORTS_MAX
            and self._reporter.unacknowledged_bytes < REPORTS_BYTES_MAX
        )

    # --- tenure ---------------------------------------------------------------------------------

    def begin(self, tenure: Tenure) -> None:
        """Serve this incarnation from now on."""
        self._tenure = tenure

    def abandon(self, reason: str) -> None:
        """The incarnation is over: stop all its attempts at once, report none of them."""
        self._tenure = None
        for attempt in self._backlog.clear():
            attempt.ended = True
        for attempt in list(self._attempts.values()):
            if not attempt.ended:
                self._stop(attempt, Verdict.LOST, reason)
        self._attempts.clear()

    def drain(self) -> None:
        """Start nothing more: give back what waits and what still comes; let the rest finish."""
        self._draining = True
        for attempt in self._backlog.clear():
            self._finish(attempt, _returned(attempt.order, "drained"))

    def give_back(self, *, grace: bool = True) -> None:
        """Stop all running attempts and give them back, without `grace` at once."""
        for attempt in list(self._attempts.values()):
            self._stop(attempt, Verdict.DRAINED, "the agent leaves")
            if not grace and not attempt.answered:
                self._finish(attempt, report_verdict(attempt, time.time()), running=True)
                self._hide(1)

    async def idle(self, within: float) -> bool:
        """Whether no slot was in use within so many seconds."""
        return await _set_within(self._idle, within)

    async def dismissed(self, within: float) -> bool:
        """Whether a leader said within so many seconds that no order follows."""
        return await _set_within(self._dismissed, within)

    async def close(self, within: float) -> bool:
        """Let go of all; whether every handler had stopped within so many seconds."""
        self._draining = True
        until = self._loop.time() + within
        stopped = await self._coroutines.close(within)
        left = max(0.0, until - self._loop.time())
        joined = await asyncio.to_thread(self._threads.close, left)
        return stopped and joined

    # --- orders ---------------------------------------------------------------------------------

    def take(self, values: Sequence[bytes | None]) -> None:
        """Obey inbox records, in order. Unreadable ones count as lost."""
        tenure = self._tenure
        if tenure is None:
            return
        have = False
        for value in values:
            record = read_record(value)
            have = record is None or self._obey(tenure.rules.take(record), tenure) or have
        self._reporter.heard(tenure.rules.term)
        self.fill()
        if have:
            self.answer()

    def _obey(self, decision: Decision, tenure: Tenure) -> bool:
        """Do what one record asks; whether the leader wants to hear what is held."""
        if decision.dropped is Drop.LATER:
            self._on_invalid("another agent has claimed the inbox")
        if decision.last:
            self._dismissed.set()
        for order in decision.run:
            self._arrive(order, tenure)
        for stop in decision.cancel:
            attempt = self._attempts.get(stop.id)
            if attempt is not None:
                self._stop(attempt, Verdict.CANCELLED, stop.reason or "cancelled")
        for task_id, number in decision.repeated:
            self._reporter.add(DidReceive(task_id, number))
        return decision.have

    def answer(self) -> None:
        """Tell the leader all attempts that are held."""
        if self._tenure is not None:
            self._reporter.add(DidHave(self._tenure.rules.held()))

    def fill(self) -> None:
        """Start waiting attempts while there are free slots."""
        tenure = self._tenure
        if tenure is None:
            return
        while self._busy < self._config.slots and len(self._backlog):
            if not tenure.valid():
                self._on_invalid("the session can no longer be believed")
                return
            attempt = self._backlog.next()
            if attempt is None:
                return
            self._start(attempt, tenure)

    def _arrive(self, order: Run, tenure: Tenure) -> None:
        older = self._attempts.get(order.id)
        if older is not None:
            self._stop(older, Verdict.SUPERSEDED, "a newer attempt has begun")
        handler = self._handlers.get(order.task)
        if handler is None:
            known = ", ".join(sorted(self._handlers)) or "none"
            error = f"this agent has no handler for {order.task!r}; it has: {known[:500]}"
            failed = DidFail(
                order.id, order.attempt, "unknown_task", error, None, 0.0, 0.0, order.fence
            )
            self._refuse(order, failed, tenure)
        elif self._draining:
            self._refuse(order, _returned(order, "drained"), tenure)
        elif len(self._backlog) >= WAITING_MAX:
            self._refuse(order, _returned(order, "no room"), tenure)
        else:
            attempt = Attempt(order, handler, tenure.rules.incarnation)
            self._attempts[order.id] = attempt
            self._backlog.add(attempt)
            self._reporter.note(attempt)

    def _refuse(self, order: Run, report: Report, tenure: Tenure) -> None:
        tenure.rules.ended(order.id, order.attempt, order.fence)
        self._reporter.add(report)
        if isinstance(report, DidFail):
            tell(order, report, None)

    # --- running --------------------------------------------------------------------------------

    def _start(self, attempt: Attempt, tenure: Tenure) -> None:
        order = attempt.order
        now = time.time()
        if order.expires_at is not None and order.expires_at <= now:
            attempt.verdict = Verdict.TIMEOUT
            attempt.reason = "the task's deadline passed before its start"
            self._finish(attempt, report_verdict(attempt, now))
            return
        attempt.started = now
        if attempt.handler.context_parameter is not None:
            attempt.context = TaskContext(
                order, agent=self._agent, session=tenure.session, valid=tenure.valid
            )
        self._busy += 1
        self._idle.clear()
        if self._ledger is not None:
            self._write(attempt, "start")
        if attempt.announced:
            self._reporter.note(attempt)
        if order.timeout <= 10 * ARM_S or order.expires_at is not None:
            self._arm(attempt)
        else:
            if not self._fresh:
                self._loop.call_later(ARM_S, self._arm_fresh)
            self._fresh.append(attempt)
        if attempt.handler.kind is Kind.ASYNC:
            self._coroutines.start(attempt)
        else:
            self._threads.start(attempt)

    def _arm_fresh(self) -> None:
        fresh, self._fresh = self._fresh, []
        for attempt in fresh:
            if not attempt.ended and attempt.timer is None and attempt.verdict is None:
                self._arm(attempt)

    def _arm(self, attempt: Attempt) -> None:
        limit = attempt.order.timeout
        reason = f"over its time limit of {limit:g} s"
        if attempt.order.expires_at is not None:
            left = attempt.order.expires_at - time.time()
            if left < limit:
                limit, reason = left, "past the task's deadline"
        attempt.timer = self._loop.call_later(
            max(0.0, limit), self._stop, attempt, Verdict.TIMEOUT, reason
        )

    def _stop(self, attempt: Attempt, verdict: Verdict, reason: str) -> None:
        """Stop it cooperatively; at once when it only waits."""
        if attempt.ended:
            return
        told = attempt.verdict is not None
        if told and verdict is not Verdict.LOST:
            return  # it is being stopped already
        hides = verdict is Verdict.LOST and attempt.verdict is not Verdict.LOST
        attempt.verdict, attempt.reason = verdict, reason
        if attempt.started == 0.0:
            self._backlog.removed()
            self._finish(attempt, report_verdict(attempt, time.time()))
            return
        if hides and not attempt.answered:
            self._hide(1)
        if told:
            return
        attempt.stop_timer()
        attempt.timer = self._loop.call_later(self._config.grace_s, self._overdue, attempt)
        if attempt.context is not None:
            attempt.context.stop(reason)
        if attempt.handler.kind is Kind.ASYNC:
            self._coroutines.cancel(attempt)

    def _overdue(self, attempt: Attempt) -> None:
        """The grace is over and the handler still runs: report its end, keep its slot."""
        attempt.timer = None
        if attempt.ended or attempt.answered:
            return
        _log.warning(
            "task %s attempt %d did not stop within %g s (%s); its slot stays occupied",
            attempt.order.id,
            attempt.order.attempt,
            self._config.grace_s,
            attempt.reason,
        )
        if attempt.verdict is Verdict.LOST:
            return
        self._finish(attempt, report_verdict(attempt, time.time()), running=True)
        self._hide(1)

    def _ended(self, attempt: Attempt, report: Report) -> None:
        """A runner is done with it."""
        self._busy -= 1
        if attempt.answered or attempt.verdict is Verdict.LOST:
            self._hide(-1)
        self._finish(attempt, report)
        if self._busy == 0:
            self._idle.set()
        if len(self._backlog):
            self.fill()

    def _finish(self, attempt: Attempt, report: Report, *, running: bool = False) -> None:
        """Answer for the attempt, unless that was done or does not count any more."""
        attempt.ended = not running
        error, attempt.error = attempt.error, None  # it holds frames, and they this attempt
        attempt.stop_timer()
        if self._ledger is not None and attempt.started and not running:
            self._write(attempt, "end", outcome_of(attempt, report))
        if attempt.answered:
            return
        attempt.answered = True
        order = attempt.order
        if self._attempts.get(order.id) is attempt:
            del self._attempts[order.id]
        if attempt.verdict is Verdict.LOST or self._tenure is None:
            return
        self._tenure.rules.ended(order.id, order.attempt, order.fence)
        self._reporter.add(report)
        if isinstance(report, DidFail):
            tell(order, report, error)

    def _hide(self, change: int) -> None:
        self._hidden += change
        self._on_change()

    def _write(self, attempt: Attempt, event: str, outcome: str = "") -> None:
        assert self._ledger is not None
        try:
            self._ledger.write(Entry.of(attempt, self._agent, event, outcome))
        except OSError as error:
            _log.error("the ledger cannot be written and misses a line: %s", error)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _returned(order: Run, reason: str) -> DidReturn:
    return DidReturn(order.id, order.attempt, reason, order.fence)
