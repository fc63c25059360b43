"""Recipes that ask one thing after another, told as a generator.

A generator yields what it waits for and gets the result sent in, or the error thrown in; it returns
what the recipe is for. It runs on the session's loop, so nothing is locked and no thread waits.
One timer bounds all of its waits together.

::

    def increment(path: str) -> Course[int]:
        data, stat = yield from read(GetData(path))
        yield SetData(path, data + b"x", stat.version)
        return len(data) + 1
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, NamedTuple, TypeVar

from zkcoord.errors import CoordinationError, EnsembleUnavailable, SessionClosed, SessionLost
from zkcoord.zk.call import Call
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.loop import Timer
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import (
    WATCH_CHILDREN,
    WATCH_DATA,
    Create,
    CreateContainer,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    Request,
    SetData,
    WatchEvent,
)
from zkcoord.zk.translate import LinkDropped, from_code
from zkcoord.zk.verbs import check_timeout, late

PAUSE_S = 0.2
ROLLED_BACK = {0, -2}  # codes of a failed multi's operations that did not fail themselves

_WRITES = (Create, CreateContainer, Delete, Multi, SetData)

T = TypeVar("T")

Reading = Exists | GetData | GetChildren


class Pause(NamedTuple):
    """Do nothing for so long."""

    seconds: float


class Folder(NamedTuple):
    """Make sure that a node is there, and those above it."""

    path: str
    container: bool = False


class Flight:
    """Send all at once; the result is a list of results and errors, in the order of sending."""

    def __init__(self, *requests: Request) -> None:
        self.requests = requests


class Watched(NamedTuple):
    """A read that sets a watch; the news comes through `News`."""

    request: Reading


class News:
    """Wait until a watch of this course has fired; the result is its event.

    The event is None when the link dropped: what was missed is not known. What fired before is
    news too, so nothing is missed between the read and the wait.

    Args:
        within: seconds after which it is None too: look again. None waits on.
    """

    def __init__(self, within: float | None = None) -> None:
        self.within = within


class Opening(NamedTuple):
    """Wait for a living session; the result is its epoch."""


Step = Request | Pause | Folder | Flight | Watched | News | Opening
Course = Generator[Step, Any, T]


class Steps(Generic[T]):
    """One run of a course.

    Args:
        what: verb and name, for messages.
        timeout: seconds over all waits; None for as long as it takes.
        epoch: the session the requests belong to: when it is over the course fails. Without one
            it goes on in the next session, where its requests allow that.
        late: makes the error of the deadline; EnsembleUnavailable when None.
        undo: what to do with a result that comes too late for whoever asked.

    Raises:
        SessionClosed; ConfigError: a negative or infinite timeout.
    """

    def __init__(
        self,
        link: Link,
        course: Course[T],
        what: str,
        timeout: float | None,
        *,
        epoch: Epoch | None = None,
        late: Callable[[], CoordinationError] | None = None,
        undo: Callable[[T], object] | None = None,
    ) -> None:
        link.check_open()
        self._link = link
        self._course = course
        self._what = what
        self._timeout = None if timeout is None else check_timeout(timeout)
        self._epoch = epoch
        self._late = late
        self._calls: list[Call] = []
        self._got: list[Any] = []
        self._opening: Callable[[Epoch], None] | None = None
        self._pause: Timer | None = None
        self._news: list[WatchEvent | None] = []
        self._hoping = False
        self._watching: list[Reading] = []
        self._unsure = False
        self._ended = False
        self.promise: Promise[T] = Promise(link.dispatcher, undo=undo)
        self._timer = None if timeout is None else link.timer(timeout, self._expired)

    def begin(self) -> Promise[T]:
        """Take the first step. From any thread."""
        self.promise.on_done(self._decided)
        self._link.loop.post(self._begin)
        return self.promise

    def harmless(self) -> bool:
        """Whether everything that was written is known to have failed, or nothing was."""
        flying = any(call.sent and isinstance(call.request, _WRITES) for call in self._calls)
        return not (self._unsure or flying)

    # --- the course -----------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._epoch is not None:
            self._epoch.join(self, self._session_over)
        self._advance(None)

    def _advance(self, value: Any) -> None:
        if self._ended:
            return
        try:
            throw = isinstance(value, CoordinationError)
            step = self._course.throw(value) if throw else self._course.send(value)
        except StopIteration as stop:
            self._finish()
            self.promise.fulfil(stop.value)
        except CoordinationError as error:
            self._finish()
            self.promise.fail(error)
        except Exception as error:
            self._finish()
            self.promise.fail(error)
            raise
        else:
            self._take(step)

    def _take(self, step: Step) -> None:
        if isinstance(step, Pause):
            self._pause = self._link.timer(step.seconds, self._advance, None)
        elif isinstance(step, Folder):
            self._link.ensure(step.path, self._advance, container=step.container)
        elif isinstance(step, Flight):
            self._fly(step.requests)
        elif isinstance(step, Watched):
            self._watch(step.request)
        elif isinstance(step, News):
            self._hoping = True
            if step.within is not None:
                self._pause = self._link.timer(step.within, self._fired, None)
            self._hear()
        elif isinstance(step, Opening):
            self._opening = lambda epoch: self._link.loop.post(self._advance, epoch)
            self._link.with_epoch(self._opening, self._closed)
        else:
            self._one(step)

    def _closed(self) -> None:
        self._advance(SessionClosed(f"{self._what}: the session is closed"))

    def _one(self, request: Request) -> None:
        def replied(result: Any, error: CoordinationError | None) -> None:
            self._calls = []
            self._advance(self._learn(request, result, error))

        call = self._link.prepare(request, replied, epoch=self._epoch, verb=self._verb(request))
        self._calls = [call]
        self._link.submit(call)

    def _fly(self, requests: tuple[Request, ...]) -> None:
        self._got = []

        def replier(request: Request) -> Callable[[Any, CoordinationError | None], None]:
            def replied(result: Any, error: CoordinationError | None) -> None:
                self._got.append(self._learn(request, result, error))
                if len(self._got) == len(requests):  # replies come in the order of sending
                    self._calls = []
                    self._advance(self._got)

            return replied

        self._calls = [
            self._link.prepare(one, replier(one), epoch=self._epoch, verb=self._verb(one))
            for one in requests
        ]
        for call in tuple(self._calls):
            self._link.submit(call)

    def _verb(self, request: Request) -> str:
        return f"{self._what}: {type(request).__name__.lower()}"

    def _learn(self, request: Request, result: Any, error: CoordinationError | None) -> Any:
        """The result or the error; and is it known what became of the writes?"""
        if isinstance(request, Multi) and error is None:
            error = self._rolled_back(request, result)
        if isinstance(request, _WRITES):
            sent = not isinstance(error, LinkDropped) or error.sent
            if not isinstance(error, (EnsembleUnavailable, SessionLost, SessionClosed)):
                self._unsure = False
            elif sent:
                self._unsure = True
        return result if error is None else error

    def _rolled_back(self, request: Multi, results: list[Any]) -> CoordinationError | None:
        for operation, result in zip(request.operations, results, strict=False):
            if isinstance(result, int) and result not in ROLLED_BACK:
                verb = f"{self._what}: {type(operation).__name__.lower()}"
                return from_code(result, f"{verb} {self._link.relative(operation.path)}")
        return None

    # --- watches --------------------------------------------------------------------------------

    def _watch(self, request: Reading) -> None:
        def replied(result: Any, error: CoordinationError | None) -> None:
            if error is None:
                self._watching.append(request)
            if self._ended:
                self._forget()
            else:
                self._advance(result if error is None else error)

        self._link.watches.watch(request, self._fired, replied, epoch=self._epoch)

    def _fired(self, event: WatchEvent | None) -> None:
        self._news.append(event)
        self._hear()

    def _hear(self) -> None:
        if self._hoping and self._news:
            self._hoping = False
            if self._pause is not None:
                self._pause.cancel()
            news = None if None in self._news else self._news[-1]
            self._news.clear()
            self._forget()
            self._advance(news)

    def _forget(self) -> None:
        """The watches that have not fired are taken back."""
        watching, self._watching = self._watching, []
        for request in watching:
            kind = WATCH_CHILDREN if isinstance(request, GetChildren) else WATCH_DATA
            self._link.watches.forget(kind, request.path, self._fired)

    # --- the end --------------------------------------------------------------------------------

    def _decided(self) -> None:
        """On whatever thread decided it."""
        if self.promise.cancelled():
            self._link.loop.post(self._stop)

    def _finish(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._pause is not None:
            self._pause.cancel()
        if self._opening is not None:
            self._link.forget_epoch(self._opening)
        if self._epoch is not None:
            self._epoch.leave(self)
        for call in self._calls:
            call.abandoned = True
        self._forget()

    def _stop(self) -> None:
        """Nobody waits any more: the course's ``finally`` blocks run, and may not yield."""
        if not self._ended:
            self._finish()
            self._course.close()

    def _expired(self) -> None:
        assert self._timeout is not None
        if self._late is not None:
            error = self._late()
        else:
            error = late(self._link, self._what, self._timeout, self.harmless())
        self.promise.fail(error)
        self._stop()

    def _session_over(self) -> None:
        assert self._epoch is not None
        kind = SessionClosed if self._link.closed else SessionLost
        self.promise.fail(kind(f"{self._what}: the session is over, {self._epoch.reason}"))
        self._stop()


def read_watched(request: Reading) -> Course[Any]:
    """A read that sets a watch, sent again in the same session until it is answered."""
    while True:
        try:
            return (yield Watched(request))
        except LinkDropped:
            continue
        except EnsembleUnavailable:
            yield Pause(PAUSE_S)


def read(request: Request) -> Course[Any]:
    """A read, sent again until it is answered: across dropped links, and across sessions."""
    while True:
        try:
            return (yield request)
        except (LinkDropped, SessionLost):
            continue
        except EnsembleUnavailable:
            yield Pause(PAUSE_S)
