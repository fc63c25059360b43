"""How full a queue is: predicted start delay over delay budget, per class.

For class k with queued work Q_k (expected seconds of work, unread records included) and the drain
rate mu (seconds of work per second)::

    R_k    = max(g_k mu, mu - higher - lower)
    higher = sum over the classes j above k of min(in_j, mu)
    lower  = sum over the classes j below k of min(in_j, g_j mu)
    wait_k = Q_k / R_k
    fill_k = wait_k / T_k

with guarantee g_k (the floor), budget T_k and arriving work in_j. What a class gets is what the
higher ones leave and the floors of the lower ones do not take, its own floor at least.

mu is learned from completed *estimated* work, only while there was a backlog: an idle fleet says
nothing about what it could do. So wrong estimates cancel out. Before anything was learned mu is
cautious: one second of work per slot and second, a second per task. On such a guess nothing is
refused: the verdict is *slow* at most. The same holds while no agent is there.

Memory counts too: when the live tasks near the bound of what a class may hold, the fill is at least
their share of it. (Verdict thresholds after the field's 0.6 and 0.8; why delay and not length: Zhou
et al., "Overload Control for Scaling WeChat Microservices", 2018.)

Shares of tenants and learned costs per tenant have their place in `fills`; there are none yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.config import QueueConfig
from zkcoord.core.dispatch import Dispatch
from zkcoord.core.fleet import Fleet
from zkcoord.core.records import ClassPressure, Pressure, Priority
from zkcoord.core.state import State
from zkcoord.core.verdict import ACCEPT, REJECT, RETRY_S_MAX, RETRY_S_MIN, SLOW

NOMINAL_TASK_S = 1.0
ESTIMATE_S_MIN = 0.001
ESTIMATE_S_MAX = 3600.0
NAMES_MAX = 4096
FILL_MAX = 100.0
PACE_S_MAX = 5.0
LEARNED_AFTER = 20
"""Completions with a backlog before a measured rate is believed."""
TICK_S = 1.0
UNREAD_WINDOW = 10_000
"""Tasks of a full class that are held all the same, so that slots never wait for a read."""

_LEVELS = (ACCEPT, SLOW, REJECT)


class Estimates:
    """Expected duration per task name: an exponentially weighted mean. Bounded."""

    __slots__ = ("_known", "_mean")

    def __init__(self) -> None:
        self._known: dict[str, float] = {}
        self._mean: float | None = None

    def of(self, task: str) -> float:
        """Seconds that an attempt of `task` is expected to take."""
        known = self._known.get(task)
        if known is not None:
            return known
        return NOMINAL_TASK_S if self._mean is None else self._mean

    def learn(self, task: str, seconds: float) -> None:
        """An attempt took this long."""
        # In this order a clock that said nonsense, NaN included, counts as the minimum.
        seconds = min(seconds, ESTIMATE_S_MAX) if seconds > ESTIMATE_S_MIN else ESTIMATE_S_MIN
        known = self._known.get(task)
        if known is None and len(self._known) >= NAMES_MAX:
            self._known.pop(next(iter(self._known)))
        self._known[task] = seconds if known is None else known + 0.1 * (seconds - known)
        mean = self._mean
        self._mean = seconds if mean is None else mean + 0.05 * (seconds - mean)


class Meter:
    """Rates of one queue. Counted into by the leader, read once per tick.

    Attributes:
        estimates: per task name.
        rate: mu, seconds of work per second.
        idle_seen: a slot was free with nothing to run since the last tick.
    """

    def __init__(self) -> None:
        self.estimates = Estimates()
        self.rate = 0.0
        self.idle_seen = True
        self.work_in = [0.0] * len(Priority)
        self.rate_in = [0.0] * len(Priority)
        self.rate_out = [0.0] * len(Priority)
        self._accepted = [0] * len(Priority)
        self._offered = [0.0] * len(Priority)
        self._finished = [0] * len(Priority)
        self._done = 0.0
        self._completions = 0
        self._ticked: float | None = None

    @property
    def has_learned(self) -> bool:
        """Whether `rate` was measured."""
        return self._completions >= LEARNED_AFTER

    def note_in(self, priority: int, estimate: float) -> None:
        """A task was accepted."""
        self._accepted[priority] += 1
        self._offered[priority] += estimate

    def note_out(self, priority: int, estimate: float) -> None:
        """An attempt completed."""
        self._finished[priority] += 1
        self._done += estimate

    def tick(self, now: float, slots: int) -> None:
        """Fold the counts since the last tick into the rates."""
        last = self._ticked
        if last is None:
            self._ticked = now
            self.rate = slots * NOMINAL_TASK_S
            return
        elapsed = now - last
        if elapsed < TICK_S / 2:
            return
        self._ticked = now
        # A weight that grows with the time since the last tick keeps the memory at about 5 ticks.
        weight = 1.0 - 0.8 ** (elapsed / TICK_S)
        for k in range(len(self.rate_in)):
            self.rate_in[k] += weight * (self._accepted[k] / elapsed - self.rate_in[k])
            self.rate_out[k] += weight * (self._finished[k] / elapsed - self.rate_out[k])
            self.work_in[k] += weight * (self._offered[k] / elapsed - self.work_in[k])
        self._learn(elapsed, slots, weight)
        zeros = len(self.rate_in)
        self._accepted, self._finished = [0] * zeros, [0] * zeros
        self._offered, self._done = [0.0] * zeros, 0.0
        self.idle_seen = False

    def _learn(self, elapsed: float, slots: int, weight: float) -> None:
        if not self.idle_seen and slots and self._done > 0:
            sample = self._done / elapsed
            first = not self.has_learned
            self._completions += sum(self._finished)
            self.rate = sample if first else self.rate + weight * (sample - self.rate)
        elif self.idle_seen or not self.has_learned:
            nominal = slots * NOMINAL_TASK_S
            self.rate = (
                nominal
                if not self.has_learned
                else max(self.rate, self.rate + 0.05 * (nominal - self.rate))
            )


class Admission:
    """Verdicts of one queue, with hysteresis.

    Args:
        config: thresholds, budgets, bounds.
        meter: the rates.
    """

    def __init__(self, config: QueueConfig, meter: Meter) -> None:
        self._config = config
        self._meter = meter
        self._levels = [0] * len(Priority)
        self._changed = [float("-inf")] * len(Priority)
        self._retry = [RETRY_S_MIN] * len(Priority)

    def refuses(self, priority: int) -> bool:
        """Whether the class's standing verdict is to reject."""
        return self._levels[priority] == len(_LEVELS) - 1

    def retry_after(self, priority: int) -> float:
        """Seconds until the class should be short enough again, above zero."""
        return self._retry[priority]

    def bound(self, priority: int) -> float:
        """Share of the bounds on live tasks that intake of the class may fill.

        Lower classes stop earlier, so that they never keep CRITICAL out.
        """
        return 1.0 - 0.1 * priority

    def is_within_bounds(self, state: State, priority: int) -> bool:
        """Whether one more task of the class may become live."""
        share = self.bound(priority)
        config = self._config
        return (
            len(state.tasks) < share * config.live_tasks_max
            and state.bytes < share * config.live_bytes_max
        )

    def room(self, state: State, priority: int, waiting: int) -> int:
        """How many records of the class intake may read now; the rest stays in the topic."""
        config = self._config
        if (
            config.classes[priority].overflow == "wait"
            and self.refuses(priority)
            and waiting >= UNREAD_WINDOW
        ):
            return 0
        if not self.is_within_bounds(state, priority):
            return 0
        return max(0, int(self.bound(priority) * config.live_tasks_max) - len(state.tasks))

    def pressure(
        self,
        now: float,
        term: int,
        state: State,
        queues: Dispatch,
        fleet: Fleet,
        unread: Sequence[int],
    ) -> Pressure:
        """What to publish. Moves each class's verdict by at most one change a tick."""
        self._meter.tick(now, fleet.slots)
        waits = self.waits(state, queues, fleet, unread)
        classes = []
        for k, (wait, memory) in enumerate(waits):
            budget = self._config.classes[k].budget_s
            fill = min(FILL_MAX, max(wait / budget, memory))
            may_refuse = memory >= self._config.reject_at or (
                self._meter.has_learned and fleet.slots > 0
            )
            level = self.move(k, fill, now, may_refuse=may_refuse)
            late = max(wait - budget / 2, self._drain(len(state.tasks), memory))
            self._retry[k] = min(max(late, RETRY_S_MIN), RETRY_S_MAX)
            oldest = queues.oldest(k)
            classes.append(
                ClassPressure(
                    verdict=_LEVELS[level],
                    fill=round(fill, 3),
                    pace=round(self._pace(fill, budget), 3) if level == 1 else 0.0,
                    retry_after=round(self._retry[k], 3) if level == 2 else 0.0,
                    depth=state.ready[k] + unread[k],
                    oldest=0.0 if oldest is None else round(max(0.0, now - oldest), 3),
                    rate_in=round(self._meter.rate_in[k], 2),
                    rate_out=round(self._meter.rate_out[k], 2),
                )
            )
        critical, high, normal, low = classes
        return Pressure(
            term=term,
            at=now,
            classes=(critical, high, normal, low),
            slots=fleet.slots,
            busy=state.running,
            paused=state.paused,
        )

    def waits(
        self, state: State, queues: Dispatch, fleet: Fleet, unread: Sequence[int]
    ) -> list[tuple[float, float]]:
        """Per class: predicted start delay in seconds, and share of the memory bound in use."""
        meter, config = self._meter, self._config
        # With no agent at all the guess is one slot; it can only slow down, never refuse.
        rate = max(meter.rate, ESTIMATE_S_MIN) if fleet.slots else max(meter.rate, NOMINAL_TASK_S)
        shares = available(rate, meter.work_in, [c.floor for c in config.classes])
        typical = meter.estimates.of("")
        found = []
        for k, queue in enumerate(queues.classes):
            each = queue.work / queue.count if queue.count else typical
            work = queue.work + unread[k] * each
            share = self.bound(k)
            memory = max(
                len(state.tasks) / (share * config.live_tasks_max),
                state.bytes / (share * config.live_bytes_max),
            )
            found.append((work / shares[k], memory if memory > config.slow_exit else 0.0))
        return found

    def move(self, priority: int, fill: float, now: float, *, may_refuse: bool) -> int:
        """The class's next level: 0 accept, 1 slow, 2 reject; never two changes within a tick."""
        config = self._config
        level = self._levels[priority]
        if fill > config.reject_at:
            wanted = 2
        elif fill > config.slow_at:
            wanted = 2 if level == 2 and fill >= config.reject_exit else 1
        elif level and fill >= config.slow_exit:
            wanted = 1
        else:
            wanted = 0
        if wanted == 2 and not may_refuse:
            wanted = 1
        if wanted != level and now - self._changed[priority] >= TICK_S * 0.99:
            self._levels[priority] = level = wanted
            self._changed[priority] = now
        return level

    def _drain(self, live: int, memory: float) -> float:
        """Seconds until the share of memory in use is low enough again."""
        if memory <= self._config.slow_exit:
            return 0.0
        excess = live * (1 - self._config.slow_exit / memory)
        return excess / max(sum(self._meter.rate_out), 0.1)

    def _pace(self, fill: float, budget: float) -> float:
        config = self._config
        span = (fill - config.slow_at) / (config.reject_at - config.slow_at)
        return min(max(span, 0.05) * budget / 4, PACE_S_MAX)


def available(rate: float, work_in: Sequence[float], floors: Sequence[float]) -> list[float]:
    """R per class: the work per second that each class gets when it has a backlog.

    Never below a thousandth of the rate, so that a class without a floor has a finite wait.
    """
    found = []
    for k in range(len(floors)):
        higher = sum(min(work_in[j], rate) for j in range(k))
        lower = sum(min(work_in[j], floors[j] * rate) for j in range(k + 1, len(floors)))
        found.append(max(floors[k] * rate, rate - higher - lower, rate / 1000))
    return found
