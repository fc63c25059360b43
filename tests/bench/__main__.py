"""All benchmarks in one run: ``make bench``, or ``python -m tests.bench [NAME…] [--short]``.

Prints one table, with the raw floor and the rival of the same run beside each figure, and writes it
to ``build/bench.json`` as a list of ``name value unit floor rival ratio``. Nothing is asserted: the
figures depend on the machine, the ratios less so.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

NAMES = ("locks", "queue")
FIELDS = ("name", "value", "unit", "floor", "rival", "ratio")
OUTPUT = Path("build") / "bench.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all")
    parser.add_argument("--short", action="store_true", help="a tenth of the load")
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    if given.short:
        os.environ.setdefault("ZKCOORD_BENCH_SHORT", "1")
        os.environ.setdefault("ZKCOORD_BENCH_TASKS", "10000")
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    rows: list[tuple[object, ...]] = []
    for name in given.names or NAMES:
        print(f"\n{name}", file=sys.stderr)
        found = importlib.import_module(f"tests.bench.{name}").run()
        show(found)
        rows += [tuple(row) for row in found]
        OUTPUT.parent.mkdir(exist_ok=True)
        OUTPUT.write_text(
            json.dumps([dict(zip(FIELDS, row, strict=True)) for row in rows], indent=1) + "\n"
        )
    print(f"written to {OUTPUT}", file=sys.stderr)


def show(rows: Iterable[tuple[object, ...]]) -> None:
    """One line a figure; a dash where there is none."""
    print(f"{'':44} {'value':>12} {'':8} {'floor':>12} {'rival':>12} {'ratio':>8}")
    for name, value, unit, floor, rival, ratio in rows:
        cells = [f"{'-' if cell is None else f'{cell:.2f}':>12}" for cell in (value, floor, rival)]
        times = "-" if ratio is None else f"{ratio:.2f}x"
        print(f"{name:44} {cells[0]} {unit:8} {cells[1]} {cells[2]} {times:>8}", flush=True)


if __name__ == "__main__":
    main()
