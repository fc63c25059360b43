"""The public `Queue`: a name, where it lives, and the tasks that belong to it."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from zkcoord.config import KafkaConfig, SessionConfig, SubmitterConfig
from zkcoord.core.records import Control, Pressure
from zkcoord.errors import ConfigError, StreamClosed
from zkcoord.queue.handlers import Handler
from zkcoord.queue.options import TaskOptions
from zkcoord.queue.submitter import Order, Submitter
from zkcoord.queue.task import (
    ContextTask,
    OptionChanges,
    Submittable,
    Task,
    TaskDecorator,
    changed,
    check_name,
)
from zkcoord.queue.ticket import Ticket
from zkcoord.queue.topics import NAMESPACE, Topics
from zkcoord.zk import Session
from zkcoord.zk.blocking import refuse_in_event_loop

CLOSE_S = 10.0
EXIT_S = 5.0

_decode_any = msgspec.json.Decoder().decode


class Queue:
    """A queue, from the side of those who submit, and the table of its tasks for agents.

    Nothing is opened before the first submission, so a module may make its queue when imported,
    and processes may be forked afterwards, as long as no other thread resolves a name meanwhile
    (the C library's resolver can stay locked in the child). Thread-safe. Use it with ``with``, or
    call `close`; at the end of the process what was handed over is flushed for a few seconds.

    Args:
        name: the queue's name.
        kafka: bootstrap servers (``host:port,…``) or a :class:`~zkcoord.config.KafkaConfig`.
        zookeeper: connect string (``host:port,…/chroot``).
        namespace: prefix of the queue's topics.
        session: how its ZooKeeper session behaves, or a started session to share, which is never
            closed here.
        config: bounds of the submitting side.

    Raises:
        ConfigError: a name that cannot work.
    """

    def __init__(
        self,
        name: str,
        *,
        kafka: str | KafkaConfig,
        zookeeper: str,
        namespace: str = NAMESPACE,
        session: SessionConfig | Session | None = None,
        config: SubmitterConfig | None = None,
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.topics = Topics(name, namespace=namespace)
        self.kafka = KafkaConfig(bootstrap=kafka) if isinstance(kafka, str) else kafka
        self.zookeeper = zookeeper
        self.session_config = session if isinstance(session, SessionConfig) else SessionConfig()
        self._shared_session = session if isinstance(session, Session) else None
        self._config = config if config is not None else SubmitterConfig()
        self._tasks: dict[str, Submittable[..., Any]] = {}
        self._lock = threading.Lock()
        self._submitter: Submitter | None = None
        self._pid = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, kafka={self.kafka.bootstrap!r}, zookeeper={self.zookeeper!r})"

    # --- tasks ------------------------------------------------------------------------------------

    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        **options: Unpack[OptionChanges],
    ) -> TaskDecorator:
        """Make a function a task of this queue.

        Args:
            function: never given; it is there to explain a missing pair of parentheses.
            name: the task's name; the function's own by default.
            options: defaults for its submissions, such as ``attempts``, ``timeout``, ``retry``
                and ``requires``; see :class:`~zkcoord.queue.options.TaskOptions`.

        Raises:
            ConfigError: bad options, a name that is taken, or a function that cannot be a task.
        """
        if function is not None:
            raise ConfigError("queue.task needs its parentheses: @queue.task()")
        defaults = changed(TaskOptions(), options)

        def decorate(handler: Any) -> Any:
            return self._add(handler, name, defaults)

        return decorate

    @property
    def tasks(self) -> Mapping[str, Submittable[..., Any]]:
        """The tasks by name."""
        return self._tasks

    @property
    def handlers(self) -> dict[str, Handler]:
        """How an agent calls each task, by name."""
        return {name: task.handler for name, task in self._tasks.items()}

    def _add(self, function: Any, name: str | None, defaults: TaskOptions) -> Any:
        chosen = name if name is not None else getattr(function, "__name__", "")
        if name is None and chosen in ("", "<lambda>"):
            raise ConfigError(
                f"queue {self.name!r}: {function!r} has no name of its own",
                hint='name the task: @queue.task(name="...")',
            )
        if chosen in self._tasks:
            raise ConfigError(f"queue {self.name!r} has a task {chosen!r} already")
        draft: Task[..., Any, Any] = Task(self, chosen, function, defaults)
        parameter = draft.handler.context_parameter
        first = next(iter(draft.parameters), None)
        if parameter is not None and parameter == first:
            made: Submittable[..., Any] = ContextTask(self, chosen, function, defaults)
        else:
            made = draft
        self._tasks[chosen] = made
        return made

    # --- submitting by name -----------------------------------------------------------------------

    def submit_raw(
        self,
        task: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[OptionChanges],
    ) -> Ticket[Any]:
        """Submit a task by its name; no function is needed here. Otherwise as ``task.submit``."""
        refuse_in_event_loop("queue.submit_raw()", "await queue.submit_raw_async(...)")
        order = _raw_order(task, args, kwargs, options)
        return self.opened().submit(order)

    async def submit_raw_async(
        self,
        task: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[OptionChanges],
    ) -> Ticket[Any]:
        """:meth:`submit_raw` for asyncio."""
        order = _raw_order(task, args, kwargs, options)
        submitter = await self.opened_async()
        return await submitter.submit_async(order)

    def submit_raw_nowait(
        self,
        task: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[OptionChanges],
    ) -> Ticket[Any]:
        """Submit a task by its name without waiting, as ``task.submit_nowait``."""
        order = _raw_order(task, args, kwargs, options)
        return self.opened().submit_nowait(order)

    def control(self, control: Control, *, timeout: float | None = None) -> None:
        """Write a control record (cancel, reprioritize, pause, resume) and wait until confirmed.

        Raises:
            PublishTimeout: not confirmed in time; asking again is harmless.
            StreamError: it was not written.
        """
        refuse_in_event_loop("queue.control()", "await asyncio.to_thread(queue.control, ...)")
        self.opened().control(control, timeout=timeout)

    def pressure(self) -> Pressure | None:
        """What the leader published last; None when nothing is known."""
        return self.opened().pressure

    def flush(self, timeout: float = 30.0) -> int:
        """Wait until what was handed over is confirmed or failed; returns how much is left."""
        refuse_in_event_loop("queue.flush()", "await asyncio.to_thread(queue.flush)")
        return self.opened().flush(timeout)

    # --- life -------------------------------------------------------------------------------------

    def opened(self) -> Submitter:
        """The submitting side; opens it at the first call, which blocks."""
        submitter = self._submitter
        if submitter is not None and self._pid == os.getpid():
            return submitter
        self._check_usable()
        refuse_in_event_loop("the first use of a queue", "async with queue: ...")
        with self._lock:
            self._check_usable()
            if self._submitter is None:
                self._submitter = self._open()
                self._pid = os.getpid()
                atexit.register(self._close_at_exit)
            return self._submitter

    async def opened_async(self) -> Submitter:
        """:meth:`opened` without blocking the event loop."""
        if self._submitter is None:
            return await asyncio.to_thread(self.opened)
        return self.opened()

    def close(self, timeout: float = CLOSE_S) -> None:
        """Flush for at most `timeout` seconds and let go of all connections. Harmless twice.

        Tickets that still wait raise ``StreamClosed``; their tasks go on.
        """
        with self._lock:
            self._closed = True
            submitter, self._submitter = self._submitter, None
        if submitter is not None:
            atexit.unregister(self._close_at_exit)
            submitter.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        submitter = await self.opened_async()
        await asyncio.to_thread(submitter.open_results)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def _close_at_exit(self) -> None:
        self.close(EXIT_S)

    def _check_usable(self) -> None:
        if self._closed:
            raise StreamClosed(f"queue {self.name!r} is closed")
        if self._submitter is not None and self._pid != os.getpid():
            raise StreamClosed(
                f"queue {self.name!r} was first used before this process was forked",
                hint="use it for the first time in the child, or make a new Queue there",
            )

    def _open(self) -> Submitter:
        shared = self._shared_session
        if shared is not None:
            return Submitter(
                self.name, self.kafka, self._config, session=shared, owns_session=False
            )
        session = Session(self.zookeeper, config=self.session_config, name=f"submit-{self.name}")
        session.start(self._config.open_s)
        try:
            return Submitter(
                self.name, self.kafka, self._config, session=session, owns_session=True
            )
        except BaseException:
            session.close()
            raise


def _raw_order(
    task: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    options: OptionChanges,
) -> Order:
    check_name(task)
    chosen = changed(TaskOptions(), options)
    return Order(task, tuple(args), dict(kwargs or {}), chosen, _decode_any)
