"""What reading commands print, byte for byte: JSON that scripts rely on, and plain tables.

The inspector's answers are fixed here. Schemas only grow: a field that disappears or changes its
type needs a new version in the schema's name. ``ZKCOORD_TEST_UPDATE_GOLDEN=1`` writes the files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from click.testing import CliRunner

from zkcoord.errors import NodeMissing
from zkcoord.inspector import (
    AgentView,
    ClassView,
    ContenderView,
    DeadView,
    ElectionView,
    FactView,
    LockView,
    MemberView,
    NodeView,
    PermitView,
    PoolView,
    QueueDetail,
    QueueView,
    SemaphoreView,
    SlotView,
    TaskHistory,
    TaskView,
    TopicView,
)
from zkcoord_cli import formats, options
from zkcoord_cli.main import cli

GOLDEN = Path(__file__).parent / "golden"
NOON = 1_767_268_800.0


def contender(place: int, name: str) -> ContenderView:
    return ContenderView(
        place=place, name=name, host="h1", pid=40 + place, token=700 + place,
        session="0x1000", since=NOON - 90, age=90.0,
    )  # fmt: skip


AGENT = AgentView(
    queue="mail", name="h2:9", host="h2", pid=9, slots=8, partition=3, incarnation=55,
    tasks=["mail.send"], capabilities=["gpu=a100"], since=NOON - 3700, age=3700.0, draining=False,
)  # fmt: skip
QUEUE = QueueView(
    name="mail", namespace="zkcoord", verdict="slow",
    classes=[
        ClassView(priority=name, verdict=verdict, fill=fill, pace=0.25, depth=7, oldest=61.0,
                  rate_in=120.0, rate_out=2.5, budget=60.0, floor=0.1, unread=3)
        for name, verdict, fill in (
            ("critical", "accept", 0.0), ("high", "accept", 0.1), ("normal", "slow", 0.63),
            ("low", "accept", 0.2),
        )
    ],
    paused=False, slots=8, busy=5, pressure_age=1.5, pressure_term=700,
    leader=contender(0, "blue"), standbys=[contender(1, "green")], agents=1,
)  # fmt: skip
TASK = TaskView(
    id="01K9", task="mail.send", state="succeeded", priority="normal", attempt=2, tenant="shop",
    submitted=NOON - 60, accepted=NOON - 59, started=NOON - 10, finished=NOON - 9,
    changed=NOON - 8, partition=3, result='{"sent": true}',
)  # fmt: skip
DEAD_TASK = TaskView(
    id="01KB", task="mail.send", state="dead", priority="low", attempt=5, submitted=NOON - 600,
    changed=NOON - 30, reason="exhausted", error="ValueError: no such address",
)  # fmt: skip
FACTS = [
    FactView(at=NOON - 59, what="accepted", attempt=0, detail="normal 0/17", offset=4),
    FactView(at=NOON - 8, what="succeeded", attempt=2, detail="ran 1.000 s", offset=9),
]
LETTER = DeadView(
    where="0/17", fact="12.0", id=None, task=None, reason="malformed", error="value: is not JSON",
    attempts=0, source="normal/0/4", submitted=NOON - 60, died=NOON - 59, key=None,
    value=b"\xff\x1b[31m{", headers=[("a", b"1"), ("b", None)],
)  # fmt: skip


class FixedInspector:
    """Answers like an inspector over servers that never change."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def queues(self) -> list[QueueView]:
        return [QUEUE]

    def queue(self, name: str) -> QueueDetail:
        if name != "mail":
            raise NodeMissing(f"there is no queue {name!r}", hint="create it")
        topic = TopicView(kind="log", name="zkcoord.mail.log", partitions=1, records=12)
        return QueueDetail(queue=QUEUE, agents=[AGENT], topics=[topic], settings={"timeout_s": 300})

    def agents(self, _: str | None = None) -> list[AgentView]:
        return [AGENT]

    def locks(self) -> list[LockView]:
        free = LockView(name="free", path="/locks/free", holder=None, waiters=[])
        return [self.lock("gpu-0"), free]

    def lock(self, name: str) -> LockView:
        holder, waiter = contender(0, "train"), contender(1, "eval")
        return LockView(
            name=name, path=f"/locks/{name}", holder=holder, waiters=[waiter], holders=[holder]
        )

    def semaphores(self) -> list[SemaphoreView]:
        return [self.semaphore("gpus")]

    def semaphore(self, name: str) -> SemaphoreView:
        holder, waiter = (
            PermitView(**msgspec.structs.asdict(contender(place, who)), weight=2)
            for place, who in enumerate(("train", "eval"))
        )
        return SemaphoreView(
            name=name, path=f"/semaphores/{name}", permits=3, declared=4, held=2, waiting=1,
            holders=[holder], waiters=[waiter],
        )  # fmt: skip

    def pools(self) -> list[PoolView]:
        return [self.pool("gpus")]

    def pool(self, name: str) -> PoolView:
        slots = [
            SlotView(slot="gpu-0", drained=True, holder=contender(0, "train")),
            SlotView(slot="gpu-1", drained=False, holder=None),
        ]
        return PoolView(name=name, path=f"/pools/{name}", slots=slots, waiting=2)

    def members(self, _: str) -> list[MemberView]:
        return [
            MemberView(
                name=name, token=700, session="0x1000", since=NOON - 90, age=90.0,
                capabilities=names, capacity=amount, load=amount, data=data,
            )
            for name, names, amount, data in (
                ("able", ["gpu", "region=eu"], 4.0, b""), ("plain", None, None, b"10.0.0.7"),
            )
        ]  # fmt: skip

    def node(self, path: str) -> NodeView:
        return NodeView(
            path=path, size=2, version=3, children=0, session="0x1000", czxid=700, mzxid=701,
            created=NOON - 90, changed=NOON - 60, data=b"on",
        )  # fmt: skip

    def tree(self, path: str, **_: object) -> tuple[list[NodeView], bool]:
        return [self.node(path), self.node(f"{path}/dark")], False

    def elections(self) -> list[ElectionView]:
        return [self.election("queue/mail")]

    def election(self, name: str) -> ElectionView:
        leader, standby = contender(0, "blue"), contender(1, "green")
        return ElectionView(name=name, path="/x", leader=leader, standbys=[standby])

    def task(self, _: str, __: str, *, timeout: float) -> TaskHistory:
        return TaskHistory(task=TASK, facts=FACTS, complete=True)

    def task_end(self, _: str, task_id: str, *, wait: float, timeout: float) -> TaskHistory:
        view = DEAD_TASK if task_id == DEAD_TASK.id else TASK
        return TaskHistory(task=view, facts=FACTS, complete=True)

    def tasks(self, _: str, *, timeout: float) -> tuple[list[TaskView], int]:
        return [TASK, DEAD_TASK], 0

    def dead_letters(self, _: str, *, reason: str | None, **__: object) -> list[DeadView]:
        return [LETTER] if reason in (None, LETTER.reason) else []

    def dead_letter(self, _: str, __: str, *, timeout: float) -> DeadView:
        return LETTER


