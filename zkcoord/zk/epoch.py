"""One ZooKeeper session in the life of a :class:`~zkcoord.zk.session.Session`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from zkcoord.core.lease import Belief
from zkcoord.core.vacancy import Vacancies
from zkcoord.errors import SessionFull
from zkcoord.zk.clock import now
from zkcoord.zk.loop import Worker, run
from zkcoord.zk.promise import Promise, Signal


class LostSignal(Signal):
    """A signal that is also set by the clock: past the deadline nobody need have told it."""

    __slots__ = ("_over",)

    def __init__(self, dispatcher: Worker, over: Callable[[], bool]) -> None:
        super().__init__(dispatcher)
        self._over = over

    def is_set(self) -> bool:
        """Whether it is lost, known or by the clock."""
        return super().is_set() or self._over()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is lost; at once when the clock says so, and in a forked child."""
        return self._over() or super().wait(timeout)

    def stop_clock(self) -> None:
        """What was given back is not lost any more."""
        self._over = _never


def _never() -> bool:
    return False


class Epoch:
    """A session's id, what may be believed of it, and what stands and falls with it.

    Attributes:
        id: ZooKeeper's session id.
        timeout: what the server granted, in seconds.
        lost: set when it is over: the server said so, or nothing was acknowledged for too long.
        reason: why it is over.
        successors: paths of nodes that somebody of this session waits for, and how to tell them
            that the node has come to the front. On the loop.
        claims: paths of its named members, each with its removal when that is under way.
        leaving: paths of its nodes that are being deleted by this session itself.
        vigil: what watches over its leases' nodes, once there is one.
        queues: folders in which somebody of this session waits, and what is known of the queue.
        vacancies: folders whose front somebody of this session left last.
    """

    def __init__(
        self, session: int, belief: Belief, dispatcher: Worker, ephemeral_bytes_max: int
    ) -> None:
        self.id = session
        self.timeout = belief.timeout
        self.belief = belief
        self.lost = LostSignal(dispatcher, self.over)
        self.reason = ""
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._ended = False
        self._bytes_max = ephemeral_bytes_max
        self._paths: dict[str, int] = {}
        self._bytes = 0
        self._members: dict[int, Callable[[], None]] = {}
        self.successors: dict[str, Callable[..., None]] = {}
        self.claims: dict[str, Promise[bool] | None] = {}
        self.leaving: set[str] = set()
        self.queues: dict[str, Any] = {}
        self.vacancies = Vacancies()
        self.vigil: Any = None

    @property
    def valid_until(self) -> float:
        """Until when the session can be believed, on :func:`zkcoord.zk.clock.now`."""
        return self.belief.valid_until

    @property
    def ephemeral_bytes(self) -> int:
        """Bytes of ephemeral paths reserved or held."""
        return self._bytes

    def over(self) -> bool:
        """Whether the session can no longer be believed."""
        return self.belief.over(now())

    def acknowledge(self, sent: float) -> None:
        """Something sent at `sent` was answered."""
        self.belief.acknowledge(sent, now())

    def request(self) -> int:
        """A number for a request: unique within the session, and rising."""
        return next(self._numbers)

    def end(self, reason: str) -> None:
        """It is over: tell everything that stands on it, once. On the loop."""
        self.belief.end()
        if self._ended:
            return
        self.reason = reason
        with self._lock:
            self._ended = True
            members, self._members = self._members, {}
        for ended in members.values():
            ended()
        self.lost.set()

    def join(self, member: object, ended: Callable[[], None]) -> None:
        """Call `ended` when the session is over, unless `leave` comes first.

        On the loop; at once, here, when it is over already.
        """
        with self._lock:
            late = self._ended
            if not late:
                self._members[id(member)] = ended
        if late:
            ended()

    def leave(self, member: object) -> None:
        """Forget a member."""
        with self._lock:
            self._members.pop(id(member), None)

    def reserve(self, path: str, room: int) -> None:
        """Count an ephemeral path before it is created.

        Args:
            path: absolute, chroot included.
            room: its bytes, sequence included.

        Raises:
            SessionFull: the session's bound would be passed.
        """
        with self._lock:
            if self._bytes + room > self._bytes_max:
                raise SessionFull(
                    f"{path}: {self._bytes} bytes of ephemeral paths are in use, "
                    f"the bound is {self._bytes_max}",
                    hint="use shorter names, or spread the work over several sessions",
                )
            self._bytes += room

    def hold(self, path: str, room: int) -> None:
        """A reserved path exists now under this name."""
        with self._lock:
            self._paths.setdefault(path, room)

    def free(self, path: str) -> None:
        """An ephemeral path is gone."""
        with self._lock:
            self._bytes -= self._paths.pop(path, 0)
            self.leaving.discard(path)
        self.vacancies.gone(path)

    def unreserve(self, room: int) -> None:
        """A reserved path was not created."""
        with self._lock:
            self._bytes -= room


class Expectants:
    """Who waits for a session to live, first come first served.

    Whoever comes while others wait, or while they are being served, comes behind them: otherwise a
    request of one thread would overtake those that were made before it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[Callable[[Epoch], None], Callable[[], object]] = {}
        self._serving = False

    def wait(
        self,
        living: Callable[[], Epoch | None],
        fn: Callable[[Epoch], None],
        closed: Callable[[], object],
    ) -> Epoch | None:
        """The session that lives, when nobody is to be served before; else keep `fn` until then.

        From any thread. `fn(epoch)` on the loop once one lives, or `closed()` when none ever will.
        """
        with self._lock:
            epoch = living()
            if epoch is not None and not self._calls and not self._serving:
                return epoch
            self._calls[fn] = closed
            return None

    def forget(self, fn: Callable[[Epoch], None]) -> None:
        """Take it back, when it has not been called."""
        with self._lock:
            self._calls.pop(fn, None)

    def serve(self, epoch: Epoch) -> None:
        """A session lives. On the loop. What it does not live long enough for waits on."""
        while not epoch.over():
            with self._lock:
                self._serving = bool(self._calls)
                if not self._serving:
                    return
                fn = next(iter(self._calls))
                del self._calls[fn]
            run((fn, (epoch,)))
        self._serving = False

    def close(self) -> None:
        """None ever will. On the loop."""
        with self._lock:
            waiting, self._calls = self._calls, {}
        for closed in waiting.values():
            closed()
