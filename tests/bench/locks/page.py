"""Keeps what was measured, and writes the page of docs/explanation from it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import textwrap
from pathlib import Path
from typing import Any

from tests.bench.locks.measuring import SHORT, Row, plain
from zkcoord.local import jars

PAGE = Path("docs") / "explanation" / "lock-speed.md"
OUTPUT = Path("build") / "bench-locks.json"

INTRODUCTION = """\
# How fast locks are

<!-- Written by `python -m tests.bench.locks --page` from a run of `make bench-locks`. -->

All figures of a table are from one run on the same servers; everybody takes turns after a
warm-up, and nobody else works on the machine meanwhile. A figure is the time that a caller sees.
*Floor* is bare requests over a blocking socket with no library at all: less cannot be asked of the
server. Rivals release and wait for it; our `release()` sends and does not wait (the removal is
repeated until it is confirmed). Requests of a session are carried out in order, so an acquire in a
loop pays for the release in front of it. *Confirmed* is `release(timeout=...)`, which waits as the
rivals do. etcd runs on its own servers, with its own protocol and as many members. What is not met
is said so.
"""


def keep(row: Row, name: str) -> Row:
    """Put a row into the file of the last run."""
    try:
        kept: dict[str, Any] = json.loads(OUTPUT.read_text("utf-8"))
    except (OSError, ValueError):
        kept = {}
    kept.setdefault("rows", {})[name] = {**plain(row), "short": SHORT}
    kept["machine"] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "zookeeper": jars.version("zookeeper", "zookeeper"),
        "kazoo": importlib.metadata.version("kazoo"),
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(kept, indent=1) + "\n")
    return row


def figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def confirmed(spreads: dict[str, Any]) -> list[str]:
    """How we compare when we wait for the release as rivals do; no goal, but the fair question."""
    if "zkcoord, confirmed" not in spreads:
        return []
    ours = spreads["zkcoord, confirmed"]["p50"]
    rivals = [name for name in ("kazoo", "curator", "etcd") if name in spreads]
    told = ", ".join(f"{spreads[name]['p50'] / ours:.2f} times {name}'s" for name in rivals)
    return [f"- with the release confirmed, as rivals do it, our speed is {told}"]


def section(row: dict[str, Any]) -> list[str]:
    out = [
        "",
        f"## {row['name'][:1].upper()}{row['name'][1:]}",
        "",
        f"{row['what'][:1].upper()}{row['what'][1:]}.",
    ]
    unit = f" ({row['unit']})" if row["unit"] else ""
    single = all(spread["samples"] == 1 for spread in row["spreads"].values())
    if single:
        out += ["", "| what | figure |", "|---|---:|"]
    else:
        out += ["", f"| who{unit} | median | mean | 99th percentile |", "|---|---:|---:|---:|"]
    for name, spread in row["spreads"].items():
        cells = [spread["p50"]] if single else [spread["p50"], spread["mean"], spread["p99"]]
        out.append("| " + " | ".join([name, *map(figure, cells)]) + " |")
    out.append("")
    for goal in row["goals"]:
        sign = "at least" if goal["at_least"] else "at most"
        unit = goal["unit"] if goal["unit"] != "x" else "times"
        verdict = "met" if goal["met"] else "**not met**"
        value = f"{figure(goal['value'])} {unit}".strip()
        out.append(f"- {goal['what']}: {value}; wanted: {sign} {goal['bound']:g}: {verdict}")
    out += confirmed(row["spreads"])
    out += [f"- {note}" for note in row["notes"]]
    return out


def write() -> None:
    """The page, from the file."""
    kept = json.loads(OUTPUT.read_text("utf-8"))
    if any(row["short"] for row in kept["rows"].values()):
        raise SystemExit(f"{OUTPUT} has rows of a short run: measure in full first")
    machine = kept["machine"]
    where = (
        f"`make bench-locks` measures all of it again. Here: {machine['cores']} cores"
        f" ({machine['system']}) that servers and clients share, Python {machine['python']},"
        f" ZooKeeper {machine['zookeeper']}, kazoo {machine['kazoo']}, Curator 5.9, etcd 3.7."
        " Trust ratios, not the last digit."
    )
    lines = [*INTRODUCTION.splitlines(), "", *textwrap.wrap(where, 98)]
    for row in kept["rows"].values():
        lines += section(row)
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
