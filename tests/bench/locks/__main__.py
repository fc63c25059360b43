"""What locks cost, against rivals and the raw floor, in one run: ``make bench-locks``.

    python -m tests.bench.locks [ROW...] [--short]   measures; writes build/bench-locks.json
    python -m tests.bench.locks --page               writes docs/explanation/lock-speed.md from it

Nothing is asserted. A goal that is not met is printed as such.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.bench.locks import OUTPUT, ROWS, show
from tests.bench.locks import page as speed_page


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.locks", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all")
    parser.add_argument("--short", action="store_true", help="a tenth of the load")
    parser.add_argument("--page", action="store_true", help="write the page of the last run")
    given = parser.parse_args()
    if unknown := set(given.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if given.page:
        speed_page.write()
        return
    if given.short and not os.environ.get("ZKCOORD_BENCH_SHORT"):
        os.environ["ZKCOORD_BENCH_SHORT"] = "1"  # read at import
        os.execv(sys.executable, [sys.executable, "-m", "tests.bench.locks", *sys.argv[1:]])
    for name in given.rows or ROWS:
        show(speed_page.keep(ROWS[name](), name))
    print(f"written to {OUTPUT}", file=sys.stderr)


if __name__ == "__main__":
    main()
