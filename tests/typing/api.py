"""What type checkers see of the submitting side. Checked by mypy, never run."""

from typing import assert_type

from zkcoord.core.records import Priority
from zkcoord.queue.context import TaskContext
from zkcoord.queue.handle import Queue
from zkcoord.queue.ticket import Ticket

queue = Queue("mail", kafka="localhost:9092", zookeeper="localhost:2181")


@queue.task(attempts=5, timeout=30)
def send(to: str, template: str, *, copies: int = 1) -> str:
    return to * copies + template


@queue.task(name="mail.fetch", requires=("imap",))
async def fetch(box: str) -> list[int]:
    return [len(box)]


@queue.task()
def work(ctx: TaskContext, size: int) -> float:
    return ctx.remaining() / size


@queue.task()
async def work_async(ctx: TaskContext, size: int) -> None:
    ctx.check()


def sync_side() -> None:
    ticket = send.submit("a@example.org", "welcome", copies=2)
    assert_type(ticket, Ticket[str])
    assert_type(ticket.result(timeout=60), str)
    assert_type(ticket.result(), str)
    assert_type(send("a@example.org", "welcome"), str)
    assert_type(
        send.options(priority=Priority.CRITICAL, deadline=30, tenant="shop").submit("b", "c"),
        Ticket[str],
    )
    assert_type(fetch.submit("inbox"), Ticket[list[int]])
    assert_type(work.submit(3), Ticket[float])
    assert_type(work_async.submit_nowait(size=3), Ticket[None])

    send.submit("a@example.org")  # type: ignore[call-arg]
    send.submit("a@example.org", 7)  # type: ignore[arg-type]
    send.submit("a@example.org", "welcome", cc="x")  # type: ignore[call-arg]
    work.submit("three")  # type: ignore[arg-type]
    send.options(colour="red")  # type: ignore[call-arg]
    send.options(priority="high")  # type: ignore[arg-type]
    queue.task(attempts="many")  # type: ignore[arg-type]


async def async_side() -> None:
    ticket = await send.submit_async("a@example.org", "welcome")
    assert_type(ticket, Ticket[str])
    assert_type(await ticket, str)
    assert_type(await fetch("inbox"), list[int])
    assert_type(await (await work.submit_async(1)), float)
