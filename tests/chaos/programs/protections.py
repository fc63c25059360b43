"""zkcoord's lock with one protection taken away: the mutants that histories must convict.

Each is applied in a client's process before its session is made. The product has no switch for
any of this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkcoord.core import ordering, permits
from zkcoord.core.lease import Belief
from zkcoord.errors import CoordinationError
from zkcoord.recipes import rwlock
from zkcoord.recipes.entry import Entry
from zkcoord.recipes.multi_acquisition import MultiAcquisition
from zkcoord.zk.connection import HardenedConnection
from zkcoord.zk.link import Link
from zkcoord.zk.requests import GetChildren


def replace(owner: Any, name: str, new: Callable[..., Any]) -> Any:
    """Put `new` in the place of what must be there; give back what was."""
    old = getattr(owner, name)
    setattr(owner, name, new)
    return old


def look_instead_of_writing() -> None:
    """An uncertain create is looked for, and taken for failed when it is not to be seen."""

    def again(self: Any) -> None:
        if self._over() or self._calls or self._left:
            return None
        if not self._uncertain:
            return plain_again(self)  # type: ignore[no-any-return]
        call = self._link.prepare(
            GetChildren(self._line.folder), lambda *reply: looked(self, *reply), epoch=self._epoch
        )
        self._calls = [call]
        self._link.submit(call)
        return None

    def looked(self: Any, names: list[str] | None, error: CoordinationError | None) -> None:
        self._calls = []
        if self._over():
            return
        if error is not None:
            self._trouble(error, self._again)
            return
        self._uncertain = False
        found = ordering.place(ordering.in_order(names or []), self._epoch.id, self._request)
        if found is not None:
            self._refused = None
            self._place(found)
            return
        self._number = self._epoch.request()
        self._request = ordering.encode_request(self._number)
        prefix = ordering.prefix(self._line.kind, self._epoch.id, self._request)
        self._prefix = self._line.path(prefix)
        self._again()

    def leave(self: Any) -> None:
        if self._uncertain and not self._calls and not self._left:
            self._again()
        else:
            plain_leave(self)

    plain_again = replace(Entry, "_again", again)
    plain_leave = replace(Entry, "leave", leave)


def restart_xids() -> None:
    """Every link counts its requests from one."""

    def link_down(self: Any, reason: str) -> None:
        assert self._connection._xid_last >= 0
        self._connection._xid_last = 0
        plain(self, reason)

    plain = replace(Link, "link_down", link_down)


def believe_what_was_sent() -> None:
    """A link lives as long as something is sent on it, whatever comes back."""

    def pulse(self: Any) -> float:
        self._heard = max(self._heard, self._written)
        return plain(self)  # type: ignore[no-any-return]

    plain = replace(HardenedConnection, "_pulse", pulse)


def wait_for_the_server_to_say_so() -> None:
    """A session is lost when a server says so, and not before."""
    replace(Belief, "over", lambda self, _now: self._ended)
    replace(Link, "_watchdog", lambda _self, _epoch: None)


def sort_as_text() -> None:
    """Sequences are compared as text, as kazoo and Curator do."""

    def in_order(nodes: Any) -> Any:
        return sorted(plain(nodes), key=lambda found: found.node.rpartition(".")[2])

    plain = replace(ordering, "in_order", in_order)


def take_any_number() -> None:
    """A place is taken with whatever number the folder's counter gives, beyond its end too."""
    replace(ordering, "exhausted", lambda _sequence: False)


def let_readers_pass() -> None:
    """A reader holds at once, whatever stands in front."""
    replace(rwlock, "_is_writer", lambda _contender: False)


def count_requests() -> None:
    """Every request counts as one permit, whatever it weighs."""
    replace(permits, "weight_of", lambda found: 1 if found.kind == permits.PERMIT else 0)


def be_content_with_one() -> None:
    """Several locks count as held as soon as one of them is."""

    def check(self: Any) -> None:
        if self._entry is not None and self.wanted() and any(f.clear for f in self._fronts):
            self._entry.identify()

    replace(MultiAcquisition, "_check", check)


# Of the other recipes: told of in the stories about those only.
OTHERS: dict[str, Callable[[], None]] = {
    "passing": let_readers_pass,
    "counting": count_requests,
    "content": be_content_with_one,
}
MUTANTS: dict[str, Callable[[], None]] = {
    "looks": look_instead_of_writing,
    "xids": restart_xids,
    "sent": believe_what_was_sent,
    "late": wait_for_the_server_to_say_so,
    "text": sort_as_text,
    "end": take_any_number,
}
