"""How fast one agent takes orders from a filled inbox, runs no-ops and has its reports confirmed.

``python -m tests.bench.agent [tasks]`` starts a stack of its own, fills the inbox of one agent and
prints tasks per second from the first order read to the last report acknowledged. No leader and no
submitter run, so this is the agent's own share of a task's cost.
"""

from __future__ import annotations

import sys
import threading
import time

import msgspec

from zkcoord import Agent, Queue
from zkcoord.config import AgentConfig, KafkaConfig
from zkcoord.core.records import VERSION, DidSucceed, Inbox, Reports, Run
from zkcoord.core.wire import STRUCTURED_HEADERS
from zkcoord.kafka import INTERNAL_RECORD_BYTES_MAX, Admin, Producer, Reader
from zkcoord.local import Stack
from zkcoord.queue.administration import QueueDescription, create_queue
from zkcoord.zk import Session

ORDERS = 100  # in one inbox record
TASKS = ("nothing", "nothing_in_a_thread")


def queue_of(stack: Stack, name: str) -> Queue:
    queue = Queue(name, kafka=stack.kafka, zookeeper=stack.zookeeper)

    @queue.task()
    async def nothing() -> None:
        return None

    @queue.task()
    def nothing_in_a_thread() -> None:
        return None

    return queue


def fill(producer: Producer, topic: str, agent: Agent, queue: str, task: str, count: int) -> None:
    """Write `count` orders to the agent's inbox."""
    value = msgspec.json.encode(
        {
            "specversion": "1.0",
            "id": "0123456789abcdef0123",
            "source": "/bench",
            "type": "zkcoord.task.submit.v1",
            "data": {"task": task, "args": [], "kwargs": {}},
        }
    )
    assert agent.incarnation is not None
    for seq in range(count // ORDERS):
        orders = [
            Run(
                id=f"{task}-{seq * ORDERS + n:020d}",
                attempt=1,
                fence=seq * ORDERS + n,
                task=task,
                priority=2,
                value=value,
                headers=STRUCTURED_HEADERS,
                key=None,
                timeout=30.0,
                expires_at=None,
                trace=None,
            )
            for n in range(ORDERS)
        ]
        record = Inbox(VERSION, queue, 1, agent.incarnation, seq, list(orders))
        producer.send(topic, msgspec.msgpack.encode(record), partition=agent.inbox)
        if seq % 100 == 99:
            producer.flush(30)
    assert producer.flush(30) == 0


def measure(stack: Stack, task: str, count: int, slots: int) -> tuple[float, float]:
    """Tasks per second of wall clock, and of this process's CPU."""
    config = KafkaConfig(bootstrap=stack.kafka)
    name = f"bench-{task.replace('_', '-')}-{slots}"
    queue = queue_of(stack, name)
    with Session(stack.zookeeper) as session, Admin(config) as admin:
        topics = create_queue(session, admin, QueueDescription(queue=name, inboxes=1)).topics
    agent = Agent(queue, config=AgentConfig(slots=slots))
    gate = threading.Event()
    with agent, Reader(config, client_id="bench") as reader:
        crew = agent._crew
        assert crew is not None
        take = crew.executor.take

        def gated(values: list[bytes | None]) -> None:
            gate.wait(60)  # orders wait in the inbox until all are written
            take(values)

        crew.executor.take = gated  # type: ignore[method-assign,assignment]
        with Producer(
            config, client_id="bench", record_bytes_max=INTERNAL_RECORD_BYTES_MAX, linger_s=0.005
        ) as producer:
            fill(producer, topics.inbox, agent, name, task, count)
        begin, cpu = time.perf_counter(), time.process_time()
        gate.set()
        reader.assign({(topics.reports, 0): 0})
        ended = 0
        while ended < count:
            for record in reader.read(100, 5.0):
                said = msgspec.msgpack.decode(record.value or b"", type=Reports)
                ended += sum(type(report) is DidSucceed for report in said.reports)
        taken, used = time.perf_counter() - begin, time.process_time() - cpu
    return count / taken, count / used


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with Stack(zookeepers=1, brokers=1) as stack:
        for task in TASKS:
            for slots in (8, 64):
                rate, per_cpu = measure(stack, task, count, slots)
                print(
                    f"agent {task:20} slots {slots:3}: {rate:9,.0f} tasks/s,"
                    f" {per_cpu:9,.0f} per second of CPU (its reader of reports included)"
                )


if __name__ == "__main__":
    main()
