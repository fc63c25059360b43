"""Serve one queue for as long as the process lives: stand by, lead, stand by again.

Servers that are away are waited for, with growing pauses and one message per cause. What no
waiting can mend is an *incident*: the queue is not served any more by this process, the error is
logged and kept in :attr:`Serving.failure`, and other queues of the process go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress

from zkcoord.config import KafkaConfig, SchedulerConfig
from zkcoord.errors import (
    AccessDenied,
    CandidateMissing,
    ConfigError,
    DecodeError,
    EnsembleUnavailable,
    LeaseLost,
    NodeMissing,
    RecordsTrimmed,
    SessionLost,
    StaleTerm,
    StreamDenied,
    TopicMismatch,
    ZkcoordError,
)
from zkcoord.queue.administration import check_queue, describe_queue, queue_path
from zkcoord.queue.duty import Duty, Readiness
from zkcoord.queue.following import Follower
from zkcoord.queue.leading import Ending, Leading
from zkcoord.queue.takeover import take_over
from zkcoord.recipes import Election, Leadership, Revocation
from zkcoord.zk import Session

log = logging.getLogger("zkcoord.queue")

INCIDENTS = (
    AccessDenied,
    ConfigError,
    DecodeError,
    LeaseLost,
    NodeMissing,
    RecordsTrimmed,
    StaleTerm,
    StreamDenied,
    TopicMismatch,
)
RETRY_S = 0.25
RETRY_S_MAX = 5.0
FOLLOW_S = 0.05
"""How long a standby waits for the log before it looks whether it was elected."""
RELEASE_S = 5.0
CONNECT_S = 5.0
CHECK_S = 5.0
"""How long one try to reach the servers takes before a message says what is missing."""


class Serving:
    """One queue, served by one thread.

    Attributes:
        queue: its name.
        state: ``connecting``, ``standby``, ``leading``, ``stopped`` or ``failed``.
        term: of the present leadership, or None.
        failure: the incident that ended it.
        settled: set once it stood by, or has ended.
    """

    def __init__(
        self,
        queue: str,
        *,
        kafka: KafkaConfig,
        connect: Callable[[], Session],
        config: SchedulerConfig,
        name: str,
        stopping: threading.Event,
    ) -> None:
        self.queue = queue
        self.state = "connecting"
        self.term: int | None = None
        self.failure: ZkcoordError | None = None
        self.settled = threading.Event()
        self._kafka = kafka
        self._connect = connect
        self._config = config
        self._name = name
        self._stopping = stopping
        self._asked: Revocation | None = None
        self._thread = threading.Thread(target=self.run, name=f"zkcoord-queue-{queue}")

    def start(self) -> None:
        """Serve in a thread."""
        self._thread.start()

    def join(self, timeout: float | None) -> bool:
        """Wait for the thread's end; whether it ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def run(self) -> None:
        """Serve until the process stops or an incident."""
        try:
            self._run()
        finally:
            self.settled.set()

    def _run(self) -> None:
        pause, told = RETRY_S, ""
        while not self._stopping.is_set():
            self.state = "connecting"
            began = time.monotonic()
            try:
                self._serve()
            except INCIDENTS as error:
                log.error("queue %s is not served any more: %s", self.queue, error)  # noqa: TRY400
                self.failure = error
                self.state = "failed"
                return
            except ZkcoordError as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("queue %s waits: %s", self.queue, error)
            except Exception as error:  # a bug must not end the service of other queues in silence
                log.exception("queue %s: unexpected error", self.queue)
                self.failure = ZkcoordError(f"queue {self.queue!r}: unexpected {error!r}")
                self.failure.__cause__ = error
                self.state = "failed"
                return
            if time.monotonic() - began > 30:  # it worked for a while: start afresh
                pause, told = RETRY_S, ""
            self._stopping.wait(pause)
            pause = min(2 * pause, RETRY_S_MAX)
        self.state = "stopped"

    def _serve(self) -> None:
        """One session: check, then stand by and lead in turn."""
        with closing(self._connect()) as session:
            if not self._start(session):
                return
            description = describe_queue(session, self.queue)
            duty = Duty(
                description=description,
                config=self._config,
                kafka=self._kafka,
                session=session,
                name=self._name,
                stopping=self._resigning,
            )
            with closing(duty.admin()) as admin:
                check_queue(admin, description, timeout=CHECK_S)
            election = Election(session, "election", root=queue_path(self.queue))
            while not self._stopping.is_set():
                self._asked = None
                with (
                    closing(Follower.restore(duty)) as follower,
                    closing(Readiness(duty)) as readiness,
                ):
                    lease = self._win(election, follower)
                    if lease is not None:
                        self._lead(duty, readiness, follower, lease)

    def _resigning(self) -> bool:
        """Whether the process stops, or somebody asked this leader to resign."""
        return self._asked is not None or self._stopping.is_set()

    def _heard(self, asked: Revocation) -> None:
        log.info(
            "queue %s: asked to resign%s by %s: %s",
            self.queue,
            f" in favour of {asked.to}" if asked.to else "",
            asked.by,
            asked.reason,
        )
        self._asked = asked

    def _start(self, session: Session) -> bool:
        """Connect; False when asked to stop meanwhile."""
        promise = session.start_future(CONNECT_S)
        while not promise.done():
            if self._stopping.wait(0.02):
                promise.give_up()
                return False
        promise.result()
        return True

    def _win(self, election: Election, follower: Follower) -> Leadership | None:
        """Campaign and follow the log meanwhile; None when stopping, or to restore afresh."""
        self.state = "standby"
        self.settled.set()
        while not self._stopping.is_set():
            won: Leadership | None = None
            self._asked = None
            promise = election.campaign_future(on_revoke=self._heard)
            try:
                while not promise.done() and not self._stopping.is_set():
                    follower.follow(FOLLOW_S)
                won = promise.result() if promise.done() else None
                return won  # noqa: TRY300 - the finally needs to know
            except SessionLost:
                log.info("queue %s: the session of this standby was renewed", self.queue)
            except RecordsTrimmed as error:
                log.info("queue %s: this standby fell behind the trim: %s", self.queue, error)
                return None
            finally:
                if won is None:
                    promise.give_up()  # a lease that came all the same is given back
        return None

    def _lead(
        self, duty: Duty, readiness: Readiness, follower: Follower, lease: Leadership
    ) -> None:
        self.term = lease.token
        began = time.monotonic()
        leading: Leading | None = None
        ending = "failed"
        try:
            outcome = take_over(duty, readiness, follower, lease)
            if isinstance(outcome, Ending):
                ending = outcome.value
                return
            leading = outcome
            self.state = "leading"
            log.info(
                "queue %s: leading as %s, term %d, taken over in %.3f s",
                self.queue,
                self._name,
                lease.token,
                time.monotonic() - began,
            )
            ending = leading.run().value
        finally:
            self.term = None
            self.state = "standby"
            with suppress(LeaseLost):
                self._resign(lease)
            log.info(
                "queue %s: term %d ended: %s, after %.1f s",
                self.queue,
                lease.token,
                ending,
                time.monotonic() - began,
            )
            if leading is not None:
                leading.close()

    def _resign(self, lease: Leadership) -> None:
        """Let the next scheduler lead, or the one that was asked for."""
        asked, self._asked = self._asked, None
        if asked is not None and asked.to:
            try:
                lease.transfer(asked.to, RELEASE_S)
            except (CandidateMissing, EnsembleUnavailable, SessionLost) as error:
                log.warning("queue %s: the next in line leads: %s", self.queue, error)
        if lease.held:
            lease.release(RELEASE_S)
