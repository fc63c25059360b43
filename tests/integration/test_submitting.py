"""The submitting side against real servers; leaders and agents are played by hand."""

import asyncio
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from tests.integration.desk import WAIT_S, Desk
from zkcoord import Priority, Queue
from zkcoord.config import SessionConfig
from zkcoord.core import results
from zkcoord.core.records import Control
from zkcoord.core.wire import STRUCTURED_HEADERS, decode_call
from zkcoord.errors import (
    BufferFull,
    NodeMissing,
    Rejected,
    ResultTimeout,
    SessionClosed,
    StreamClosed,
    TaskCancelled,
    TaskFailed,
    TaskTooLarge,
)


@pytest.fixture
def desk(kafka: str, zookeeper: str, queue_name: str) -> Iterator[Desk]:
    made = Desk(kafka, zookeeper, queue_name)
    made.publish("accept")
    yield made
    made.close()


def test_a_submitted_task_is_read_as_it_was_meant(desk: Desk) -> None:
    with desk.queue() as queue:

        @queue.task(attempts=5, timeout=30, requires=("gpu",))
        def send(to: str, *, copies: int = 1) -> str:
            raise NotImplementedError

        before = time.time()
        ticket = send.options(
            priority=Priority.HIGH,
            deadline=60,
            delay=1.5,
            tenant="shop",
            key="user-42",
            id="order-7",
            retry=0.25,
            trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ).submit("ä@example.org", copies=2)
        assert ticket.confirmed.result(0) == 0
        assert (ticket.id, ticket.verdict.kind, ticket.state) == ("order-7", "accept", "submitted")

    (read,) = desk.submissions(Priority.HIGH, 1)
    assert (read.id, read.task, read.priority) == ("order-7", "send", Priority.HIGH)
    assert (read.attempts, read.timeout, read.delay) == (5, 30.0, 0.25)
    assert (read.tenant, read.key, read.requires) == ("shop", b"user-42", ("gpu",))
    assert read.trace == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert read.expires_at == pytest.approx(before + 60, abs=5)
    assert read.not_before == pytest.approx(before + 1.5, abs=5)
    assert read.reply in (0, 1)
    assert read.headers == STRUCTURED_HEADERS
    call = decode_call(read.value, read.headers, read.key)
    assert call == ("send", ["ä@example.org"], {"copies": 2})


def test_many_at_once_keep_their_order(desk: Desk) -> None:
    with desk.queue() as queue:

        @queue.task()
        def work(n: int) -> None: ...

        quick = work.options(key="one", result=False)
        tickets = [quick.submit_nowait(n) for n in range(3000)]
        assert queue.flush(WAIT_S) == 0
        assert sorted(t.confirmed.result(0) for t in tickets) == list(range(3000))
        with pytest.raises(ResultTimeout, match="without asking"):
            tickets[0].result(0)
    read = desk.submissions(Priority.NORMAL, 3000)
    assert [submission.id for submission in read] == [ticket.id for ticket in tickets]
    assert [ticket.id for ticket in tickets] == sorted(
        (ticket.id for ticket in tickets), key=lambda task_id: task_id[:10]
    )
    assert {submission.reply for submission in read} == {None}


def test_results_come_to_their_tickets(desk: Desk) -> None:
    with desk.queue() as queue:
        ended = [queue.submit_raw("t", (n,)) for n in range(4)]
        waiting = queue.submit_raw("t")
        by_id = {read.id: read for read in desk.submissions(Priority.NORMAL, 5)}
        done, failed, cancelled, refused = (by_id[ticket.id] for ticket in ended)

        # Results of others, rubbish, and rubbish under our own id change nothing.
        for key, value in [
            (b"stranger", b"{}"),
            (None, b""),
            (b"\xff", b""),
            (waiting.id.encode(), b"rubbish"),
            (waiting.id.encode(), None),
        ]:
            desk.producer.send(desk.topics.results, value, key=key, partition=done.reply)
        desk.succeed(done, {"n": 1})
        desk.succeed(done, "a repeat")
        for submission, state in (
            (failed, "dead"),
            (cancelled, "cancelled"),
            (refused, "rejected"),
        ):
            desk.answer(
                submission,
                results.ended(
                    submission.id, state, reason="why", error="how", fact="1.1", retry_after=3
                ),
            )
        assert ended[0].result(WAIT_S) == {"n": 1}
        with pytest.raises(TaskFailed, match="is dead: why: how"):
            ended[1].result(WAIT_S)
        with pytest.raises(TaskCancelled):
            ended[2].result(WAIT_S)
        with pytest.raises(Rejected) as caught:
            ended[3].result(WAIT_S)
        assert caught.value.retry_after == 3
        assert [ticket.state for ticket in ended] == ["succeeded", "dead", "cancelled", "rejected"]
        assert not waiting.done()
        desk.succeed(by_id[waiting.id], None)
        assert waiting.result(WAIT_S) is None


