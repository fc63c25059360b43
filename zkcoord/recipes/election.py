"""Leader election."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any, Literal, TypeVar

from zkcoord.recipes.candidacy import Candidacy
from zkcoord.recipes.contenders import (
    Revocation,
    Standing,
    contenders_future,
    describe,
    this_process,
)
from zkcoord.recipes.hold import Hold
from zkcoord.recipes.leadership import Leadership
from zkcoord.recipes.line import Line
from zkcoord.recipes.observer import Leader, Observer, leader_of
from zkcoord.recipes.position import OnPosition
from zkcoord.recipes.resigning import asking
from zkcoord.recipes.revocation import OnRevoke, check_reason, listening
from zkcoord.recipes.running import Running
from zkcoord.recipes.steps import Steps
from zkcoord.recipes.transfer import check_candidate
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.callbacks import check_callback, check_function
from zkcoord.zk.condition import shown
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.names import check_data, check_label, check_name, check_path, join
from zkcoord.zk.promise import Promise, ask_and_wait
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.verbs import check_timeout

__all__ = ["Election", "Leader", "Leadership", "Observer"]

T = TypeVar("T")


class Election:
    """One leader among those who campaign, in the order of campaigning.

    Two leaders never believe in themselves at the same time: a leader whose session is in doubt
    stops believing (`lost` is set, `check` raises) before another can win.

    A leader may hand over to a candidate before its turn, see :meth:`Leadership.transfer`: those
    who were in between then wait behind all others.

    Args:
        session: it lives and dies with this.
        name: the same for all candidates; one part of a path.
        root: folder of elections below the session's chroot.
        label: what this candidate calls itself; the session's name when empty.

    Raises:
        NameRefused: the name cannot be part of a path, or a label is longer than 1000 bytes.
    """

    def __init__(
        self, session: Session, name: str, *, root: str = "/elections", label: str = ""
    ) -> None:
        self.name = check_name(name, "election name")
        self.session = check_session(session)
        self._root = check_path(root)
        self._label = check_label(label) or session.name
        self._folder = session.link.absolute(join(root, name))
        self._lock = threading.Lock()
        self._campaigns: set[Promise[Leadership]] = set()
        self._leaderships: list[Leadership] = []

    def __repr__(self) -> str:
        return shown(self, self.name, self.session.link, self.state)

    @property
    def state(self) -> Literal["leading", "candidate", "idle"]:
        """What this object is about: it leads, waits in a campaign, or neither."""
        with self._lock:
            self._leaderships = [one for one in self._leaderships if one.valid_for() > 0]
            if self._leaderships:
                return "leading"
            return "candidate" if self._campaigns else "idle"

    def campaign(
        self,
        timeout: float | None = None,
        data: bytes = b"",
        *,
        on_position: OnPosition | None = None,
        on_revoke: OnRevoke | None = None,
    ) -> Leadership:
        """Stand for election and wait until it is won.

        Args:
            timeout: seconds, over everything; None waits until it is won or the session is lost;
                0 tries, as in :meth:`~zkcoord.recipes.lock.Lock.acquire`.
            data: published to observers for as long as this candidate leads.
            on_position: told where this candidate stands, as in
                :meth:`~zkcoord.recipes.lock.Lock.acquire`.
            on_revoke: called with a :class:`Revocation` on the dispatcher when somebody asks the
                leader to resign, see :meth:`revoke`. It should end its work, and then release, or
                transfer to ``revocation.to`` where that is not empty.

        Raises:
            AcquireTimeout, SessionLost, SessionClosed, SessionFull, AccessDenied, NodeForeign,
            ConfigError: as for a lock. After SessionLost campaign again: the session is renewed
                by itself.
            TypeError: the data are no bytes.
            RuntimeError: called inside an event loop; use ``async with election.lead()``.
        """
        refuse_in_event_loop(
            "election.campaign()", "async with election.lead(), or await election.campaign_future()"
        )
        return ask_and_wait(
            lambda: self.campaign_future(
                timeout, data, on_position=on_position, on_revoke=on_revoke
            )
        )

    def campaign_future(
        self,
        timeout: float | None = None,
        data: bytes = b"",
        *,
        on_position: OnPosition | None = None,
        on_revoke: OnRevoke | None = None,
    ) -> Promise[Leadership]:
        """The same, to be awaited. Cancelling it withdraws the candidate."""
        if timeout is not None:
            check_timeout(timeout)
        data = check_data(data, f"election {self.name}: data")
        check_callback(on_position, "on_position")
        check_callback(on_revoke, "on_revoke")
        value = describe(self._label, data, revocable=on_revoke is not None)
        line = Line(self._folder, f"election {self.name}", value, recipe="election")

        def grant(epoch: Epoch, path: str, token: int) -> Leadership:
            link, name = self.session.link, f"election {self.name}"
            leadership = Leadership(link, epoch, path=path, name=name, token=token, value=value)
            with self._lock:
                self._leaderships.append(leadership)
            return leadership

        make = listening(self.session.link, grant, on_revoke)
        candidacy = Candidacy(self.session.link, line, timeout, make, on_position=on_position)
        promise = candidacy.promise
        try:
            with self._lock:
                self._campaigns.add(promise)
            promise.on_done(lambda: self._ended(promise))
            return candidacy.begin()
        except BaseException:
            self._ended(promise)
            raise

    def lead(
        self,
        timeout: float | None = None,
        data: bytes = b"",
        *,
        on_revoke: OnRevoke | None = None,
    ) -> Hold[Leadership]:
        """Campaign on entering ``with`` or ``async with``, resign on leaving."""
        return Hold(lambda: self.campaign_future(timeout, data, on_revoke=on_revoke))

    def run(
        self,
        fn: Callable[[Leadership], T],
        *,
        data: bytes = b"",
        timeout: float | None = None,
        terms: int = 1,
    ) -> T:
        """Campaign, call ``fn(leadership)`` in this thread, resign.

        When the leadership is lost inside, `fn` is told by ``leadership.lost`` and by LeaseLost
        from ``leadership.check()``; it must end then. What it returned or raised as LeaseLost is
        not taken as the result: it campaigns again and calls it again, if there is a term left.

        When somebody asks this leader to resign (:meth:`revoke`), `fn` is told in the same way, by
        a LeaseLost with the reason ``revoked``. The next one, or the one who was asked for, leads
        once it has ended.

        Args:
            fn: what a leader does.
            data: published while it leads.
            timeout: seconds of waiting in all campaigns together; None for as long as it takes.
            terms: how often it campaigns at most, 1 to 1000000. A campaign that ends with
                SessionLost counts.

        Returns:
            What `fn` returned while it led.

        Raises:
            LeaseLost: the leadership was lost in the last term.
            SessionLost: the session was lost in the last campaign.
            AcquireTimeout: not elected in time.
            ConfigError: terms or timeout out of range.
            TypeError: `fn` is ``async``, or returned what has to be awaited.
            Exception: what `fn` raised; this candidate has resigned.
            RuntimeError: called inside an event loop; use ``await election.run_async(...)``.
        """
        refuse_in_event_loop("election.run()", "await election.run_async(...)")
        if iscoroutinefunction(fn):
            raise TypeError(f"election.run(): {fn!r} is async; use: await election.run_async(...)")
        check_function(fn, "fn")
        campaign = self._campaigning(data)
        return Running[T](campaign, timeout, terms).blocking(fn)

    def run_async(
        self,
        fn: Callable[[Leadership], Coroutine[Any, Any, T]],
        *,
        data: bytes = b"",
        timeout: float | None = None,
        terms: int = 1,
    ) -> Coroutine[Any, Any, T]:
        """The same in asyncio, to be awaited.

        `fn` runs as a task that is cancelled when the leadership is lost.

        What is no ``async`` function, nor gives what can be awaited, is refused with TypeError.
        It goes on once that task has ended. Cancelling it cancels the task and resigns.
        """
        if not callable(fn):
            raise TypeError(f"fn {fn!r}: must be an async function, not {type(fn).__name__}")
        return Running[T](self._campaigning(data), timeout, terms).awaited(fn)

    def _campaigning(self, data: bytes) -> Callable[[float | None], Promise[Leadership]]:
        def campaign(left: float | None) -> Promise[Leadership]:
            def obey(asked: Revocation) -> None:
                promise.result().step_down(asked)

            promise = self.campaign_future(left, data, on_revoke=obey)
            return promise

        return campaign

    def revoke(
        self, reason: str, *, to: str | int = "", by: str = "", timeout: float = 10.0
    ) -> Standing:
        """Ask the leader to resign, or to hand over to a candidate. It is the leader's to decide.

        Leaders inside :meth:`run` and :meth:`run_async` and zkcoord's schedulers do so by
        themselves; of the others those listen that campaigned with `on_revoke`.

        Args:
            reason: told to the leader; 1000 letters at most.
            to: the label or the session id of a candidate that waits; of several with the label
                the first. Empty for whoever is next.
            by: who asks; this process when empty.
            timeout: seconds for all of it.

        Returns:
            Who was asked.

        Raises:
            NodeMissing: nobody leads.
            NotRevocable: the leader does not listen.
            CandidateMissing: `to` leads already, or does not stand; nobody was asked.
            EnsembleUnavailable: no answer in time; it may or may not have been asked.
            NameRefused: the reason cannot be.
            SessionClosed, AccessDenied, ConfigError.
        """
        refuse_in_event_loop("election.revoke()", "await election.revoke_future(...)")
        return self.revoke_future(reason, to=to, by=by, timeout=timeout).wait()

    def revoke_future(
        self, reason: str, *, to: str | int = "", by: str = "", timeout: float = 10.0
    ) -> Promise[Standing]:
        """The same, to be awaited."""
        check_candidate(to, empty=True)
        who = by or this_process(self.session.name)
        asked = Revocation(check_reason(reason), who, round(time.time(), 3), to)
        what = f"election {self.name}"
        if self._root != "/elections":  # such as a queue's, whose name alone says nothing
            what = f"election {join(self._root, self.name)}"
        course = asking(self._folder, what, asked)
        return Steps(self.session.link, course, f"revoke {what}", check_timeout(timeout)).begin()

    def leader(self, timeout: float = 10.0) -> Leader | None:
        """Who leads now, as this session's server knows it; None when nobody does."""
        refuse_in_event_loop("election.leader()", "await election.leader_future()")
        return self.leader_future(timeout).wait()

    def leader_future(self, timeout: float = 10.0) -> Promise[Leader | None]:
        """The same, to be awaited."""
        found = contenders_future(
            self.session, self.name, root=self._root, limit=1, timeout=timeout
        )
        return found.then(
            lambda standing: (
                leader_of(standing[0].identity, standing[0].token) if standing else None
            )
        )

    def observe(self, callback: Callable[[Leader | None], object]) -> Observer:
        """Call ``callback(leader)`` now and whenever it changes; None while nobody leads.

        The callback runs on the session's dispatcher thread and may block. It goes on across
        reconnects and lost sessions until it is closed. One watch, on the leader's node.
        """
        self.session.link.check_open()
        check_function(callback, "callback")
        return Observer(self.session.link, self._folder, callback)

    def _ended(self, promise: Promise[Leadership]) -> None:
        with self._lock:
            self._campaigns.discard(promise)
            self._leaderships = [one for one in self._leaderships if one.valid_for() > 0]
