"""``python -m tests.chaos``: every story about every lock, and a verdict. ``make chaos-locks``.

Ends with status 1 when our lock breaks a rule, or when a mutant or kazoo gets away with what it
must be convicted of.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos import report
from tests.chaos.arena import Arena
from tests.chaos.catalogue import STORIES, Outcome, Story, run
from tests.chaos.stage import OURS, SUBJECTS, Subject

ROOT = Path(__file__).resolve().parents[2]
Task = tuple[Story, Subject]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--only", default="", help="stories whose name or number contains this")
    parser.add_argument("--subject", default="", help="zkcoord, kazoo, unguarded or a mutant")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--size", type=float, default=1.0, help="1 is everything")
    parser.add_argument("--lanes", type=int, default=4, help="stories at a time that share servers")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "chaos-locks.json")
    parser.add_argument("--add", action="store_true", help="put it beside what the last run found")
    parser.add_argument("--page", action="store_true", help="write the table of the last run")
    return parser.parse_args()


def chosen(only: str, subject: str) -> list[Task]:
    return [
        (story, who)
        for who in SUBJECTS
        for story in STORIES
        if who in story.subjects
        and subject in {"", who.name}
        and (only == story.number or only in story.name)
    ]


class Run:
    """Several stories at a time: those that hurt no server on one ensemble, the others in turn on
    ensembles of their own."""

    def __init__(self, tasks: list[Task], seed: int, size: float) -> None:
        self.outcomes: list[Outcome] = []
        self._seed = seed
        self._size = size
        self._left = len(tasks)
        self._turn = threading.Lock()
        self._tasks: dict[str, queue.SimpleQueue[Task]] = {}
        for where in ("shared", "long", "own"):
            self._tasks[where] = queue.SimpleQueue()
            for task in tasks:
                if task[0].where == where:
                    self._tasks[where].put(task)

    def tell(self, lanes: int) -> None:
        with ExitStack() as stack:
            threads = []
            if not (self._tasks["shared"].empty() and self._tasks["long"].empty()):
                arena = stack.enter_context(Arena())
                threads += [self._lane(one, arena) for one in ("long", *["shared"] * lanes)]
            if not self._tasks["own"].empty():
                arenas = [stack.enter_context(Arena(partitions=True)) for _ in range(3)]
                threads += [self._lane("own", arena) for arena in arenas]
            for thread in threads:
                thread.join()

    def _lane(self, where: str, arena: Arena) -> threading.Thread:
        def work() -> None:
            while True:
                try:
                    story, subject = self._tasks[where].get_nowait()
                except queue.Empty:
                    return
                size = self._size if subject == OURS else min(self._size, 0.3)
                self._note(run(story, arena, subject, seed=self._seed, size=size))

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def _note(self, outcome: Outcome) -> None:
        with self._turn:
            self.outcomes.append(outcome)
            self._left -= 1
            rules = " ".join(outcome.rules) or outcome.skipped or "holds"
            line = f"{outcome.subject:9} {outcome.story:34} {outcome.seconds:5.1f} s  {rules}"
            print(line, f"({self._left} left)", flush=True)


def main() -> None:
    options = arguments()
    if options.page:
        report.write_page(options.out)
        return
    begun = time.monotonic()
    tasks = chosen(options.only, options.subject)
    print(f"{len(tasks)} stories, seed {options.seed}", flush=True)
    whole = Run(tasks, options.seed, options.size)
    whole.tell(options.lanes)
    took = time.monotonic() - begun
    wrong = report.wrong(tasks, whole.outcomes)
    result: dict[str, Any] = {
        "seed": options.seed,
        "size": options.size,
        "seconds": round(took),
        "outcomes": [
            asdict(o) | {"rules": o.rules} for o in sorted(whole.outcomes, key=lambda o: o.story)
        ],
    }
    if options.add:
        result = report.beside(json.loads(options.out.read_text(encoding="utf-8")), result)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1))
    print("\n" + report.table(result))
    for outcome in whole.outcomes:
        if outcome.subject == OURS.name and outcome.violations:
            print(outcome)
    for text in wrong:
        print("WRONG:", text)
    print(f"{len(tasks)} stories in {took:.0f} s, seed {options.seed}, details in {options.out}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