@pytest.fixture(autouse=True)
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "open_inspector", lambda _: FixedInspector())
    monkeypatch.setattr(formats.time, "time", lambda: NOON)
    monkeypatch.setattr(formats.time, "localtime", formats.time.gmtime)
    monkeypatch.setenv("ZKCOORD_ZOOKEEPER", "h:1")
    monkeypatch.setenv("ZKCOORD_KAFKA", "h:2")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")


READING = [
    "agent list",
    "dead list mail",
    "dead show mail 12.0",
    "election list",
    "election show queue/mail",
    "lock list",
    "lock show gpu-0",
    "member list /members/web",
    "node get /flags",
    "node tree /flags",
    "pool list",
    "pool show gpus",
    "queue list",
    "queue show mail",
    "semaphore list",
    "semaphore show gpus",
    "task list mail",
    "task result mail 01K9",
    "task show mail 01K9",
]


def compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("ZKCOORD_TEST_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"tests/cli/golden/{name} differs"


@pytest.mark.parametrize("line", READING)
def test_json(line: str) -> None:
    ended = CliRunner().invoke(cli, [*line.split(), "--json"])
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert ended.stdout.count("\n") == 1, "one object, one line"
    document: dict[str, Any] = json.loads(ended.stdout)
    noun, verb = line.split()[:2]
    assert document["schema"] == f"zkcoord.{noun}.{verb}/1"
    pretty = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    compare(f"{noun}-{verb}.json", pretty)


@pytest.mark.parametrize("line", READING)
def test_plain_text(line: str) -> None:
    ended = CliRunner().invoke(cli, line.split())
    assert ended.exit_code == 0
    assert "\x1b" not in ended.stdout, "no escape sequences where there is no terminal"
    noun, verb = line.split()[:2]
    compare(f"{noun}-{verb}.txt", ended.stdout)


def test_a_task_that_died_ends_with_9_and_its_reason_on_stderr() -> None:
    ended = CliRunner().invoke(cli, ["task", "result", "mail", "01KB"])
    assert (ended.exit_code, ended.stdout) == (9, "")
    assert ended.stderr.startswith("error: task 01KB is dead: exhausted\n")
    ended = CliRunner().invoke(cli, ["task", "result", "mail", "01KB", "--json"])
    assert ended.exit_code == 9
    assert json.loads(ended.stdout)["error"] == "ValueError: no such address"


def test_what_is_not_there_ends_with_5() -> None:
    ended = CliRunner().invoke(cli, ["queue", "show", "nope"])
    assert (ended.exit_code, ended.stdout) == (5, "")
    assert ended.stderr == "error: there is no queue 'nope'\n  try: create it\n"


def test_raw_bytes_of_a_dead_letter_are_untouched() -> None:
    ended = CliRunner().invoke(cli, ["dead", "show", "mail", "12.0", "--raw"])
    assert ended.stdout_bytes == b"\xff\x1b[31m{"


def test_filters() -> None:
    ended = CliRunner().invoke(cli, ["task", "list", "mail", "--state", "dead", "--json"])
    assert [item["id"] for item in json.loads(ended.stdout)["items"]] == ["01KB"]
    ended = CliRunner().invoke(cli, ["task", "list", "mail", "--limit", "1", "--json"])
    assert json.loads(ended.stdout)["left_out"] == 1
    ended = CliRunner().invoke(cli, ["dead", "list", "mail", "--reason", "expired", "--json"])
    assert json.loads(ended.stdout)["items"] == []
    ended = CliRunner().invoke(cli, ["lock", "list", "--held", "--json"])
    assert [item["name"] for item in json.loads(ended.stdout)["items"]] == ["gpu-0"]
