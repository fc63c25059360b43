"""What locks cost: one file a row, and `run` for the table of all benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.bench.locks.handoff import hand_off
from tests.bench.locks.many import many
from tests.bench.locks.measuring import Row
from tests.bench.locks.permits import semaphore
from tests.bench.locks.uncontended import far, local
from tests.bench.locks.waiters import waiters

ROWS: dict[str, Callable[[], Row]] = {
    "far": far,
    "local": local,
    "many": many,
    "hand-off": hand_off,
    "semaphore": semaphore,
    "waiters": waiters,
}
OUTPUT = Path("build") / "bench-locks.json"

Line = tuple[str, float, str, float | None, float | None, float | None]


def show(row: Row) -> None:
    """A row as text."""
    print(f"\n{row.what} ({row.unit or 'see each'})")
    for name, spread in row.spreads.items():
        print(
            f"  {name:32} p50 {spread.p50:10.2f}  mean {spread.mean:10.2f}  p99 {spread.p99:10.2f}"
        )
    for goal in row.goals:
        sign = "at least" if goal.at_least else "at most"
        verdict = "" if goal.met else "  NOT MET"
        print(f"  {goal.what}: {goal.value:.2f} {goal.unit}, {sign} {goal.bound:g}{verdict}")
    for note in row.notes:
        print(f"  {note}")


def run() -> list[Line]:
    """Name, value, unit, floor, rival (kazoo), ratio of every row."""
    found: list[Line] = []
    for name, measure in ROWS.items():
        row = measure()
        if "zkcoord" not in row.spreads:
            found += [
                (f"lock.{name}.{key}", s.p50, "", None, None, None)
                for key, s in row.spreads.items()
            ]
            continue
        value, (first, *_) = row.spreads["zkcoord"].p50, row.spreads
        kazoo = row.spreads.get("kazoo")
        rival = None if kazoo is None else kazoo.p50
        ratio = None if rival is None else max(rival / value, value / rival)
        found.append((f"lock.{name}", value, row.unit, row.spreads[first].p50, rival, ratio))
    return found
