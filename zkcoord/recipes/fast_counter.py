"""A counter for many processes that add all the time: striped."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from zkcoord.core.counting import Tally, read_tally
from zkcoord.errors import (
    ConfigError,
    CoordinationError,
    EnsembleUnavailable,
    NodeExists,
    NodeForeign,
    NodeMissing,
    SessionLost,
    VersionConflict,
)
from zkcoord.recipes.adding import Adding
from zkcoord.recipes.register import FRESH_S, TRIES_MAX, Register, folder
from zkcoord.recipes.steps import PAUSE_S, Course, Flight, Pause, Steps, read
from zkcoord.zk.amounts import is_whole
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.clock import now
from zkcoord.zk.condition import shown
from zkcoord.zk.names import check_path, join, parent
from zkcoord.zk.promise import Promise
from zkcoord.zk.requests import Create, GetChildren, GetData, Sync
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.translate import LinkDropped

STRIPES_MAX = 256

_MARK = b"striped counter"
_STRIPE = re.compile(r"s[0-9]{1,3}")
_TIMEOUT_S = 10.0


class FastCounter:
    """A number that many processes add to at once: the sum of stripes, one node each.

    As `LongAdder` of Java does within a process: whoever adds does so on one stripe, and goes over
    to another one when it meets somebody there, so that writers soon do not meet. An addition is
    exactly-once, as for :class:`~zkcoord.recipes.counter.Counter`. What it costs:

    - `add` does not tell the count, and there is no compare-and-set;
    - `get` reads every stripe, and they are not read at the same instant: it is at least the sum of
      what was added before `get` began and at most that of what was added before it ended, when
      all amounts are positive; this session's own additions are in it.

    Args:
        session: the counter goes on in the session's next life when it is lost.
        path: the folder of the stripes, created by the first addition; it cannot be a Counter's.
        stripes: at most so many nodes, 1 to 256; about as many as there are processes that add at
            the same time. Processes may differ in it.

    Raises:
        NameRefused: not a path.
        ConfigError: stripes out of range.
    """

    def __init__(self, session: Session, path: str, *, stripes: int = 16) -> None:
        self.session = check_session(session)
        self.path = check_path(path)
        if not is_whole(stripes) or not 1 <= stripes <= STRIPES_MAX:
            raise ConfigError(f"counter {path}: stripes {stripes!r}: must be 1 to {STRIPES_MAX}")
        self._stripes = stripes
        self._rng = Random()  # noqa: S311 - jitter
        self._stripe = self._rng.randrange(stripes)
        self._known: Tally | None = None
        self._known_until = 0.0
        self._marked = False
        link = session.link
        self._folder = link.absolute(path)
        self._adding = Adding(link, path, self._change)

    def __repr__(self) -> str:
        return shown(self, self.path, self.session.link)

    def add(self, amount: int = 1, timeout: float = _TIMEOUT_S) -> None:
        """Add to it, exactly once. Arguments and errors as for `Counter.add`.

        Raises:
            NodeForeign: the path is not a FastCounter's, or a stripe holds no number.
        """
        refuse_in_event_loop("counter.add()", "await counter.add_future()")
        self.add_future(amount, timeout).wait()

    def add_future(self, amount: int = 1, timeout: float = _TIMEOUT_S) -> Promise[None]:
        """The same, to be awaited. What is cancelled may be counted once it was sent."""
        return self._adding.add(amount, timeout).then(lambda _: None)

    def get(self, timeout: float = _TIMEOUT_S, *, sync: bool = False) -> int:
        """The sum of the stripes; 0 when nothing was counted yet.

        Args:
            timeout: seconds.
            sync: let the server catch up first: what anybody had added before is in it.

        Raises:
            NodeForeign, EnsembleUnavailable, SessionClosed, AccessDenied.
            RuntimeError: called inside an event loop; use ``await counter.get_future()``.
        """
        refuse_in_event_loop("counter.get()", "await counter.get_future()")
        return self.get_future(timeout, sync=sync).wait()

    def get_future(self, timeout: float = _TIMEOUT_S, *, sync: bool = False) -> Promise[int]:
        """The same, to be awaited."""
        what = f"read counter {self.path}"
        return Steps(self.session.link, self._sum(sync=sync), what, timeout).begin()

    def _sum(self, *, sync: bool) -> Course[int]:
        if sync:
            yield from read(Sync(self._folder))
        while True:
            try:
                names = yield from read(GetChildren(self._folder))
            except NodeMissing:
                return 0
            paths = [join(self._folder, name) for name in names if _STRIPE.fullmatch(name)]
            if not paths:
                yield from self._check()
                return 0
            found = yield Flight(*(GetData(path) for path in paths))
            errors = [one for one in found if isinstance(one, CoordinationError)]
            if not errors:
                return sum(
                    read_tally(self.session.link.relative(path), value, stat.version).number
                    for path, (value, stat) in zip(paths, found, strict=True)
                )
            if not isinstance(errors[0], (LinkDropped, SessionLost, NodeMissing)):
                if not isinstance(errors[0], EnsembleUnavailable):
                    raise errors[0]
                yield Pause(PAUSE_S)

    def _check(self) -> Course[None]:
        """The folder is a FastCounter's."""
        try:
            value, _ = yield from read(GetData(self._folder))
        except NodeMissing:
            return
        if value not in (_MARK, b""):  # a plain folder will do
            raise NodeForeign(
                f"counter {self.path}: the node holds {value[:40]!r} and is no FastCounter's",
                hint="a Counter, another recipe or a program uses this path: choose another one",
            )

    def _mark(self) -> Course[None]:
        """Make the folder, or see that it is ours."""
        while True:
            try:
                yield Create(self._folder, _MARK)
            except NodeMissing:
                yield from folder(parent(self._folder))
            except NodeExists:
                yield from self._check()
                break
            except (LinkDropped, SessionLost):
                continue
            except EnsembleUnavailable:
                yield Pause(PAUSE_S)
            else:
                break
        self._marked = True

    def _change(self, decide: Callable[[Tally], int]) -> Course[Tally]:
        if not self._marked:
            yield from self._mark()
        tally, self._known = self._known, None
        if now() >= self._known_until:
            tally = None
        for _ in range(TRIES_MAX):
            path = join(self._folder, f"s{self._stripe}")
            register = Register(self.session.link, path, self._rng)
            tally = tally if tally is not None else (yield from register.look())
            written = yield from register.put(tally, decide(tally))
            if written.done:
                self._known, self._known_until = written.tally, now() + FRESH_S
                return written.tally
            # Somebody else is here: go to another stripe, and read that one first.
            tally, last = None, self._stripe
            self._stripe = self._rng.randrange(self._stripes)
            if self._stripe == last:
                tally = written.tally
                yield Pause(self._rng.random() * 0.01)
        raise VersionConflict(
            f"counter {self.path}: others were faster {TRIES_MAX} times in a row",
            hint="use more stripes",
        )
