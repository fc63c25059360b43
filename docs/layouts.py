"""The reference pages of topics and internal records, as lines of Markdown; see generate.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, get_args

import msgspec

from zkcoord.core import messages, records
from zkcoord.queue import topics

TOPICS_HEAD = """\
Names are `<namespace>.<queue>.<kind>`; namespace `zkcoord` unless the queue was created with
another. Namespace and queue have 1 to 100 letters, digits, `_` and `-`, no dots: a prefix that
ends with a dot covers exactly one queue. `zkcoord queue create` makes the topics, `zkcoord
doctor` compares them with this page.
"""

WHO = {
    "critical": ("anyone", "submitted tasks; the topic is the priority"),
    "high": ("anyone", "the same"),
    "normal": ("anyone", "the same"),
    "low": ("anyone", "the same"),
    "control": ("clients", "cancel, reprioritize, pause, resume"),
    "reports": ("agents", "what became of attempts"),
    "log": ("the leader", "batches of facts: the truth about tasks"),
    "checkpoint": ("the leader", "tasks that live long, and `#position`"),
    "inbox": ("the leader", "dispatches; partition = agent"),
    "results": ("the leader", "ends of tasks, for those who wait"),
    "dead": ("the leader", "what was refused or could not be done, with its bytes"),
}

TOPICS_TAIL = """\
*Exact* settings are checked when a scheduler starts, and must stand; *at least* may be larger;
*at creation* may be changed later. `min.insync.replicas` is one less than the replication, at
least 1.

- Inputs are never expired by time: what was not read stays. The leader deletes what it has
  consumed, and the log behind its checkpoint and the history window (`zkcoord scheduler run QUEUE
  --history`); with `--no-trim` an operator does it: `zkcoord queue trim`.
- What others write takes the broker's time, and its real size counts: compressed records are
  stored uncompressed.
- `inbox` grows when there are more agents than partitions. `log`, `control` and `checkpoint` have
  one partition for ever.
- The replication is 3, or as many as there are brokers when they are fewer.
"""


def topic_page() -> list[str]:
    """The topics of a queue and their settings."""
    out = ["| kind | written by | partitions | holds |", "|---|---|---|---|"]
    made = topics.specs(topics.Topics("q"), replication=3)
    several = topics.specs(topics.Topics("q"), replication=3, partitions=2, inboxes=32)
    for spec, wide in zip(made, several, strict=True):
        kind = spec.name.rpartition(".")[2]
        count = str(spec.partitions) + ("+" if wide.partitions != spec.partitions else "")
        out.append(f"| `{kind}` | {WHO[kind][0]} | {count} | {WHO[kind][1]} |")
    out += ["", "## Settings", "", "With a replication of 3:", ""]
    out += ["| kind | exact | at least | at creation |", "|---|---|---|---|"]
    for spec in made:
        cells = (spec.config, spec.least, spec.initial)
        shown = (" ".join(f"`{key}={value}`" for key, value in one.items()) for one in cells)
        out.append(f"| `{spec.name.rpartition('.')[2]}` | {' | '.join(shown)} |")
    return [*TOPICS_HEAD.splitlines(), "", *out, "", *TOPICS_TAIL.splitlines()]


WIRE_HEAD = f"""\
What the queue's own programs write to each other. Nothing here is for other producers: they use
the [task format](task-format.md). Records are msgpack arrays, fields in the order given; the
first element of a record is the version, {records.VERSION}, and a reader refuses one that it does
not know. An element of a list of facts, orders or reports begins with its number. Times are
wall-clock seconds, resolved by the writer.
"""


def wire_page(markdown: Callable[[str], list[str]]) -> list[str]:
    """The internal records and the values of znodes."""
    out = WIRE_HEAD.splitlines()

    def section(title: str, kinds: Iterable[Any]) -> None:
        out.extend(["", f"## {title}", ""])
        for kind in kinds:
            out.extend([*_heading(kind), "", *markdown(inspect.getdoc(kind) or ""), ""])
            out.extend(["```text", *_fields(kind), "```", ""])

    section("`log`", [records.Batch])
    section("Facts", get_args(records.Fact))
    section("What stands in facts", [records.Submission, records.Origin])
    section("`inbox`", [messages.Inbox, messages.Run, messages.Cancel])
    section("`reports`", [messages.Reports, *get_args(messages.Report)])
    section("`checkpoint`", [records.KeptTask, records.Position])
    section("`control` (JSON)", [messages.Control])
    section("Znodes (JSON)", [messages.AgentInfo, messages.Pressure, messages.ClassPressure])
    return out


def _heading(kind: type[msgspec.Struct]) -> list[str]:
    tag = kind.__struct_config__.tag
    return [f"### {kind.__name__}" + (f" ({tag})" if isinstance(tag, int) else "")]


def _fields(kind: type[msgspec.Struct]) -> list[str]:
    return [f"{name}: {kind.__annotations__[name]}" for name in kind.__struct_fields__]
