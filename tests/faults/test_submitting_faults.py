"""Submitting while servers are paused, killed and restarted."""

import socket
from collections.abc import Iterator

import pytest

from tests.integration.desk import WAIT_S, Desk, until
from zkcoord import Priority, Queue
from zkcoord.config import SessionConfig, SubmitterConfig
from zkcoord.core.wire import decode_call
from zkcoord.errors import (
    BrokerUnavailable,
    EnsembleUnavailable,
    PublishTimeout,
    Rejected,
    ResultTimeout,
)
from zkcoord.local import Stack


@pytest.fixture
def desk(own_stack: Stack, queue_name: str) -> Iterator[Desk]:
    made = Desk(own_stack.kafka, own_stack.zookeeper, queue_name)
    made.publish("accept")
    yield made
    made.close()


def test_a_paused_broker_leaves_the_outcome_open(own_stack: Stack, desk: Desk) -> None:
    with desk.queue(submit_s=1.0) as queue:
        queue.submit_raw("t", ("before",))
        own_stack.brokers[0].pause()
        try:
            with pytest.raises(PublishTimeout, match=r"lost-or-not .* may or may not") as caught:
                queue.submit_raw("t", ("during",), id="lost-or-not")
            assert caught.value.retriable
            late = queue.submit_raw_nowait("t", ("late",))
            with pytest.raises(ResultTimeout):
                late.result(0.05)
            with pytest.raises(PublishTimeout, match="cancel"):
                late.cancel(timeout=0.1)
        finally:
            own_stack.brokers[0].resume()
        assert late.confirmed.result(WAIT_S) >= 0
        read = {
            decode_call(submission.value, submission.headers)[1][0]: submission
            for submission in desk.submissions(Priority.NORMAL, 3)
        }
        assert set(read) == {"before", "during", "late"}
        desk.succeed(read["late"], "done")
        assert late.result(WAIT_S) == "done"


def test_results_come_after_a_broker_restart(own_stack: Stack, desk: Desk) -> None:
    with desk.queue() as queue:
        ticket = queue.submit_raw("t", (1,))
        own_stack.brokers[0].kill()
        own_stack.brokers[0].start()
        other = queue.submit_raw("t", (2,))
        for submission in desk.submissions(Priority.NORMAL, 2):
            desk.succeed(submission, decode_call(submission.value, submission.headers)[1][0])
        assert (ticket.result(WAIT_S), other.result(WAIT_S)) == (1, 2)


def test_submitting_goes_on_without_zookeeper(own_stack: Stack, desk: Desk) -> None:
    """A short outage changes nothing; the session renews itself and new pressure is heard."""
    queue = Queue(
        desk.name,
        kafka=desk.kafka,
        zookeeper=desk.zookeeper,
        session=SessionConfig(timeout_s=4.0),
    )
    with queue:
        assert queue.submit_raw("t").verdict.kind == "accept"
        own_stack.zookeepers[0].kill()
        assert queue.submit_raw("t").verdict.kind == "accept"
        own_stack.zookeepers[0].start()
        until("our own session", lambda: desk.session.connected)
        desk.publish("reject", fill=0.9, retry_after=4.0)
        with pytest.raises(Rejected):
            until("the news", lambda: not queue.submit_raw("t"))


def test_servers_that_are_not_there(desk: Desk) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and never listened to
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        bounds = SubmitterConfig(open_s=1.0, submit_s=1.0)
        with (
            Queue(desk.name, kafka=desk.kafka, zookeeper=nobody, config=bounds) as queue,
            pytest.raises(EnsembleUnavailable, match=nobody),
        ):
            queue.submit_raw("t")
        with Queue(desk.name, kafka=nobody, zookeeper=desk.zookeeper, config=bounds) as queue:
            with pytest.raises(BrokerUnavailable, match=nobody):
                queue.submit_raw("t")
            with pytest.raises(PublishTimeout):
                queue.submit_raw("t", result=False)
            queue.close(timeout=0.1)
