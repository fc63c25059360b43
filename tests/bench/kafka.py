"""What the kafka room costs: append to read-back latency, and records per second both ways.

    python tests/bench/kafka.py [--kafka host:port]

Without an address a local stack is started. Latency is measured the way a leader uses the log:
append, wait until the record is read back, act. Throughput: 1 KiB records through `send` with one
shared `on_ack`, and back through `read`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

from zkcoord.config import KafkaConfig
from zkcoord.kafka import Admin, LogAppender, LogReader, Producer, Reader, TopicSpec


def quantile(sorted_values: list[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


def append_and_read_back(
    config: KafkaConfig, topic: str, *, size: int, count: int, pace: float
) -> list[float]:
    """Seconds from append to read-back, one at a time, `pace` seconds apart (0: back to back)."""
    value = b"x" * size
    taken = []
    with (
        LogAppender(config, topic, client_id="bench.append") as appender,
        LogReader(config, topic, client_id="bench.read", offset=0) as reader,
    ):
        warm_up = count // 10
        for n in range(count + warm_up):
            if pace:
                time.sleep(pace)
            begun = time.perf_counter()
            appender.append(value)
            while not reader.read(10, 1.0):
                pass
            if n >= warm_up:
                taken.append(time.perf_counter() - begun)
            appender.poll(0)
    return sorted(taken)


def send_rate(config: KafkaConfig, topic: str, *, size: int, count: int, linger: float) -> float:
    """Acknowledged records per second."""
    value = b"x" * size
    acknowledged = 0

    def on_ack(offset: int | None, error: Exception | None) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    with Producer(
        config, client_id="bench.send", linger_s=linger, buffer_records=count
    ) as producer:
        producer.send(topic, value, partition=0)
        producer.flush(10)
        begun = time.perf_counter()
        for n in range(count):
            producer.send(topic, value, partition=0, on_ack=on_ack)
            if n % 500 == 499:
                producer.poll(0)
        producer.flush(60)
        taken = time.perf_counter() - begun
    assert acknowledged == count
    return count / taken


def read_rate(config: KafkaConfig, topic: str, *, count: int, limit: int) -> tuple[float, float]:
    """Records per second, and this process's CPU microseconds per record."""
    with Reader(config, client_id="bench.read", prefetch_bytes=8 * 1024 * 1024) as reader:
        reader.assign({(topic, 0): 0})
        while not reader.read(1, 1.0):
            pass
        seen, begun, cpu = 1, time.perf_counter(), time.process_time()
        while seen < count:
            seen += len(reader.read(limit, 1.0))
        taken, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return count / taken, cpu / count * 1e6


@contextmanager
def bootstrap(given: str | None) -> Iterator[str]:
    if given:
        yield given
        return
    from zkcoord.local import Stack

    with Stack(zookeepers=1, brokers=1) as stack:
        yield stack.kafka


def measure(address: str, *, short: bool = False) -> list[tuple[str, float, str]]:
    """(name, value, unit) per measurement."""
    config = KafkaConfig(bootstrap=address)
    results = []
    stamp = time.time_ns()
    specs = [
        TopicSpec(name=f"bench.{stamp}.{kind}", partitions=1, replication=1)
        for kind in ("tight", "paced", "large", "now", "linger")
    ]
    tight, paced, large, now, linger = (spec.name for spec in specs)
    with Admin(config) as admin:
        admin.create(specs)
        n = 500 if short else 2000
        for name, topic, size, count, pace in (
            ("append to read-back, 300 B back to back", tight, 300, n, 0.0),
            ("append to read-back, 300 B at 100/s", paced, 300, n // 4, 0.01),
            ("append to read-back, 100 KiB back to back", large, 102_400, n // 4, 0.0),
        ):
            taken = append_and_read_back(config, topic, size=size, count=count, pace=pace)
            results += [
                (f"{name}, p50", quantile(taken, 0.50) * 1e3, "ms"),
                (f"{name}, p99", quantile(taken, 0.99) * 1e3, "ms"),
            ]
        count = 20_000 if short else 100_000
        results.append(
            (
                "send 1 KiB, linger 0",
                send_rate(config, now, size=1024, count=count, linger=0.0),
                "1/s",
            )
        )
        results.append(
            (
                "send 1 KiB, linger 5 ms",
                send_rate(config, linger, size=1024, count=count, linger=0.005),
                "1/s",
            )
        )
        rate, cpu = read_rate(config, linger, count=count, limit=500)
        results += [("read 1 KiB", rate, "1/s"), ("read 1 KiB, CPU", cpu, "us")]
        admin.delete([spec.name for spec in specs])
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", help="host:port; a local stack is started without it")
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    with bootstrap(options.kafka) as address:
        for name, value, unit in measure(address, short=options.short):
            print(f"{name:52} {value:12.2f} {unit}")


if __name__ == "__main__":
    main()
