"""What a queue does in a second: throughput, start delays, take-over, admission, memory.

    python -m tests.bench.queue [--kafka host:port --zookeeper host:port/chroot]

Without addresses a local stack is started. One leader, one standby, two agents and this process,
the submitter, share the machine with the broker. ``ZKCOORD_BENCH_TASKS`` shrinks the load (100,000
tasks by default). The raw floor beside the throughput is the same number of records written to a
topic and read back in this run, by the same clients without any queue.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.faults.fleet import Fleet, Process, fleet, wait_for
from zkcoord import Priority, Queue
from zkcoord.config import ClassConfig, QueueConfig, SubmitterConfig
from zkcoord.core.records import Dispatched
from zkcoord.errors import BufferFull
from zkcoord.kafka import END, LogReader, Producer, Reader
from zkcoord.queue.options import TaskOptions

SESSION_S = 4.0
TASKS = int(os.environ.get("ZKCOORD_BENCH_TASKS", "100000"))


class Row(NamedTuple):
    """One line of the table; None where there is no such figure."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    rival: float | None = None
    ratio: float | None = None


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def patient() -> QueueConfig:
    """Budgets so long that the bench is never slowed: it measures the machine, not admission."""
    classes = [ClassConfig(budget_s=86400.0, floor=f) for f in (0.4, 0.3, 0.1, 0.05)]
    return QueueConfig(classes=(classes[0], classes[1], classes[2], classes[3]))


# --- throughput and memory --------------------------------------------------------------------


def throughput(crew: Fleet, count: int) -> list[Row]:
    """From the first submit to the last result, tickets and all."""
    config = SubmitterConfig(linger_s=0.005, waiting_max=max(200_000, count))
    with Queue(crew.queue, kafka=crew.kafka, zookeeper=crew.zookeeper, config=config) as queue:

        @queue.task()
        def noop() -> None: ...

        noop.submit().result(timeout=30)
        began = time.perf_counter()
        tickets = []
        while len(tickets) < count:
            try:
                tickets.append(noop.submit_nowait())
            except BufferFull:
                time.sleep(0.005)
        for ticket in tickets:
            ticket.result(timeout=300)
        took = time.perf_counter() - began
    floor = raw_rate(crew, min(count, 50_000))
    rate = count / took
    return [Row("queue.throughput", rate, "tasks/s", floor=floor, ratio=rate / floor)]


def raw_rate(crew: Fleet, count: int) -> float:
    """Records per second written to a topic and read back by this process, without a queue."""
    topic = crew.description.topics.dead
    acked = [0]

    def on_ack(*_: object) -> None:
        acked[0] += 1

    with (
        Producer(crew.kafka_config, client_id="bench", linger_s=0.005, buffer_records=count) as out,
        Reader(crew.kafka_config, client_id="bench") as back,
    ):
        back.assign({(topic, 0): END})
        back.assign({(topic, 0): back.ends(10)[topic, 0]})
        began = time.perf_counter()
        seen = 0
        for n in range(count):
            out.send(topic, b"x" * 200, partition=0, on_ack=on_ack)
            if n % 500 == 0:
                out.poll(0)
                seen += len(back.read(2000, 0.0))
        while seen < count:
            out.poll(0)
            seen += len(back.read(2000, 0.1))
        return count / (time.perf_counter() - began)


def memory(crew: Fleet, count: int) -> list[Row]:
    """The leader's resident memory with `count` pending tasks of 1 KB; no agents run."""
    leader = crew.leader()
    before = psutil.Process(leader.child.pid).memory_info().rss
    crew.submit_bytes(count, size=1024)
    wait_for("all to be taken in", lambda: crew.depth() >= count, timeout=300)
    after = psutil.Process(leader.child.pid).memory_info().rss
    return [Row("queue.leader_memory", after / 1e6, "MB", floor=before / 1e6)]


# --- delays -----------------------------------------------------------------------------------


