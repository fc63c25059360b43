"""What works inside an agent: its event loop, executor, reporter, inbox and session.

The agent supervises from its own thread and calls in here; everything that belongs to the event
loop is carried over to it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from zkcoord.config import AgentConfig, SessionConfig
from zkcoord.core.inbox import InboxRules
from zkcoord.core.records import AgentInfo
from zkcoord.errors import CoordinationError, ZkcoordError
from zkcoord.kafka import INTERNAL_RECORD_BYTES_MAX, Admin, Producer, Reader
from zkcoord.queue import forks
from zkcoord.queue.administration import QueueDescription, describe_queue
from zkcoord.queue.claim import Claim, claim_inbox, warn_of_namesakes
from zkcoord.queue.executor import Executor
from zkcoord.queue.feed import Feed
from zkcoord.queue.ledger import Ledger
from zkcoord.queue.reporter import Reporter
from zkcoord.queue.tenure import Tenure
from zkcoord.zk import Session

if TYPE_CHECKING:
    from zkcoord.queue.handle import Queue

_log = logging.getLogger("zkcoord.agent")

T = TypeVar("T")

LOOP_S = 30.0
"""How long a handler that blocks may hold up the event loop before the agent gives up on it."""

HANDLERS_S = 1.0  # they had their grace before
PREFETCH_BYTES = 4 * 1024 * 1024


class Crew:
    """The working parts of one agent, and how to reach them from its supervising thread.

    `tell(word, what)` is called from any thread: ``("lost", (incarnation, reason))`` when an
    incarnation cannot go on, ``("changed", None)`` when the capacity changed.
    """

    def __init__(
        self,
        queue: Queue,
        config: AgentConfig,
        session_config: SessionConfig,
        *,
        name: str,
        tell: Callable[[str, Any], None],
    ) -> None:
        self._queue = queue
        self._config = config
        self._name = name
        self._tell = tell
        self._session = Session(queue.zookeeper, config=session_config, name=name)
        self._admin: Admin | None = None
        self._description: QueueDescription | None = None
        self._ledger: Ledger | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="zkcoord-loop", daemon=True)
        self._feed: Feed | None = None
        self.claim: Claim | None = None
        self.executor: Executor
        self.reporter: Reporter

    # --- life -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, find the queue, start the event loop. Nothing is left behind on an error."""
        self._thread.start()
        try:
            self._session.start()
            self._description = describe_queue(self._session, self._queue.name)
            self._admin = Admin(self._queue.kafka, client_id=self._client_id("admin"))
            if self._config.ledger is not None:
                self._ledger = Ledger(self._config.ledger)
            self._call(self._assemble)
        except BaseException:
            self._end()
            raise

    def close(self, timeout: float) -> bool:
        """End everything, ZooKeeper last; whether every handler had stopped."""
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.stop()
        stopped = self._await(self.executor.close(HANDLERS_S), HANDLERS_S + 1.0) or False
        self._await(self.reporter.close(timeout), timeout + 1.0)
        if feed is not None:
            feed.join(timeout)
        self._end()
        return stopped

    # --- incarnations ---------------------------------------------------------------------------

    def join(self, info: AgentInfo, rng: random.Random) -> Claim:
        """Claim an inbox and begin to serve it. Raises as :func:`claim_inbox`."""
        assert self._admin is not None
        assert self._description is not None
        topics = self._description.topics
        claim = claim_inbox(self._session, self._admin, topics, info, rng)
        self.claim = claim
        incarnation = claim.incarnation
        claim.lost.on_set(lambda: self._lost(incarnation, "its ZooKeeper session is over"))
        self._feed = Feed(
            self._loop,
            partial(
                Reader,
                self._queue.kafka,
                client_id=self._client_id("inbox"),
                group=topics.group,
                prefetch_bytes=PREFETCH_BYTES,
            ),
            (topics.inbox, claim.partition),
            claim.position,
            self.executor,
            lambda reason: self._lost(incarnation, reason),
        )
        self._call(partial(self._begin, claim, self._feed))
        warn_of_namesakes(claim, info, rng)
        return claim

    def is_current(self, incarnation: int) -> bool:
        """Whether this is the incarnation that the agent has now."""
        return self.claim is not None and self.claim.incarnation == incarnation

    def part(self, reason: str) -> None:
        """The incarnation is over: stop its attempts, forget its reports, give up its claim."""
        claim, self.claim = self.claim, None
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.stop()
        if claim is None:
            return
        self._loop.call_soon_threadsafe(self._abandon, claim.incarnation, reason)
        try:
            claim.release(timeout=1.0)
        except ZkcoordError as error:
            _log.info("the claim %s goes with its session: %s", claim.path, error)

    # --- leaving --------------------------------------------------------------------------------

    def drain(self) -> None:
        """Start nothing more; give back what waits and what comes."""
        self._call(self.executor.drain)

    def give_back(self, *, grace: bool = True) -> None:
        """Stop what runs and give it back: when it has stopped, or at once without grace."""
        self._call(partial(self.executor.give_back, grace=grace))

    def idle(self, within: float) -> concurrent.futures.Future[bool]:
        """Done with True once no slot is in use, with False after so many seconds."""
        return asyncio.run_coroutine_threadsafe(self.executor.idle(within), self._loop)

    def dismissed(self, within: float) -> bool:
        """Wait until the leader sends no more orders; what came until then is given back."""
        if self.claim is None:
            return True
        return self._await(self.executor.dismissed(within), within + 1.0) or False

    def flush(self, within: float) -> bool:
        """Send all reports; whether all were acknowledged."""
        return self._await(self.reporter.drain(within), within + 1.0) or False

    # --- on the loop ----------------------------------------------------------------------------

    def _assemble(self) -> None:
        assert self._description is not None
        self.reporter = Reporter(
            self._loop,
            partial(
                Producer,
                self._queue.kafka,
                client_id=self._client_id("reports"),
                record_bytes_max=INTERNAL_RECORD_BYTES_MAX,
            ),
            topic=self._description.topics.reports,
            agent=self._name,
            report_s=self._config.report_s,
        )
        self.executor = Executor(
            self._loop,
            self._queue.handlers,
            self._config,
            self.reporter,
            agent=self._name,
            ledger=self._ledger,
            on_change=lambda: self._tell("changed", None),
            on_invalid=self._invalid,
        )

    def _begin(self, claim: Claim, feed: Feed) -> None:
        assert self._description is not None
        partition = claim.partition % self._description.partitions
        self.reporter.begin(claim.partition, claim.incarnation, partition)
        rules = InboxRules(self._queue.name, claim.incarnation)
        self.executor.begin(Tenure(rules, session=self._session, valid=claim.valid))
        feed.start()

    def _invalid(self, reason: str) -> None:
        claim = self.claim
        if claim is not None:
            self._lost(claim.incarnation, reason)

    def _lost(self, incarnation: int, reason: str) -> None:
        """From any thread: stop the attempts at once, then let the supervisor do the rest."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._abandon, incarnation, reason)
        self._tell("lost", (incarnation, reason))

    def _abandon(self, incarnation: int, reason: str) -> None:
        if self.executor.incarnation == incarnation:
            self.executor.abandon(reason)
            self.reporter.end()

    # --- the loop's thread ------------------------------------------------------------------------

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        with forks.watched(self._loop):
            self._loop.run_forever()

    def _call(self, function: Callable[[], T]) -> T:
        """Call on the loop's thread and wait for the result."""

        async def call() -> T:
            return function()

        future = asyncio.run_coroutine_threadsafe(call(), self._loop)
        try:
            return future.result(LOOP_S)
        except TimeoutError as error:
            raise CoordinationError(
                f"agent {self._name}: its event loop did not turn for {LOOP_S:g} s",
                hint="an async handler blocks: make it a plain function, or let it await",
            ) from error

    def _await(self, coroutine: Any, timeout: float) -> Any:
        """Run a coroutine on the loop; None when the loop did not get to its end in time."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout)
        except TimeoutError:
            _log.warning("the event loop is held up by a handler that blocks it")
            return None

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(1.0)
        if not self._thread.is_alive():
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
        if self._ledger is not None:
            self._ledger.close()
        if self._admin is not None:
            self._admin.close()
        self._session.close()

    def _client_id(self, part: str) -> str:
        return f"zkcoord.agent.{self._queue.name}.{part}"
