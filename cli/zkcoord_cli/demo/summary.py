"""What one run of the demo came to: collected, put into one object, and shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zkcoord.queue.ledger import Entry, read
from zkcoord_cli.demo.burst import Burst
from zkcoord_cli.demo.report import History, distribution, efficiency, leader_gap
from zkcoord_cli.demo.shared_file import Findings, examine

RATE_LIMITED = "rate limited"
DEFINITIONS = {
    "latency_ms": "run of the attempt that succeeded, start to end in the handler",
    "turnaround_ms": "the broker's timestamp of the submitted record to that end",
    "efficiency": "busy slot-time over available slot-time while a task could start and had not, "
    "without the time in which no scheduler led",
    "efficiency_with_gap": "the same, with that time",
    "leader_gap_s": "SIGKILL of the leader to the next leader's first dispatch",
    "lost": "submitted and confirmed, without a terminal fact in the log",
    "doubled": "with more than one terminal fact",
    "repeated": "attempts after the first, by why the one before did not end its task",
    "dead_of": "tasks that ended as dead letters, by reason",
    "verdicts": "what admission said to the job's submissions",
    "burst": "small tasks offered for some seconds as fast as verdicts allowed: slow-downs were "
    "waited for, after a refusal the next try came when told",
    "files": "the two files that tasks append to under a lock: lines, and what fair fenced locks "
    "rule out (torn, backward tokens, a task twice)",
    "unmatched_starts": "starts in agents' ledgers without a dispatch of that attempt in the log",
}


@dataclass(slots=True)
class Outcome:
    """All that a report is made of: the log, the ledgers, the files, and when we killed what."""

    tasks: int
    agents: int
    submitted: list[str] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    burst: Burst = field(default_factory=Burst)
    wall_s: float = 0.0
    agent_killed_at: float | None = None
    leader_killed_at: float | None = None
    history: History = field(default_factory=History)
    voids: int = 0
    lives: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    ledgers: dict[str, list[Entry]] = field(default_factory=dict)
    files: dict[str, Findings] = field(default_factory=dict)

    def read_ledgers(self, folder: Path) -> None:
        """Read every agent's ledger below `folder`."""
        for path in sorted(folder.glob("*.ledger")):
            self.ledgers[path.stem] = read(str(path))

    def examine_files(self, paths: Sequence[Path]) -> None:
        """Look through the shared files."""
        self.files = {path.name: examine(path) for path in paths}

    @property
    def sound(self) -> bool:
        """Whether nothing was lost, doubled, run undispatched, or broken."""
        report = self.as_dict()
        return not (
            report["lost"]
            or report["doubled"]
            or report["unmatched_starts"]
            or any(not found.unbroken for found in self.files.values())
        )

    def as_dict(self) -> dict[str, Any]:
        """The report as one JSON object."""
        stories = self.history.stories
        main = [stories[i] for i in self.submitted if i in stories]
        everything = [*self.submitted, *self.burst.ids]
        done = [story for story in main if "succeeded" in story.terminals]
        repeated = Counter(
            reason for story in main if story.attempts > 1 for reason in story.reasons
        )
        gap = self._gap()
        return {
            "submitted": len(self.submitted),
            "succeeded": len(done),
            "dead": sum("dead" in story.terminals for story in main),
            "dead_of": dict(Counter(story.died_of for story in main if story.died_of)),
            "lost": sum(i not in stories or not stories[i].terminals for i in everything),
            "doubled": sum(len(story.terminals) > 1 for story in stories.values()),
            "attempts": sum(story.attempts for story in main),
            "repeated": dict(repeated),
            "rate_limited": repeated[RATE_LIMITED],
            "unmatched_starts": self._unmatched(),
            "superseded": self.history.superseded,
            "void_records": self.voids,
            "agents": self.agents,
            "agents_killed": int(self.agent_killed_at is not None),
            "leaders_killed": int(self.leader_killed_at is not None),
            "leader_gap_s": None if gap is None else round(gap, 3),
            "wall_s": round(self.wall_s, 3),
            "throughput_per_s": round(len(done) / self.wall_s, 1) if self.wall_s else 0.0,
            "latency_ms": distribution([s.finished - s.started for s in done]),
            "turnaround_ms": distribution([s.finished - s.submitted for s in done]),
            "efficiency": round(self._efficiency(without_gap=True), 4),
            "efficiency_with_gap": round(self._efficiency(without_gap=False), 4),
            "verdicts": dict(self.verdicts),
            "burst": self._burst(),
            "files": {name: _file(found) for name, found in self.files.items()},
            "definitions": DEFINITIONS,
        }

    def _gap(self) -> float | None:
        if self.leader_killed_at is None:
            return None
        return leader_gap(self.history.dispatches, self.leader_killed_at)

    def _burst(self) -> dict[str, Any]:
        stories = self.history.stories
        return {
            "submitted": len(self.burst.ids),
            "succeeded": sum(
                i in stories and "succeeded" in stories[i].terminals for i in self.burst.ids
            ),
            "verdicts": dict(self.burst.verdicts),
            "paced_s": round(self.burst.paced_s, 3),
            "refusals_waited_s": round(self.burst.waited_s, 3),
            "refusals_obeyed_and_then_accepted": self.burst.obeyed,
        }

    def _unmatched(self) -> int:
        dispatched = {(task, attempt) for _, _, task, attempt in self.history.dispatches}
        return sum(
            entry.event == "start" and (entry.id, entry.attempt) not in dispatched
            for entries in self.ledgers.values()
            for entry in entries
        )

    def _efficiency(self, *, without_gap: bool) -> float:
        """See :data:`DEFINITIONS`; over the job's own tasks, the burst left out."""
        job = set(self.submitted)
        waits = [wait for i in job for wait in self._waits(i)]
        gap = self._gap()
        if without_gap and gap is not None and self.leader_killed_at is not None:
            begin, end = self.leader_killed_at, self.leader_killed_at + gap
            waits = [piece for wait in waits for piece in _without(wait, begin, end)]
        busy: list[tuple[float, float]] = []
        available: list[tuple[float, float, int]] = []
        last = max((end for _, end in waits), default=0.0)
        for name, entries in self.ledgers.items():
            born, died = self.lives[name]
            until = died if died is not None else last
            first = entries[0].at if entries else born
            available.append((min(first, until), until, 1))
            open_: dict[tuple[str, int], float] = {}
            for entry in entries:
                key = (entry.id, entry.attempt)
                if entry.event == "start":
                    open_[key] = entry.at
                elif key in open_:
                    busy.append((open_.pop(key), entry.at))
            busy.extend((at, until) for at in open_.values())
        return efficiency(waits, busy, available)

    def _waits(self, task: str) -> list[tuple[float, float]]:
        story = self.history.stories.get(task)
        return story.waits if story is not None else []