async def test_asyncio(desk: Desk) -> None:
    async with desk.queue() as queue:

        @queue.task()
        async def add(a: int, b: int) -> int:
            raise NotImplementedError

        tickets = await asyncio.gather(*(add.submit_async(n, 1) for n in range(20)))
        read = await asyncio.to_thread(desk.submissions, Priority.NORMAL, 20)

        def answer() -> None:
            for submission in read:
                desk.succeed(submission, sum(decode_call(submission.value, submission.headers)[1]))

        answering = asyncio.create_task(asyncio.to_thread(answer))
        assert await asyncio.gather(*tickets) == [n + 1 for n in range(20)]
        await answering
        await tickets[0].cancel_async("late")
    (record,) = await asyncio.to_thread(desk.read, desk.topics.control, 1)
    assert msgspec.json.decode(record.value or b"", type=Control).id == tickets[0].id


async def test_opening_does_not_freeze_the_event_loop(desk: Desk) -> None:
    queue = desk.queue()
    with pytest.raises(RuntimeError, match="async with queue"):
        queue.submit_raw_nowait("t")
    async with queue:
        ticket = queue.submit_raw_nowait("t")
        await asyncio.wrap_future(ticket.confirmed)
        with pytest.raises(RuntimeError, match="to_thread"):
            queue.flush()


def test_what_was_handed_over_is_flushed_at_exit(desk: Desk) -> None:
    program = (
        "import sys; from zkcoord import Queue; name, kafka, zookeeper = sys.argv[1:]\n"
        "queue = Queue(name, kafka=kafka, zookeeper=zookeeper)\n"
        "for n in range(500): queue.submit_raw_nowait('t', (n,), result=False)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, desk.name, desk.kafka, desk.zookeeper],
        check=True,
        timeout=60,
    )
    desk.submissions(Priority.NORMAL, 500)


def test_two_tickets_of_one_id_hear_the_same(desk: Desk) -> None:
    with desk.queue() as queue:
        first = queue.submit_raw("t", id="same")
        second = queue.submit_raw("t", id="same")
        read = desk.submissions(Priority.NORMAL, 2)
        desk.succeed(read[0], 7)
        assert [first.result(WAIT_S), second.result(WAIT_S)] == [7, 7]


def test_cancel_is_a_control_record(desk: Desk) -> None:
    with desk.queue() as queue:
        ticket = queue.submit_raw("t")
        ticket.cancel("no longer wanted")
    (record,) = desk.read(desk.topics.control, 1)
    asked = msgspec.json.decode(record.value or b"", type=Control)
    assert (asked.action, asked.id, asked.reason) == ("cancel", ticket.id, "no longer wanted")


# --- bounds and life ----------------------------------------------------------------------------


def test_a_full_buffer_is_back_pressure(desk: Desk) -> None:
    with desk.queue(buffer_records=10, linger_s=0.5) as queue:
        tickets = []
        with pytest.raises(BufferFull):
            while len(tickets) < 100:
                tickets.append(queue.submit_raw_nowait("t", result=False))
        assert 10 <= len(tickets) < 100
        # A waiting submission gets in once there is room.
        queue.submit_raw("t", result=False)
        assert queue.flush(WAIT_S) == 0
        assert all(ticket.confirmed.exception(0) is None for ticket in tickets)


def test_waiting_tickets_are_bounded_and_forgotten_with_their_holder(desk: Desk) -> None:
    with desk.queue(waiting_max=3) as queue:
        held = [queue.submit_raw("t") for _ in range(3)]
        with pytest.raises(BufferFull, match="3 tickets wait"):
            queue.submit_raw("t")
        queue.submit_raw("t", result=False)
        held.pop()
        held.append(queue.submit_raw("t"))


