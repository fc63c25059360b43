"""`@queue.task()`: what it makes of functions. Nothing here opens a connection."""

import asyncio
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

import pytest

from zkcoord import Queue
from zkcoord.core.records import Priority, Run
from zkcoord.errors import ConfigError
from zkcoord.queue.context import TaskContext
from zkcoord.queue.handlers import Kind
from zkcoord.queue.options import TaskOptions
from zkcoord.queue.task import ContextTask, Submittable, Task, result_decoder


@pytest.fixture
def queue() -> Queue:
    return Queue("mail", kafka="127.0.0.1:1", zookeeper="127.0.0.1:1")


@pytest.fixture
def context() -> TaskContext:
    order = Run("i", 1, 1, "t", 2, b"{}", [], None, 30.0, None, None)
    return TaskContext(order, agent="a")


def test_the_function_stays_what_it_was(queue: Queue) -> None:
    @queue.task(attempts=5, timeout=30)
    def send(to: str, template: str = "x") -> str:
        """Send it."""
        return to + template

    assert send("a") == "ax"
    assert isinstance(send, Task)
    assert (send.name, send.__doc__, send.__name__) == ("send", "Send it.", "send")
    assert list(inspect.signature(send).parameters) == ["to", "template"]
    assert queue.tasks == {"send": send}
    assert queue.handlers["send"].function("a", template="y") == "ay"
    assert queue.handlers["send"].kind is Kind.THREAD


async def test_async_functions(queue: Queue) -> None:
    @queue.task(name="mail.fetch")
    async def fetch(box: str) -> int:
        return len(box)

    assert await fetch("inbox") == 5
    assert queue.handlers["mail.fetch"].kind is Kind.ASYNC


def first(queue: Queue) -> Any:
    @queue.task()
    def work(ctx: TaskContext, a: int, b: int = 2) -> tuple[str, int, int]:
        return ctx.id, a, b

    return work


def middle(queue: Queue) -> Any:
    @queue.task()
    def work(a: int, ctx: TaskContext, b: int = 2) -> tuple[str, int, int]:
        return ctx.id, a, b

    return work


def last(queue: Queue) -> Any:
    @queue.task()
    def work(a: int, b: int, *, ctx: TaskContext) -> tuple[str, int, int]:
        return ctx.id, a, b

    return work


def named(queue: Queue) -> Any:
    @queue.task()
    def work(a: int, ctx: Any, b: int = 2, **more: int) -> tuple[str, int, int]:
        return ctx.id, a, b

    return work


@pytest.mark.parametrize("make", [first, middle, last, named])
@pytest.mark.parametrize(
    ("args", "kwargs"), [((1, 2), {}), ((1,), {"b": 2}), ((), {"a": 1, "b": 2})]
)
def test_the_agent_fills_the_context_wherever_it_stands(
    queue: Queue,
    context: TaskContext,
    make: Callable[[Queue], Any],
    args: tuple[int, ...],
    kwargs: dict[str, int],
) -> None:
    task = make(queue)
    handler = queue.handlers["work"]
    assert handler.context_parameter == "ctx"
    given, named = handler.with_context(args, kwargs, context)
    assert handler.function(*given, **named) == ("i", 1, 2)
    assert handler.fits(list(args), kwargs)
    assert not handler.fits([], {})
    task._order(args, kwargs)
    with pytest.raises(TypeError, match="task 'work'"):
        task._order((), {"b": 1})


async def test_the_context_of_an_async_function(queue: Queue, context: TaskContext) -> None:
    @queue.task()
    async def work(ctx: TaskContext, a: int) -> str:
        await asyncio.sleep(0)
        return ctx.id * a

    handler = queue.handlers["work"]
    assert handler.kind is Kind.ASYNC
    given, named = handler.with_context([2], {}, context)
    assert await handler.function(*given, **named) == "ii"
    assert await work(context, 3) == "iii"
    assert isinstance(work, ContextTask)


def test_arguments_are_checked_before_anything_is_sent(queue: Queue) -> None:
    @queue.task()
    def send(to: str, *, copies: int = 1) -> None: ...

    for args, kwargs in [((), {}), (("a", "b"), {}), (("a",), {"cc": "x"})]:
        with pytest.raises(TypeError, match="task 'send'"):
            send.submit(*args, **kwargs)  # type: ignore[arg-type]