def _without(wait: tuple[float, float], begin: float, end: float) -> list[tuple[float, float]]:
    """`wait` less the time between `begin` and `end`."""
    pieces = [(wait[0], min(wait[1], begin)), (max(wait[0], end), wait[1])]
    return [piece for piece in pieces if piece[0] < piece[1]]


def _file(found: Findings) -> dict[str, Any]:
    return {
        "lines": found.lines,
        "unbroken": found.unbroken,
        "torn": found.torn,
        "backward": found.backward,
        "twice": found.twice,
        "lock_wait_ms": distribution(found.waits),
    }


def rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    """The report as pairs of label and text."""
    gap = report["leader_gap_s"]
    efficiency = f"{report['efficiency']:.1%} of the slots' time while tasks waited"
    if gap is not None:
        efficiency += f" and somebody led; {report['efficiency_with_gap']:.1%} in all"
    return [
        ("submitted", str(report["submitted"])),
        ("succeeded", str(report["succeeded"])),
        ("dead", _counts(report["dead_of"]) if report["dead"] else "0"),
        ("lost", f"{report['lost']} without an end in the log"),
        ("doubled", f"{report['doubled']} with two ends in the log"),
        ("attempts", f"{report['attempts']}; repeated: {_counts(report['repeated'])}"),
        ("ledgers", f"{report['unmatched_starts']} starts without a dispatch in the log"),
        ("killed", f"agents: {report['agents_killed']}, leaders: {report['leaders_killed']}"),
        ("leader gap", "-" if gap is None else f"{gap:.2f} s from SIGKILL to the next dispatch"),
        ("latency ms", _spread(report["latency_ms"]) + "  (one attempt, start to end)"),
        ("turnaround ms", _spread(report["turnaround_ms"]) + "  (submission to end)"),
        ("efficiency", efficiency),
        ("429s", f"{report['rate_limited']} from the model, each retried when it said"),
        *((name, _file_text(found)) for name, found in report["files"].items()),
        ("verdicts", _counts(report["verdicts"])),
        ("burst", _burst_text(report["burst"])),
    ]


def _burst_text(burst: dict[str, Any]) -> str:
    return (
        f"{burst['succeeded']} of {burst['submitted']} succeeded; "
        f"verdicts: {_counts(burst['verdicts'])}; {burst['refusals_waited_s']:.1f} s waited "
        f"as told, then accepted: {burst['refusals_obeyed_and_then_accepted']}"
    )


def _counts(table: dict[str, int]) -> str:
    return ", ".join(f"{why} {n}" for why, n in sorted(table.items())) or "none"


def _spread(figures: dict[str, float | None]) -> str:
    return "  ".join(
        f"{name} {'-' if figures[name] is None else f'{figures[name]:.1f}'}"
        for name in ("mean", "p50", "p95", "p99")
    )


def _file_text(found: dict[str, Any]) -> str:
    state = "unbroken" if found["unbroken"] else "BROKEN"
    return f"{found['lines']} lines, {state}; lock waits ms: {_spread(found['lock_wait_ms'])}"
