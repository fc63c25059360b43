"""Cost of the core per no-op task life, in microseconds. ``python tests/bench/core.py [tasks]``."""

from __future__ import annotations

import cProfile
import gc
import pstats
import resource
import sys
import time
from random import Random

import msgspec

from zkcoord.config import QueueConfig, SchedulerConfig
from zkcoord.core.inputs import Inputs
from zkcoord.core.leader import Leader
from zkcoord.core.outputs import Topic
from zkcoord.core.records import AgentInfo, DidSucceed, Inbox, Origin, Reports
from zkcoord.core.replica import Replica

SLOTS = 512


def submissions(count: int, body: bytes) -> list[tuple]:
    return [(Origin(2, 0, i, 1000.0), None, body, []) for i in range(count)]


def main(count: int, profile: bool, size: int = 0) -> None:
    config = QueueConfig()
    replica, standby = Replica("bench", config), Replica("bench", config)
    leader = Leader(replica, term=1, name="bench", rng=Random(1), config=SchedulerConfig())
    leader.feed(0, leader.opening())
    standby.feed(0, leader.opening())
    for p in range(2):
        leader.joined(p, 100 + p, AgentInfo(f"a{p}", "h", 1, SLOTS, ("bench.noop",)))
    leader.members_known()
    body = b'{"task":"bench.noop","args":[' + b'"' + b"x" * size + b'"' + b"]}"
    records = submissions(count, body)
    inputs = Inputs()
    decode = msgspec.msgpack.Decoder(Inbox).decode
    encode = msgspec.msgpack.Encoder().encode
    spent = dict.fromkeys(["take", "decide", "feed", "ack", "standby"], 0.0)
    clock = time.thread_time
    offset, at, now, done, report_offset, batches = 1, 0, 1000.0, 0, 0, 0
    outbox: list = []
    log_bytes = 0
    gc.collect()
    gc.freeze()
    profiler = cProfile.Profile()
    while done < count:
        now += 0.005
        if profile:
            profiler.enable()
        t0 = clock()
        for record in records[at : at + 200]:
            inputs.take(*record)
        for value in outbox:
            inputs.take(Origin(5, 0, report_offset, now), None, value, [])
            report_offset += 1
        t1 = clock()
        value = leader.decide(inputs, now)
        t2 = clock()
        outbox = []
        at += 200
        spent["take"] += t1 - t0
        spent["decide"] += t2 - t1
        if value is None:
            continue
        batches += 1
        log_bytes += len(value)
        outputs = leader.feed(offset, value)
        t3 = clock()
        leader.acknowledged(offset)
        leader.reminders(now)
        t4 = clock()
        if profile:
            profiler.disable()
        standby.feed(offset, value)
        t5 = clock()
        spent["feed"] += t3 - t2
        spent["ack"] += t4 - t3
        spent["standby"] += t5 - t4
        offset += 1
        for output in outputs:
            if output.topic == Topic.INBOX:
                inbox = decode(output.value)
                said = [DidSucceed(run.id, run.attempt, b"null", now, now) for run in inbox.orders]
                done += len(said)
                outbox.append(encode(Reports(1, output.partition, inbox.incarnation, "a", 1, said)))
    leader_us = sum(v for k, v in spent.items() if k != "standby") / count * 1e6
    print({k: round(v / count * 1e6, 2) for k, v in spent.items()}, "us/task")
    print(f"leader {leader_us:.1f} us/task, standby {spent['standby'] / count * 1e6:.1f} us/task")
    print(f"{batches} batches, {log_bytes / count:.0f} log bytes/task")
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(28)


def memory(count: int) -> None:
    config = QueueConfig()
    replica = Replica("bench", config)
    leader = Leader(replica, term=1, name="bench", rng=Random(1))
    leader.feed(0, leader.opening())
    inputs, offset = Inputs(), 1
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    log = [leader.opening()]
    for i in range(count):
        body = b'{"task":"bench.noop","args":["%07d%s"]}' % (i, b"x" * 990)
        inputs.take(Origin(2, 0, i, 1000.0), None, body, [])
        if inputs.size >= 400 or i == count - 1:
            while inputs.size:
                value = leader.decide(inputs, 1000.0 + i / 1000)
                if value is not None:
                    log.append(None)
                    leader.feed(offset, value)
                    offset += 1
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    live = len(replica.state.tasks)
    print(f"{live} pending of 1 KB: {(after - before) / 1024:.0f} MB more, {after / 1024:.0f} MB")
    print(f"counted as {replica.state.bytes / 1e6:.0f} MB")
    clock = time.thread_time
    t0 = clock()
    second = Leader(replica, term=2, name="second", rng=Random(2))
    second.feed(offset, second.opening())
    t1 = clock()
    second.joined(0, 200, AgentInfo("a", "h", 1, 8, ("bench.noop",)))
    second.members_known()
    value = second.decide(Inputs(), 2000.0)
    t2 = clock()
    print(f"take-over {t1 - t0:.3f} s, first decision {t2 - t1:.3f} s, {len(value)} bytes")


if __name__ == "__main__":
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    main(tasks, profile=False)
    if len(sys.argv) > 2:
        main(tasks, profile=True)
    memory(100_000)
