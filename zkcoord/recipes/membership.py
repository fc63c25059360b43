"""Group membership: named members with data, gone when their session ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

from zkcoord.errors import ConfigError, LeaseLost, NameRefused, SessionClosed
from zkcoord.recipes.contenders import FolderReading
from zkcoord.recipes.joining import Joining
from zkcoord.recipes.member import Member
from zkcoord.recipes.member_watch import Diff, Joined, Left, MembershipWatch, Updated
from zkcoord.recipes.profiles import INTERVAL_S, Profile, check_interval
from zkcoord.zk.blocking import refuse_in_event_loop
from zkcoord.zk.callbacks import check_callback, check_function
from zkcoord.zk.condition import shown
from zkcoord.zk.epoch import Epoch
from zkcoord.zk.link import Link
from zkcoord.zk.names import check_data, check_name, check_path, join
from zkcoord.zk.promise import Promise, ask_and_wait
from zkcoord.zk.session import Session, check_session
from zkcoord.zk.verbs import check_timeout

__all__ = [
    "Diff",
    "Joined",
    "Left",
    "Member",
    "Membership",
    "MembershipWatch",
    "Presence",
    "Updated",
]

_TIMEOUT_S = 10.0


class Membership:
    """A group whose members have names and data, and are gone when their session ends.

    Args:
        session: members join with it.
        path: the group's folder below the session's chroot, such as ``/members/web``; created by
            the first who joins.

    Raises:
        NameRefused: not a path.
    """

    def __init__(self, session: Session, path: str) -> None:
        self.session = check_session(session)
        self.path = check_path(path)

    def __repr__(self) -> str:
        return shown(self, self.path, self.session.link)

    def join(
        self,
        name: str,
        data: bytes = b"",
        *,
        exclusive: bool = True,
        profile: Profile | None = None,
        load_interval: float = INTERVAL_S,
        timeout: float = _TIMEOUT_S,
    ) -> Member:
        """Become a member.

        Args:
            name: with `exclusive` nobody else can have it; otherwise session and a number are
                added to it, and many members may share it.
            data: published to who watches.
            exclusive: see name.
            profile: capabilities, capacity and load instead of data;
                :meth:`Member.report_load` then says how busy it is.
            load_interval: seconds between two writes of the load, 0.05 or more.
            timeout: seconds for all of it. When it passes after the node was sent, the node is
                given back in the background.

        Raises:
            NodeExists: the name is taken. A crashed predecessor keeps it until its session ends.
            TypeError: the name is no text, or the data are no bytes.
            EnsembleUnavailable, SessionLost, SessionClosed, SessionFull, AccessDenied.
            RuntimeError: called inside an event loop; use ``await membership.join_future(...)``.
        """
        refuse_in_event_loop("membership.join()", "await membership.join_future(...)")
        return ask_and_wait(
            lambda: self.join_future(
                name,
                data,
                exclusive=exclusive,
                profile=profile,
                load_interval=load_interval,
                timeout=timeout,
            )
        )

    def join_future(
        self,
        name: str,
        data: bytes = b"",
        *,
        exclusive: bool = True,
        profile: Profile | None = None,
        load_interval: float = INTERVAL_S,
        timeout: float | None = _TIMEOUT_S,
    ) -> Promise[Member]:
        """The same, to be awaited. With `timeout` None until the session is lost."""
        link = self.session.link
        link.check_open()
        interval = check_interval(load_interval)
        data = _checked(link, name, data, profile)
        if timeout is not None:
            check_timeout(timeout)
        path = link.absolute(join(self.path, check_name(name, "member name")))

        def make(epoch: Epoch, path: str, token: int) -> Member:
            return Member(
                link,
                epoch,
                path=path,
                name=path.rpartition("/")[2],
                token=token,
                profile=profile,
                load_interval=interval,
            )

        return Joining(link, path, data, timeout, make, unique=not exclusive).begin()

    def keep(
        self,
        name: str,
        data: bytes = b"",
        *,
        profile: Profile | None = None,
        load_interval: float = INTERVAL_S,
        on_join: Callable[[Member], object] | None = None,
    ) -> Presence:
        """Join, and join again whenever the session was lost and renewed, until it is closed.

        Waits for the name while another has it. Every time it has joined, ``on_join(member)`` is
        called on the session's dispatcher thread: with a new member, and so a new token.

        With a profile it joins again with the load that was reported last.
        """
        self.session.link.check_open()
        data = check_data(data, f"member {name}: data")
        _checked(self.session.link, name, data, profile)
        check_interval(load_interval)
        check_callback(on_join, "on_join")
        load = None if profile is None else Load(profile, load_interval)
        return Presence(self, check_name(name, "member name"), data, on_join, load)

    def members(self, timeout: float = _TIMEOUT_S) -> list[Joined]:
        """All members with their data, by name; empty when the group was never joined."""
        refuse_in_event_loop("membership.members()", "await membership.members_future()")
        return self.members_future(timeout).wait()

    def members_future(self, timeout: float = _TIMEOUT_S) -> Promise[list[Joined]]:
        """The same, to be awaited."""
        link = self.session.link
        reading = FolderReading(link, link.absolute(self.path), sorted, timeout, "members")
        return reading.promise.then(
            lambda found: [Joined(name, stat.czxid, value) for name, value, stat in found]
        )

    def watch(self, callback: Callable[[Diff], object]) -> MembershipWatch:
        """Call ``callback(Joined | Left | Updated)``, first for everybody who is there.

        Runs on the session's dispatcher thread and may block. Diffs are those of one history:
        a member joins before it is updated or leaves, and a new incarnation comes after the old
        one has left. It goes on across reconnects and lost sessions until it is closed. A change
        costs one listing, or one read when it is one of data.
        """
        link = self.session.link
        link.check_open()
        check_function(callback, "callback")
        return MembershipWatch(link, link.absolute(self.path), callback)


class Load(NamedTuple):
    """What a presence joins with."""

    profile: Profile
    interval: float


def published(name: str, data: bytes, profile: Profile | None) -> bytes:
    """What a member's node says.

    Raises:
        ConfigError: data and a profile were given. TypeError: the profile is none.
    """
    if profile is None:
        return data
    given: object = profile
    if not isinstance(given, Profile):
        kind = type(given).__name__
        raise TypeError(f"member {name}: profile {given!r}: must be a Profile, not {kind}")
    if data:
        raise ConfigError(f"member {name}: give data or a profile, which has data of its own")
    return profile.encode()


class Presence:
    """A membership that is renewed. Close it to leave. Given by ``membership.keep``.

    Attributes:
        member: the present one, None while there is none.
        error: the last reason why it could not join, None once it has.
    """

    _PAUSE_S = 1.0

    def __init__(
        self,
        membership: Membership,
        name: str,
        data: bytes,
        on_join: Callable[[Member], object] | None,
        load: Load | None = None,
    ) -> None:
        self._load = load
        self._membership = membership
        self._link = membership.session.link
        self._name = name
        self._data = data
        self._on_join = on_join
        self._closed = False
        self._joining: Promise[Member] | None = None
        self.member: Member | None = None
        self.error: BaseException | None = None
        self._link.loop.post(self._join)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "joining" if self.member is None else "joined"
        if self.error is not None:
            state = f"ended: {type(self.error).__name__}"
        return shown(self, f"{self._membership.path}/{self._name}", self._link, state)

    def update(self, data: bytes) -> None:
        """Publish new data, now and after every time it joins. Does not wait.

        Raises:
            ConfigError: kept with a profile: report the load instead.
            NameRefused: larger than the session's `value_bytes_max`.
        """
        if self._load is not None:
            raise ConfigError(f"member {self._name}: it is kept with a profile: report_load")
        self._data = _checked(self._link, self._name, data, None)
        member = self.member
        if member is not None:
            try:
                member.update_future(self._data)
            except LeaseLost:
                return  # joins again with it

    def report_load(self, load: float) -> None:
        """Publish how busy it is, now and after every time it joins; as `Member.report_load`.

        Raises:
            ConfigError: kept without a profile, or a load below 0.
        """
        if self._load is None:
            raise ConfigError(f"member {self._name}: it is kept without a profile, so has no load")
        self._load = self._load._replace(profile=self._load.profile.with_load(load))
        member = self.member
        if member is not None:
            try:
                member.report_load(load)
            except LeaseLost:
                return  # joins again with it

    def close(self) -> None:
        """Leave and stay away. From any thread."""
        self._closed = True
        self._link.loop.post(self._leave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _leave(self) -> None:
        if self._joining is not None:
            self._joining.give_up()
        if self.member is not None:
            self.member.leave(quiet=True)
            self.member = None

    def _join(self) -> None:
        if self._closed or self._link.closed:
            return
        self.member = None
        try:
            if self._load is None:
                self._joining = self._membership.join_future(self._name, self._data, timeout=None)
            else:
                self._joining = self._membership.join_future(
                    self._name,
                    profile=self._load.profile,
                    load_interval=self._load.interval,
                    timeout=None,
                )
        except SessionClosed:
            return
        self._joining.on_done(self._settled)

    def _settled(self) -> None:
        joining, self._joining = self._joining, None
        if joining is None or joining.cancelled():
            return
        self.error = joining.exception()
        if self.error is not None:
            if not isinstance(self.error, SessionClosed):
                self._link.timer(self._PAUSE_S, self._join)
            return
        member = self.member = joining.result()
        if self._closed:
            self._leave()
            return
        member.lost.on_set(lambda: self._link.loop.post(self._join))
        if self._on_join is not None:
            self._link.dispatcher.post(self._on_join, member)


def _checked(link: Link, name: str, data: bytes, profile: Profile | None) -> bytes:
    """What a member publishes, if a node can hold it."""
    data = published(name, check_data(data, f"member {name}: data"), profile)
    bound = link.config.value_bytes_max
    if len(data) > bound:
        raise NameRefused(f"member {name}: {len(data)} bytes of data, the bound is {bound}")
    return data
