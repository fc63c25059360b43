"""Holding the next one back after a holder ended uncleanly.

A holder whose session is lost stops believing in its lease before another gets it, but what it sent
before may still be under way to a resource that cannot check tokens. A lock with a delay gives that
some time, as Chubby's does (Burrows, "The Chubby lock service for loosely-coupled distributed
systems", OSDI 2006, §2.4).

How the next one knows: a holder of such a lock writes a lasting node ``held`` beside the
contenders, with its token, before it has its lease; releasing removes both nodes in one
transaction. So who comes to the front and finds a ``held`` knows that its holder did not release:
the session expired or was closed, or the lock was broken. It waits out the delay that the lost
holder asked for, from when this process first saw that, which is later than the loss, and then
writes its own token there.

The cost: one write more for each grant, which is waited for, and none more for a release.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import msgspec

from zkcoord.errors import (
    ConfigError,
    CoordinationError,
    EnsembleUnavailable,
    LeaseLost,
    NodeMissing,
    SessionClosed,
    SessionLost,
)
from zkcoord.recipes.entry import Entry
from zkcoord.recipes.lasting import MARK
from zkcoord.recipes.per_link import PerLink
from zkcoord.zk.amounts import is_number
from zkcoord.zk.clock import now
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.loop import Timer
from zkcoord.zk.names import join
from zkcoord.zk.requests import Check, Create, Delete, GetData, Multi, Request, SetData
from zkcoord.zk.translate import LinkDropped, from_code

log = logging.getLogger("zkcoord")

DELAY_MAX_S = 60.0
_PAUSE_S = 0.2
_SEEN_MAX = 1024
_NODE_EXISTS, _NO_NODE = -110, -101


class _Mark(msgspec.Struct, frozen=True):
    token: int
    delay: float


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Mark).decode


def check_delay(seconds: object) -> float:
    """A lock delay, given back.

    Raises:
        ConfigError: it is not between 0 and 60 seconds.
    """
    if not is_number(seconds) or not 0 <= seconds <= DELAY_MAX_S:
        raise ConfigError(f"lock_delay {seconds!r}: must be 0 to {DELAY_MAX_S:g} seconds")
    return float(seconds)


def give_back(link: Link, path: str, epoch: Epoch, done: Callable[[bool], object]) -> None:
    """Remove a holder's node and its mark together: a clean end. From any thread."""
    mark = join(path.rpartition("/")[0], MARK)

    def ask() -> None:
        both = Multi((Delete(path), Delete(mark)))
        link.call(both, replied, epoch=epoch, verb="delete")

    def replied(results: Any, error: CoordinationError | None) -> None:
        if error is None and not any(isinstance(code, int) for code in results):
            epoch.free(path)
            done(True)
        elif isinstance(error, LinkDropped) and not epoch.over():
            ask()
        elif isinstance(error, EnsembleUnavailable) and not epoch.over():
            link.timer(_PAUSE_S, ask)
        else:  # one of the two is gone: by ourselves before the link dropped, or by an operator
            link.discard(path, epoch, done)

    ask()


class _Seen:
    """Marks without a holder that this process has seen, and since when."""

    def __init__(self) -> None:
        self._since: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def since(self, folder: str, token: int) -> float:
        """Since when."""
        known = self._since.get(folder)
        if known is None or known[0] != token:
            known = self._since[folder] = (token, now())
            if len(self._since) > _SEEN_MAX:
                self._since.popitem(last=False)
        return known[1]


_seen = PerLink(_Seen)


class _State(Enum):
    SHUT = auto()
    WRITING = auto()
    WAITING = auto()
    PASSED = auto()
    LEFT = auto()