def test_too_large_is_refused_before_it_is_sent(desk: Desk) -> None:
    with desk.queue() as queue:
        with pytest.raises(TaskTooLarge, match=r"task 't': .* the queue takes 786432"):
            queue.submit_raw("t", ("x" * 800_000,))
        queue.submit_raw("t", ("x" * 780_000,))
    desk.submissions(Priority.NORMAL, 1)


def test_a_queue_that_does_not_exist(desk: Desk) -> None:
    with (
        Queue("nowhere", kafka=desk.kafka, zookeeper=desk.zookeeper) as queue,
        pytest.raises(NodeMissing, match="nowhere"),
    ):
        queue.submit_raw("t")


def test_closing_tells_those_who_wait(desk: Desk) -> None:
    queue = desk.queue()
    ticket = queue.submit_raw("t")
    unsent = queue.submit_raw_nowait("t")
    queue.close()
    assert unsent.confirmed.result(0) >= 0  # close sends what it took
    with pytest.raises(StreamClosed, match="the task goes on"):
        ticket.result(WAIT_S)
    for call in (queue.flush, queue.pressure, lambda: queue.submit_raw("t")):
        with pytest.raises(StreamClosed):
            call()
    with pytest.raises(StreamClosed):
        ticket.cancel()


def test_a_shared_session_stays_open(desk: Desk) -> None:
    with Queue(
        desk.name, kafka=desk.kafka, zookeeper=desk.zookeeper, session=desk.session
    ) as queue:
        queue.submit_raw("t")
    assert desk.session.connected
    with Queue(
        desk.name,
        kafka=desk.kafka,
        zookeeper=desk.zookeeper,
        session=SessionConfig(timeout_s=5.0),
    ) as queue:
        queue.submit_raw("t")
        own = queue._submitter._session
    with pytest.raises(SessionClosed):
        own.nodes.get("/")


def test_results_are_read_from_where_the_topic_ended_before_the_first_submission(
    desk: Desk,
) -> None:
    """From its end as it is when the client gets there, a quick result would be passed over."""
    with desk.queue() as queue:
        queue.submit_raw("t", result=True)
        (position,) = queue._submitter._results._reader.positions().values()
        assert position == 0


def test_a_forked_child_is_told(desk: Desk) -> None:
    queue = desk.queue()
    ticket = queue.submit_raw("t")
    child = os.fork()
    if child == 0:
        told = []
        try:
            for call in (lambda: queue.submit_raw("t"), ticket.cancel, queue.flush):
                try:
                    call()
                except StreamClosed as error:
                    told.append("forked" in str(error))
            queue.close()
        finally:
            os._exit(0 if told == [True, True, True] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    queue.submit_raw("t")
    queue.close()
    desk.submissions(Priority.NORMAL, 2)


# In a process of its own, in which nothing else runs when it forks: had another thread been
# resolving a name, its child could never do so (the C library's lock stays held there).
OPENS_FIRST = """
import os, sys
from zkcoord import Queue

queue = Queue(sys.argv[1], kafka=sys.argv[2], zookeeper=sys.argv[3])
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
queue.submit_raw("t", id="from-the-parent" if child else "from-the-child")
queue.close()
"""


def test_a_child_that_opens_first_can_submit(desk: Desk) -> None:
    program = [sys.executable, "-c", OPENS_FIRST, desk.name, desk.kafka, desk.zookeeper]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    ids = {submission.id for submission in desk.submissions(Priority.NORMAL, 2)}
    assert ids == {"from-the-child", "from-the-parent"}


def test_threads_share_a_queue(desk: Desk) -> None:
    numbers = itertools.count()
    with desk.queue() as queue, ThreadPoolExecutor(8) as pool:
        tickets = list(pool.map(lambda _: queue.submit_raw("t", (next(numbers),)), range(200)))
        assert len({ticket.id for ticket in tickets}) == 200
        read = desk.submissions(Priority.NORMAL, 200)
        for submission in read:
            desk.succeed(submission, decode_call(submission.value, submission.headers)[1][0])
        found = list(pool.map(lambda ticket: ticket.result(WAIT_S), tickets))
    assert sorted(found) == list(range(200))