def start_delays(crew: Fleet, *, rate: float, seconds: float, priority: Priority) -> list[float]:
    """Seconds from `submit_nowait` to the start in the agent's ledger, at a steady rate."""
    submitted: dict[str, float] = {}
    with Queue(crew.queue, kafka=crew.kafka, zookeeper=crew.zookeeper) as queue:

        @queue.task()
        def nap(seconds: float = 0.0, answer: int = 0) -> int: ...

        task = nap.options(priority=priority)
        task.submit().result(timeout=60)
        began = time.perf_counter()
        last = None
        for n in range(int(rate * seconds)):
            pause = began + n / rate - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            at = time.time()
            last = task.submit_nowait()
            submitted[last.id] = at
        assert last is not None
        last.result(timeout=60)
        queue.flush()
    starts: dict[str, float] = {}

    def all_started() -> bool:
        for entry in crew.ledgers():
            if entry["event"] == "start":
                starts[entry["id"]] = min(entry["at"], starts.get(entry["id"], entry["at"]))
        return submitted.keys() <= starts.keys()

    wait_for("every start in the ledgers", all_started, timeout=60)
    warm = list(submitted)[len(submitted) // 3 :]  # connections, caches, the broker's compiler
    return [starts[task_id] - submitted[task_id] for task_id in warm]


def submit_to_start(crew: Fleet, seconds: float) -> list[Row]:
    delays = start_delays(crew, rate=500, seconds=seconds, priority=Priority.NORMAL)
    return [
        Row("queue.submit_to_start.p50", quantile(delays, 0.5) * 1000, "ms"),
        Row("queue.submit_to_start.p99", quantile(delays, 0.99) * 1000, "ms"),
    ]


def critical_behind_low(crew: Fleet, count: int, seconds: float) -> list[Row]:
    crew.submit(count, seconds=0.05, priority="low", prefix=f"low-{time.time():.0f}")
    wait_for("LOW to be taken in", lambda: crew.depth() > count * 0.9, timeout=300)
    delays = start_delays(crew, rate=20, seconds=seconds, priority=Priority.CRITICAL)
    return [
        Row("queue.critical_behind_low.p50", quantile(delays, 0.5) * 1000, "ms"),
        Row("queue.critical_behind_low.p99", quantile(delays, 0.99) * 1000, "ms"),
    ]


def take_over(crew: Fleet, end: Callable[[Process], object]) -> float:
    """Seconds from `end(leader)` to the next leader's first dispatch, by the log's own times."""
    leader = crew.leader()
    term = crew.term_of(leader)
    reader = LogReader(
        crew.kafka_config, crew.description.topics.log, client_id="bench", offset=END
    )
    with reader:
        reader.seek(reader.end(10))
        at = time.time()
        end(leader)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for record in reader.read(500, 0.2):
                batch = crew.decode(record.value)
                if batch.term > term and any(isinstance(f, Dispatched) for f in batch.facts):
                    return batch.at - at
    raise AssertionError(f"no dispatch within 60 s; {crew.logs()}")


# --- admission --------------------------------------------------------------------------------


def admission(crew: Fleet) -> list[Row]:
    with Queue(crew.queue, kafka=crew.kafka, zookeeper=crew.zookeeper) as queue:

        @queue.task()
        def noop() -> None: ...

        noop.submit().result(timeout=30)
        submitter = queue.opened()
        options = TaskOptions(deadline=30.0)
        began = time.perf_counter()
        for _ in range(20_000):
            submitter.admit(options)
        took = (time.perf_counter() - began) / 20_000
    return [Row("queue.admission_check", took * 1e6, "us")]


# --- all of it --------------------------------------------------------------------------------


@contextmanager
def crew_of(
    kafka: str, zookeeper: str, *, agents: tuple[str, ...], config: QueueConfig, schedulers: int = 2
) -> Iterator[Fleet]:
    """A fresh queue with its processes; agents are given as options, one string each."""
    queue = f"bench-{os.getpid()}-{time.monotonic_ns() % 1_000_000_000}"
    with (
        tempfile.TemporaryDirectory() as folder,
        fleet(kafka, zookeeper, queue, Path(folder)) as crew,
    ):
        crew.create(config)
        for _ in range(schedulers):
            crew.add_scheduler("", "--session-timeout", str(SESSION_S))
        for options in agents:
            crew.add_agent("", *options.split())
        crew.leader()
        yield crew


def rows(kafka: str, zookeeper: str, count: int = TASKS) -> list[Row]:
    """All rows of the table, on servers that run."""
    found: list[Row] = []
    fast = "--slots 1000 --no-ledger"
    with crew_of(kafka, zookeeper, agents=(fast, fast), config=patient()) as crew:
        found += throughput(crew, count)
        found += admission(crew)
    with crew_of(kafka, zookeeper, agents=("--slots 100",) * 2, config=patient()) as crew:
        found += submit_to_start(crew, 20.0)
    classes = patient().classes
    reserved = (ClassConfig(budget_s=86400.0, floor=0.4, reserved_slots=1), *classes[1:])
    with crew_of(
        kafka, zookeeper, agents=("--slots 8", "--slots 8"), config=QueueConfig(classes=reserved)
    ) as crew:
        found += critical_behind_low(crew, count, 10.0)
        gap = take_over(crew, lambda leader: leader.kill())
        found.append(Row("queue.leader_killed.next_dispatch", gap, "s", floor=SESSION_S))
        crew.add_scheduler("", "--session-timeout", str(SESSION_S))
        crew.wait_for_standby()
        gap = take_over(crew, lambda leader: leader.send(signal.SIGTERM))
        found.append(Row("queue.hand_over.next_dispatch", gap, "s"))
    with crew_of(kafka, zookeeper, agents=(), config=patient(), schedulers=1) as crew:
        found += memory(crew, count)
    return found


def run() -> list[Row]:
    """All rows, on a stack of its own."""
    from zkcoord.local import Stack

    with Stack() as stack:
        return rows(stack.kafka, stack.zookeeper + "/bench")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka")
    parser.add_argument("--zookeeper")
    args = parser.parse_args()
    if args.kafka and args.zookeeper:
        show(rows(args.kafka, args.zookeeper))
    else:
        show(run())


def show(found: list[Row]) -> None:
    for row in found:
        floor = "" if row.floor is None else f"  floor {row.floor:.1f}"
        print(f"{row.name:40} {row.value:12.2f} {row.unit}{floor}")


if __name__ == "__main__":
    main()
