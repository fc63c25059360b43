"""The scheduler: a process that serves queues, leading some and standing by for the others."""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol, Self

from zkcoord.config import KafkaConfig, SchedulerConfig, SessionConfig
from zkcoord.errors import ConfigError, ZkcoordError
from zkcoord.queue.serving import Serving
from zkcoord.zk import Session
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.verbs import check_timeout

log = logging.getLogger("zkcoord.queue")

START_S = 10.0
LOOK_S = 0.05


class Named(Protocol):
    """Anything that names a queue, such as :class:`~zkcoord.queue.submitter.Queue`."""

    @property
    def name(self) -> str:
        """The queue's name."""


class Scheduler:
    """Serves one or more queues.

    Each queue has an election of its own. Run at least two schedulers with the same queues: one
    leads a queue, the others follow its log and take over within the session timeout when it dies,
    at once when it stops in good order.

    Every queue has a thread, a ZooKeeper session and Kafka clients of its own, so that trouble with
    one queue does not touch the others. The threads share the interpreter: give a queue with
    thousands of tasks a second a process of its own.

    When the session is lost, or another scheduler was elected, the leader stops acting at once and
    stands by again. What it had appended and not read back is void or was taken over: nothing is
    lost and nothing is done twice.

    Args:
        queues: names, or objects that have one.
        kafka: ``host:port,...`` or a config.
        zookeeper: ``host:port,.../chroot``.
        config: how this process behaves.
        session: how its ZooKeeper sessions behave.
        name: of this process, for logs and readers of the log; host and process id by default.

    Raises:
        ConfigError: no queue, or the same one twice.
    """

    def __init__(
        self,
        *queues: str | Named,
        kafka: str | KafkaConfig,
        zookeeper: str,
        config: SchedulerConfig | None = None,
        session: SessionConfig | None = None,
        name: str | None = None,
    ) -> None:
        names = [queue if isinstance(queue, str) else queue.name for queue in queues]
        if not names or len(set(names)) != len(names):
            raise ConfigError("Scheduler: name at least one queue, and each only once")
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._zookeeper = zookeeper
        self._session = session or SessionConfig()
        self._stopping = threading.Event()
        kafka_config = kafka if isinstance(kafka, KafkaConfig) else KafkaConfig(bootstrap=kafka)
        self._servings = {
            queue: Serving(
                queue,
                kafka=kafka_config,
                connect=self._connect,
                config=config or SchedulerConfig(),
                name=self.name,
                stopping=self._stopping,
            )
            for queue in names
        }

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT (when called in the main thread) or :meth:`stop`.

        Stopping finishes the append under way, sends its outputs and resigns, so that the next
        leader takes over at once.

        Raises:
            ZkcoordError: no queue is served any more, each ended by an incident; the first one.
        """
        with _StopSignals() as signals, _rare_collections():
            self._begin()
            while not self._stopping.is_set():
                if all(s.state == "failed" for s in self._servings.values()):
                    break
                name = signals.wait(0.25)
                if name:
                    log.info("scheduler %s stops: %s", self.name, name)
                    break
            self.stop()
        failures = [s.failure for s in self._servings.values() if s.failure is not None]
        if len(failures) == len(self._servings):
            raise failures[0]

    def start(self, timeout: float = START_S) -> None:
        """Serve in background threads; returns once every queue is stood by for or led.

        Args:
            timeout: seconds to wait for that. Servers that are away are waited for in the
                background afterwards. 0 does not wait: incidents then show in :meth:`failure` only,
                and in the log.

        Raises:
            ZkcoordError: an incident ended the service of a queue meanwhile, such as NodeMissing
                when there is no such queue; the first one. No queue is served then.
            ConfigError: a negative or infinite timeout.
            RuntimeError: asked to wait inside an event loop; use
                ``await asyncio.to_thread(scheduler.start)``.
        """
        if check_timeout(timeout) > 0:
            refuse_in_event_loop("scheduler.start()", "await asyncio.to_thread(scheduler.start)")
        until = time.monotonic() + timeout
        self._begin()
        waiting = list(self._servings.values())
        while timeout and waiting:
            failures = [s.failure for s in self._servings.values() if s.failure is not None]
            if failures:
                self.stop()
                raise failures[0]
            waiting = [serving for serving in waiting if not serving.settled.is_set()]
            left = until - time.monotonic()
            if not waiting or left <= 0:
                break
            waiting[0].settled.wait(min(LOOK_S, left))

    def _begin(self) -> None:
        for serving in self._servings.values():
            serving.start()

    def stop(self, timeout: float = 30.0) -> None:
        """Resign everywhere and end; waits up to `timeout` seconds for each queue."""
        self._stopping.set()
        for serving in self._servings.values():
            if not serving.join(timeout):
                log.error("queue %s did not stop within %g s", serving.queue, timeout)

    def state(self, queue: str) -> str:
        """``connecting``, ``standby``, ``leading``, ``stopped`` or ``failed``."""
        return self._servings[queue].state

    def failure(self, queue: str) -> ZkcoordError | None:
        """The incident that ended the service of `queue`, or None."""
        return self._servings[queue].failure

    def _connect(self) -> Session:
        return Session(self._zookeeper, config=self._session, name=self.name)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let the garbage collector look at old objects rarely.

    A leader with 100,000 live tasks is stopped for 40 ms and more by every full collection
    (measured), and its state has no cycles that need one.
    """
    old = gc.get_threshold()
    gc.set_threshold(20_000, 20, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*old)


class _StopSignals:
    """SIGTERM and SIGINT as something to wait for; nothing outside of the main thread.

    The handler only writes to a pipe: setting an Event there could deadlock with a wait for it.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._old: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._old[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def wait(self, timeout: float) -> str:
        """The name of a signal that came within `timeout` seconds, or the empty string."""
        if not select.select([self._read], [], [], timeout)[0]:
            return ""
        return signal.Signals(os.read(self._read, 1)[0]).name

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        os.write(self._write, bytes([number]))
