"""Admission at the edge: what submitters make of the pressure that a leader publishes."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.integration.desk import Desk, until
from zkcoord import Priority, Queue
from zkcoord.errors import Rejected
from zkcoord.queue.administration import pressure_path


@pytest.fixture
def desk(kafka: str, zookeeper: str, queue_name: str) -> Iterator[Desk]:
    made = Desk(kafka, zookeeper, queue_name)
    made.publish("accept")
    yield made
    made.close()


def test_rejected_by_pressure_and_nothing_is_written(desk: Desk) -> None:
    desk.publish("reject", fill=0.95, retry_after=7.5)
    with desk.queue() as queue:
        for submit in (queue.submit_raw, queue.submit_raw_nowait):
            with pytest.raises(Rejected, match=r"NORMAL .*try again in [789]\.\d s") as caught:
                submit("t")
            assert caught.value.reason == "overload"
            assert 7.5 <= caught.value.retry_after <= 7.5 * 1.25
            assert caught.value.retriable
        low = queue.submit_raw("t", priority=Priority.LOW)
        assert low.verdict.kind == "accept"
        desk.publish("accept")
        until("the new pressure", lambda: accepted(queue))
        assert queue.submit_raw("t").verdict.kind == "accept"
    desk.submissions(Priority.NORMAL, 1)


def accepted(queue: Queue) -> bool:
    pressure = queue.pressure()
    return pressure is not None and pressure.classes[Priority.NORMAL].verdict == "accept"


def test_slowed_by_pressure(desk: Desk) -> None:
    desk.publish("slow", fill=0.7, pace=0.15)
    with desk.queue() as queue:
        queue.submit_raw("warm", priority=Priority.LOW)
        start = time.monotonic()
        ticket = queue.submit_raw("t")
        assert time.monotonic() - start >= 0.15
        assert (ticket.verdict.kind, ticket.verdict.pace) == ("slow", 0.15)
        assert queue.submit_raw_nowait("t").verdict.pace == 0.15

        async def main() -> float:
            begin = time.monotonic()
            assert (await queue.submit_raw_async("t")).verdict.kind == "slow"
            return time.monotonic() - begin

        assert asyncio.run(main()) >= 0.15


def test_a_deadline_that_cannot_be_met(desk: Desk) -> None:
    desk.publish("accept", fill=0.5)  # half of the 60 s budget
    with desk.queue() as queue:
        with pytest.raises(Rejected, match="deadline of 10 s") as caught:
            queue.submit_raw("t", deadline=10)
        assert caught.value.reason == "infeasible"
        assert caught.value.retry_after > 0
        assert queue.submit_raw("t", deadline=40).verdict.kind == "accept"
        assert queue.submit_raw("t", deadline=10, delay=5).verdict.kind == "accept"


@pytest.mark.parametrize("missing", [True, False], ids=["missing", "old"])
def test_unknown_pressure_slows_a_little_and_refuses_nothing(desk: Desk, missing: bool) -> None:
    desk.publish("reject", age=60.0, retry_after=9.0)
    if missing:
        desk.session.nodes.delete(pressure_path(desk.name))
    with desk.queue() as queue:
        ticket = queue.submit_raw("t")
        assert (ticket.verdict.kind, ticket.verdict.reason) == ("slow", "unknown")
        # A change is news, whatever the clock of the machine it comes from says.
        desk.publish("reject", age=3600.0, retry_after=9.0)
        with pytest.raises(Rejected):
            until("the news", lambda: not queue.submit_raw("t"))


def test_a_znode_that_is_no_pressure(desk: Desk) -> None:
    with desk.queue() as queue:
        assert queue.submit_raw("t").verdict.kind == "accept"
        desk.session.nodes.set(pressure_path(desk.name), b"rubbish")
        until("the rubbish", lambda: queue.pressure() is None)
        assert queue.submit_raw("t").verdict.reason == "unknown"
