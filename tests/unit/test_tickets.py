"""Tickets: confirmations, results and errors, without servers."""

import asyncio
import gc
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from zkcoord.core import results
from zkcoord.core.verdict import ACCEPT, Verdict
from zkcoord.errors import (
    BrokerUnavailable,
    ConfigError,
    DecodeError,
    PublishFailed,
    PublishTimeout,
    Rejected,
    ResultTimeout,
    TaskCancelled,
    TaskFailed,
)
from zkcoord.queue.ticket import Latch, Ticket

DECODE = msgspec.json.Decoder().decode


def ticket(decode: Any = DECODE, *, result: bool = True) -> Ticket[Any]:
    return Ticket(
        SimpleNamespace(description=SimpleNamespace(queue="mail")),  # type: ignore[arg-type]
        task_id="t1",
        task="mail.send",
        verdict=Verdict(ACCEPT),
        decode=decode,
        outcome=Latch() if result else None,
    )


def settle(made: Ticket[Any], value: results.Result) -> None:
    assert made._outcome is not None
    made._outcome.settle(value)


SUCCESS = results.succeeded("t1", attempt=1, result=b"[1,2]", started=1, finished=2, fact="1.0")


def test_the_way_of_a_ticket() -> None:
    made = ticket()
    assert made.state == "sending"
    assert not made.confirmed.done()
    made.on_ack(7, None)
    assert made.state == "submitted"
    assert made.confirmed.result(0) == 7
    assert not made.done()
    with pytest.raises(ResultTimeout, match=r"t1 \(mail.send\).*show mail t1") as caught:
        made.result(timeout=0)
    assert caught.value.retriable
    for wrong in (-1, float("inf"), "5"):
        with pytest.raises(ConfigError, match="timeout"):
            made.result(timeout=wrong)  # type: ignore[arg-type]
    settle(made, SUCCESS)
    assert made.done()
    assert made.state == "succeeded"
    assert made.result() == [1, 2]
    assert made.result(timeout=0) == [1, 2]
    assert repr(made) == "<Ticket t1 of 'mail.send': succeeded>"


def test_a_result_wakes_those_who_wait() -> None:
    made = ticket()
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(made.result(timeout=20))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    settle(made, SUCCESS)
    for thread in threads:
        thread.join(20)
    assert found == [[1, 2]] * 4


async def test_await() -> None:
    made = ticket()

    async def later() -> None:
        await asyncio.sleep(0)
        await asyncio.to_thread(settle, made, SUCCESS)

    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(made._await_result()) for _ in range(3)]
        group.create_task(later())
    assert [task.result() for task in waits] == [[1, 2]] * 3
    assert await made == [1, 2]


async def test_giving_up_a_wait_leaves_the_others_alone() -> None:
    made = ticket()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await made
    settle(made, SUCCESS)
    assert await made == [1, 2]


async def test_waiting_in_a_loop_is_refused_but_looking_is_not() -> None:
    made = ticket()
    with pytest.raises(RuntimeError, match="await ticket"):
        made.result()
    with pytest.raises(ResultTimeout):
        made.result(timeout=0)
    with pytest.raises(RuntimeError, match="cancel_async"):
        made.cancel()


@pytest.mark.parametrize(
    ("state", "error"),
    [("failed", TaskFailed), ("dead", TaskFailed), ("cancelled", TaskCancelled)],
)
def test_ends_without_success(state: str, error: type[TaskFailed]) -> None:
    made = ticket()
    settle(made, results.ended("t1", state, reason="exhausted", error="ValueError: no", fact="1.0"))
    with pytest.raises(error, match=f"is {state}: exhausted: ValueError: no") as caught:
        made.result(0)
    assert type(caught.value) is error
    assert (caught.value.task_id, caught.value.state, caught.value.reason) == (
        "t1",
        state,
        "exhausted",
    )


@pytest.mark.parametrize("retry_after", [0.0, 3.5])
def test_rejected_at_intake(retry_after: float) -> None:
    made = ticket()
    settle(
        made,
        results.ended(
            "t1", "rejected", reason="overload", error="", fact="1.0", retry_after=retry_after
        ),
    )
    with pytest.raises(Rejected) as caught:
        made.result(0)
    assert caught.value.reason == "overload"
    assert caught.value.retry_after == max(retry_after, 0.2)


def test_a_result_that_is_not_what_was_promised() -> None:
    made = ticket(msgspec.json.Decoder(str).decode)
    settle(made, SUCCESS)
    with pytest.raises(DecodeError, match="return annotation: Expected `str`"):
        made.result(0)


def test_a_record_that_was_refused_fails_both() -> None:
    made = ticket()
    made.on_ack(None, PublishFailed("no"))
    assert made.state == "lost"
    with pytest.raises(PublishFailed):
        made.confirmed.result(0)
    with pytest.raises(PublishFailed):
        made.result(0)


def test_a_record_whose_fate_is_unknown_may_still_get_a_result() -> None:
    made = ticket()
    made.on_ack(None, PublishTimeout("who knows"))
    with pytest.raises(PublishTimeout):
        made.confirmed.result(0)
    with pytest.raises(ResultTimeout):
        made.result(timeout=0)
    settle(made, SUCCESS)
    assert made.result(0) == [1, 2]


def test_without_result() -> None:
    made = ticket(result=False)
    made.on_ack(1, None)
    assert not made.done()
    with pytest.raises(ResultTimeout, match="without asking"):
        made.result(0)


def test_the_first_outcome_counts() -> None:
    made = ticket()
    settle(made, SUCCESS)
    settle(made, results.ended("t1", "dead", reason="x", error="", fact="2.0"))
    made.on_ack(None, BrokerUnavailable("late"))
    assert made.result(0) == [1, 2]


def test_a_ticket_nobody_holds_is_gone() -> None:
    made = ticket()
    made.confirmed  # noqa: B018
    watch = weakref.ref(made)
    del made
    gc.collect()
    assert watch() is None


def test_latch_under_a_race() -> None:
    for _ in range(300):
        latch: Latch[int] = Latch()
        threads = [threading.Thread(target=latch.settle, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        assert latch.future().result(10) in (0, 1)
        for thread in threads:
            thread.join()
        assert latch.settled
