"""One member of a group."""

from __future__ import annotations

from zkcoord.errors import ConfigError, CoordinationError, NameRefused
from zkcoord.recipes.lease import Lease
from zkcoord.recipes.profiles import INTERVAL_S, LoadReports, Profile
from zkcoord.recipes.publication import Publication
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.names import check_data
from zkcoord.zk.promise import Promise

_TIMEOUT_S = 10.0


class Member(Lease):
    """A place in a group: a lease. `token` is the incarnation; release it to leave.

    Given by ``membership.join``.
    When the session is lost, or somebody removes the node, the place is lost: `lost` is set and
    `check` raises. :meth:`~zkcoord.recipes.membership.Membership.keep` joins again by itself.
    """

    def __init__(
        self,
        link: Link,
        epoch: Epoch,
        *,
        path: str,
        name: str,
        token: int,
        profile: Profile | None = None,
        load_interval: float = INTERVAL_S,
    ) -> None:
        super().__init__(link, epoch, path=path, name=name, token=token)
        self._profile = profile
        self._loads = LoadReports(link, load_interval, self._write_load)
        self._publication = Publication(
            link, epoch, path, token, f"update {name}", self._ended, self.removed
        )

    def update(self, data: bytes, timeout: float = _TIMEOUT_S) -> None:
        """Publish new data. Of updates that follow one another quickly only the last is sent.

        Raises:
            LeaseLost: no member any more; noticed here when somebody removed the node.
            EnsembleUnavailable: no answer in time; it may still be published.
            NameRefused: larger than the session's `value_bytes_max`.
            TypeError: the data are no bytes.
        """
        refuse_in_event_loop("member.update()", "await member.update_future(...)")
        self.update_future(data, timeout).wait()

    def update_future(self, data: bytes, timeout: float = _TIMEOUT_S) -> Promise[None]:
        """The same, to be awaited."""
        data = check_data(data, f"{self.name}: data")
        self.check()
        if len(data) > self._link.config.value_bytes_max:
            raise NameRefused(f"{self.name}: {len(data)} bytes of data are too many")
        return self._publication.publish(data, timeout)

    @property
    def profile(self) -> Profile | None:
        """The profile it joined with, with the load that was reported last; None without one."""
        return self._profile

    def report_load(self, load: float) -> None:
        """Publish how busy it is: at most once in each `load_interval`, the last report wins.

        Does not wait. What is reported right before leaving is written before the node goes.

        Raises:
            ConfigError: joined without a profile, or a load below 0.
            LeaseLost: no member any more.
        """
        self.check()
        if self._profile is None:
            raise ConfigError(f"member {self.name}: it joined without a profile, so has no load")
        self._profile = self._profile.with_load(load)
        self._loads.report(load)

    def _write_load(self, load: float) -> None:
        if self._profile is not None and not self._reason:
            self._publication.publish(self._profile.with_load(load).encode(), _TIMEOUT_S)

    def release_future(self) -> Promise[bool]:
        """Leave; done when the node's removal is confirmed or the session over."""
        load = self._loads.take()
        if load is not None and self._profile is not None and not self._reason:
            self._publication.last_word(self._profile.with_load(load).encode())
        release = super().release_future()
        claims = self._epoch.claims
        if claims.get(self._absolute, self) is None:  # who joins again waits for the removal
            claims[self._absolute] = release
            release.on_done(lambda: claims.pop(self._absolute, None))
        return release

    def removed(self) -> None:
        """Internal: its node was found to be gone. On the loop."""
        super().removed()
        self._epoch.claims.pop(self._absolute, None)

    def _ended(self) -> CoordinationError | None:
        return self._error(self._reason) if self._reason else None
