"""A won election."""

from __future__ import annotations

from collections.abc import Callable

from zkcoord.errors import CoordinationError, LeaseLost, NameRefused
from zkcoord.recipes.contenders import Revocation, amended
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.publication import Publication
from zkcoord.recipes.transfer import Transfer, check_candidate
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.names import check_data
from zkcoord.zk.promise import Promise
from zkcoord.zk.verbs import check_timeout

_TIMEOUT_S = 10.0


class Leadership(Lease):
    """A won election: a lease. Release it to resign: the next candidate leads at once.

    Given by ``election.campaign``, ``lead`` and ``run``.
    When the session is lost the leadership is lost with it: `lost` is set before another can win.
    """

    def __init__(
        self, link: Link, epoch: Epoch, *, path: str, name: str, token: int, value: bytes
    ) -> None:
        super().__init__(link, epoch, path=path, name=name, token=token)
        self._value = value
        self._asked: Revocation | None = None
        self._publication = Publication(
            link, epoch, path, token, f"proclaim {name}", self._ended, self.removed
        )

    @property
    def term(self) -> int:
        """The token: above the term of every leader before."""
        return self.token

    def proclaim(self, data: bytes, timeout: float = _TIMEOUT_S) -> None:
        """Publish a value under this term: observers see it, and `leader` tells it.

        It stands in the leader's own node, so a leader that was followed by another can publish
        nothing any more: it gets LeaseLost. Of values that follow one another quickly only the last
        is sent; it is gone with the leadership.

        Raises:
            LeaseLost: it does not lead any more.
            EnsembleUnavailable: no answer in time; it may still be published.
            NameRefused: larger than the session's `value_bytes_max`.
            TypeError: the data are no bytes.
            RuntimeError: called inside an event loop; use ``await leadership.proclaim_future()``.
        """
        refuse_in_event_loop("leadership.proclaim()", "await leadership.proclaim_future(...)")
        self.proclaim_future(data, timeout).wait()

    def proclaim_future(self, data: bytes, timeout: float = _TIMEOUT_S) -> Promise[None]:
        """The same, to be awaited."""
        data = check_data(data, f"{self.name}: data")
        self.check()
        value = amended(self._value, data=data)
        if len(value) > self._link.config.value_bytes_max:
            raise NameRefused(f"{self.name}: {len(data)} bytes of data are too many")
        return self._publication.publish(value, timeout)

    def transfer(self, to: str | int, timeout: float = _TIMEOUT_S) -> None:
        """Resign in favour of a named candidate that waits, before its turn.

        This leader stops believing in itself first; then the candidate stands in front at one
        instant. The candidates that were in between are sent behind all who wait, by themselves and
        with the time that they have left. Nobody leads in between and never two at once.

        Args:
            to: the candidate's label, or its session id; of several with the label the first.
            timeout: seconds. When it passes, this leader has resigned, or still leads: `check`
                tells.

        Raises:
            CandidateMissing: it does not stand for election, and this leader goes on; or it went
                away at the last moment, and the next in line leads.
            LeaseLost: it does not lead any more.
            EnsembleUnavailable, SessionLost, SessionClosed, AccessDenied.
            TypeError, NameRefused: `to` is no label and no session id.
            RuntimeError: called inside an event loop; use ``await leadership.transfer_future()``.
        """
        refuse_in_event_loop("leadership.transfer()", "await leadership.transfer_future(...)")
        self.transfer_future(to, timeout).wait()

    def transfer_future(self, to: str | int, timeout: float = _TIMEOUT_S) -> Promise[None]:
        """The same, to be awaited."""
        check_timeout(timeout)
        check_candidate(to)
        self.check()
        transfer = Transfer(self._link, self._epoch, self, self._absolute, to, self._retire)
        return transfer.begin(timeout)

    # --- being asked ------------------------------------------------------------------------------

    def step_down(self, asked: Revocation) -> None:
        """Internal: stop believing in it because somebody asked: `lost` is set.

        The node stays until :meth:`give_way`, so nobody else leads before the work has ended.
        """
        self._asked = asked
        self._lose("revoked")

    def give_way(self) -> Promise[None] | None:
        """Internal: the work has ended, let the next one lead, or the one who was asked for.

        Returns:
            Done when the node is gone, or the session over; None when nobody asked.
        """
        asked, self._asked = self._asked, None
        if asked is None or self._reason != "revoked":
            return None
        done: Promise[None] = Promise(self._link.dispatcher)
        self._epoch.leave(self)
        retired: list[bool] = []

        def gone(_removed: bool = True) -> None:
            done.fulfil(None)

        def retire() -> Callable[[bool], object]:
            retired.append(True)
            return gone

        def transferred() -> None:
            if not retired:  # the candidate has gone, or was not found in time
                self._link.discard(self._absolute, self._epoch, gone)

        if asked.to:
            transfer = Transfer(self._link, self._epoch, self, self._absolute, asked.to, retire)
            transfer.begin(_TIMEOUT_S).on_done(transferred)
        else:
            self._link.discard(self._absolute, self._epoch, gone)
        return done

    def _retire(self) -> Callable[[bool], object]:
        """Release, but leave the node's removal to the caller."""
        told: list[Callable[[bool], object]] = []

        def keep(_path: str, _epoch: Epoch, done: Callable[[bool], object]) -> None:
            told.append(done)

        self._give_back = keep
        self.release_future()
        if not told:
            raise self._error("released")
        return told[0]

    def _ended(self) -> CoordinationError | None:
        return self._error(self._reason) if self._reason else None

    def _error(self, reason: str) -> LeaseLost:
        if reason != "revoked":
            return super()._error(reason)
        return LeaseLost(
            f"{self.name}: this leader was asked to resign, and does",
            name=self.name,
            token=self.token,
            reason=reason,
        )