class Gate:
    """What stands between the head of the queue and the lease. On the loop.

    Args:
        delay: seconds that the next one is held back if this hold ends uncleanly.
        name: for messages.
        trying: do not wait: fail instead.
    """

    def __init__(self, link: Link, folder: str, delay: float, name: str, *, trying: bool) -> None:
        self._link = link
        self._folder = folder
        self._delay = delay
        self._name = name
        self._trying = trying
        self._state = _State.SHUT
        self._timer: Timer | None = None
        self._leaving: Entry | None = None
        self.held_back = False

    @property
    def passed(self) -> bool:
        """Whether the lease may be made."""
        return self._state is _State.PASSED

    def open(
        self,
        epoch: Epoch,
        path: str,
        token: int,
        done: Callable[[CoordinationError | None], object],
    ) -> None:
        """Nobody is in front any more: write the mark, now or when the delay is over.

        `done(None)` when it has passed, or when a try is held back; else with what stands against.
        """
        self._epoch, self._path, self._token, self._done = epoch, path, token, done
        self._mark = join(self._folder, MARK)
        self._write(Create(self._mark, self._value()))

    def peek(self, epoch: Epoch, free: Callable[[bool], object]) -> None:
        """A try found a mark and nobody: tell whether its delay is over."""

        def read(result: Any, error: CoordinationError | None) -> None:
            free(error is not None or self._left(_read_mark(result[0], self._delay)) <= 0)

        self._link.call(GetData(join(self._folder, MARK)), read, epoch=epoch, verb="get")

    def leave(self, entry: Entry) -> bool:
        """The request is given up. True when the gate sees to its node."""
        if self._timer is not None:
            self._timer.cancel()
        if self._state is _State.WRITING:
            self._leaving = entry
        elif self._state is _State.PASSED:
            self._end(entry)
        return self._state in {_State.WRITING, _State.LEFT}

    def _end(self, entry: Entry) -> None:
        """The mark is ours: it goes with the node."""
        self._state = _State.LEFT
        entry.granted()
        give_back(self._link, self._path, self._epoch, _ignore)

    def _left(self, mark: _Mark) -> float:
        """Seconds until a mark without a holder counts no longer."""
        since = _seen.of(self._link).since(self._folder, mark.token)
        return since + min(max(0.0, mark.delay), DELAY_MAX_S) - now()

    def _value(self) -> bytes:
        return _encode(_Mark(self._token, self._delay))

    def _write(self, operation: Create | SetData) -> None:
        self._state = _State.WRITING

        def written(results: Any, error: CoordinationError | None) -> None:
            codes = [code for code in results or () if isinstance(code, int) and code]
            if isinstance(error, (SessionLost, SessionClosed)):
                return  # the end of the session tells everybody
            if isinstance(error, EnsembleUnavailable):
                pause = 0.0 if isinstance(error, LinkDropped) else _PAUSE_S
                self._link.timer(pause, self._write, operation)
            elif error is not None:
                self._refused(error)
            elif not codes:
                self._pass()
            elif _NODE_EXISTS in codes:
                self._read()
            elif _NO_NODE in codes and isinstance(results[0], int) and results[0] == _NO_NODE:
                text = f"{self._name}: the node was removed while it waited"
                self._refused(LeaseLost(text, name=self._name, token=self._token, reason="removed"))
            elif _NO_NODE in codes:  # an operator removed the mark
                self._write(Create(self._mark, self._value()))
            else:
                worst = next(code for code in codes if code != -2)
                self._refused(from_code(worst, f"mark {self._link.relative(self._mark)}"))

        multi: Request = Multi((Check(self._path), operation))
        self._link.call(multi, written, epoch=self._epoch, verb="mark")

    def _read(self) -> None:
        def read(result: Any, error: CoordinationError | None) -> None:
            if isinstance(error, (SessionLost, SessionClosed)):
                return
            if isinstance(error, NodeMissing):
                self._write(Create(self._mark, self._value()))
            elif isinstance(error, EnsembleUnavailable):
                self._link.timer(_PAUSE_S, self._read)
            elif error is not None:
                self._refused(error)
            else:
                self._marked(_read_mark(result[0], self._delay))

        self._link.call(GetData(self._mark), read, epoch=self._epoch, verb="get")

    def _marked(self, mark: _Mark) -> None:
        """A mark, and nobody in front: its holder ended uncleanly, unless it is ours."""
        if mark.token == self._token:
            self._pass()
            return
        left = self._left(mark)
        overwrite = SetData(self._mark, self._value())
        if self._leaving is not None:
            self._refused(None)
        elif left <= 0:
            self._write(overwrite)
        else:
            self._state = _State.WAITING
            self.held_back = True
            if self._trying:
                self._done(None)
            else:
                self._timer = self._link.timer(left, self._write, overwrite)

    def _pass(self) -> None:
        self._state = _State.PASSED
        self._done(None)  # given up meanwhile, it leaves through here

    def _refused(self, error: CoordinationError | None) -> None:
        self._state = _State.SHUT
        if self._leaving is not None:
            self._leaving.leave()
        else:
            self._done(error)


def _read_mark(value: bytes, delay: float) -> _Mark:
    try:
        return _decode(value)
    except msgspec.MsgspecError:
        return _Mark(0, delay)


def _ignore(_gone: bool) -> None:
    """Whether it went at once or with the session, it is gone."""