def test_options_derive_and_leave_the_task_alone(queue: Queue) -> None:
    @queue.task(attempts=5, tenant="shop")
    def send() -> None: ...

    urgent = send.options(priority=Priority.CRITICAL)
    assert urgent.name == "send"
    chosen = urgent.options(attempts=2)._order((), {}).options
    assert (chosen.priority, chosen.attempts, chosen.tenant) == (Priority.CRITICAL, 2, "shop")
    assert send._order((), {}).options.priority is Priority.NORMAL
    with pytest.raises(ConfigError, match="attempts"):
        send.options(attempts=0)


def test_what_cannot_be_a_task(queue: Queue) -> None:
    def send() -> None: ...

    queue.task()(send)
    with pytest.raises(ConfigError, match="'send' already"):
        queue.task()(send)
    with pytest.raises(ConfigError, match="parentheses"):
        queue.task(send)  # type: ignore[arg-type]
    for nameless in (lambda: 1, functools.partial(send)):
        with pytest.raises(ConfigError, match=r"no name of its own .*name the task"):
            queue.task()(nameless)
    with pytest.raises(ConfigError, match="name:"):
        queue.task(name="")(send)
    with pytest.raises(ConfigError, match="name:"):
        queue.task(name="a\nb")(send)
    with pytest.raises(ConfigError, match="id: belongs to one submission"):
        queue.task(name="x", id="i")(send)
    with pytest.raises(ConfigError, match="attempts"):
        queue.task(attempts=0)
    with pytest.raises(ConfigError, match="generator"):
        queue.task(name="gen")(_numbers)
    assert list(queue.tasks) == ["send"]


def _numbers() -> Any:
    yield 1


def test_blocking_calls_refuse_to_freeze_an_event_loop(queue: Queue) -> None:
    @queue.task()
    def send() -> None: ...

    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"await send\.submit_async"):
            send.submit()
        with pytest.raises(RuntimeError, match="submit_raw_async"):
            queue.submit_raw("send")

    asyncio.run(main())


@dataclasses.dataclass
class Receipt:
    number: int
    lines: tuple[str, ...]


class Foreign:
    pass


def returns_receipt() -> Receipt: ...  # type: ignore[empty-body]
async def returns_set() -> set[int]: ...  # type: ignore[empty-body]
def returns_none() -> None: ...
def returns_unknown() -> "Nowhere": ...  # type: ignore[name-defined]  # noqa: F821
def returns_whatever():  # type: ignore[no-untyped-def]  # noqa: ANN201
    ...


def test_results_are_read_as_what_the_function_returns() -> None:
    read = result_decoder(returns_receipt)(b'{"number":7,"lines":["a"]}')
    assert read == Receipt(7, ("a",))
    assert result_decoder(returns_set)(b"[1,1,2]") == {1, 2}
    assert result_decoder(returns_none)(b"null") is None
    assert result_decoder(returns_unknown)(b'{"a":1}') == {"a": 1}
    assert result_decoder(returns_whatever)(b'{"a":1}') == {"a": 1}
    assert result_decoder(len)(b"3") == 3
    with pytest.raises(ValueError, match="Expected"):
        result_decoder(returns_none)(b"5")


def test_a_closed_queue_says_so(queue: Queue) -> None:
    queue.close()
    queue.close()
    with pytest.raises(RuntimeError, match="'mail' is closed"):
        queue.submit_raw("t")


@pytest.mark.parametrize(
    ("function", "fits", "fails"),
    [
        (lambda: None, [()], [(1,)]),
        (lambda a, b=0: None, [(1,), (1, 2)], [(), (1, 2, 3)]),
        (lambda a, *more: None, [(1,), tuple(range(50))], [()]),
        (lambda a, /, b: None, [(1, 2)], [(1,)]),
        (lambda *, a=1: None, [()], [(1,)]),
        (lambda *, a: None, [], [(), (1,)]),
        (lambda **more: None, [()], [(1,)]),
    ],
)
def test_the_number_of_arguments_is_checked_at_submission(
    function: Any, fits: list[tuple[Any, ...]], fails: list[tuple[Any, ...]]
) -> None:
    task: Submittable[..., Any] = Submittable(cast("Any", None), "t", function, TaskOptions())
    for arguments in fits:
        assert task._order(arguments, {}).args == arguments
    for arguments in fails:
        with pytest.raises(TypeError, match="'t'"):
            task._order(arguments, {})
