"""The shipped election as a client of a model world, and what must hold of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from acting_world import ActingWorld
from lock_requests import Ours
from lock_scenario import Request, Wish
from zk_client import connection
from zk_tree import Tree, Txn, parent

from zkcoord.core import ordering
from zkcoord.errors import LeaseLost
from zkcoord.recipes import Election, Leader, Leadership, Observer
from zkcoord.recipes.contenders import Revocation, Standing, read_identity
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise

NAME = "scheduler"
FOLDER = f"/elections/{NAME}"
FOLDERS = ("/elections", FOLDER)
Act = Callable[["Campaign", Leadership], object]


def first_in_line(tree: Tree) -> str:
    """The leader's node in this tree; empty when nobody stands."""
    line = ordering.in_order(tree.children(FOLDER)) if FOLDER in tree else []
    return f"{FOLDER}/{line[0].node}" if line else ""


def said_by(tree: Tree, path: str) -> tuple[str, bytes]:
    """What a candidate calls itself, and what it publishes."""
    identity = read_identity(tree[path].data)
    assert identity is not None
    return identity.name, identity.data


class Campaign(Ours):
    """A campaign, and what the leader does in its term.

    Attributes:
        acts: what is left of it to be done. handed: to whom leadership was handed, node by node.
        published: what it was told that was published.
    """

    def __init__(
        self,
        session: Session,
        label: str,
        *,
        deeds: tuple[Act, ...],
        timeout: float | None,
        listens: bool,
    ) -> None:
        self.complaints: list[str] = []
        self.handed: dict[str, str] = {}
        self.published: list[bytes] = []
        self.acts = len(deeds)
        self._deeds = list(deeds)
        self.busy = listens  # then it leads until it is asked
        election = Election(session, NAME, label=label)
        obey = self._obey if listens else None
        super().__init__(election.campaign_future(timeout, on_revoke=obey), (NAME,))

    @property
    def path(self) -> str:
        assert self._lease is not None
        return self._lease._absolute

    def _done(self) -> None:
        super()._done()
        if isinstance(self.error, LeaseLost):
            self.complaints.append("liveness: a candidate was sent away")

    def act(self) -> None:
        assert isinstance(self._lease, Leadership)
        with contextlib.suppress(LeaseLost):  # it leads no more
            self._deeds.pop(0)(self, self._lease)

    def _obey(self, asked: Revocation) -> None:
        assert isinstance(self._lease, Leadership)
        self._lease.step_down(asked)
        done = self._lease.give_way()
        if done is not None:
            done.on_done(self._retired)

    def _retired(self) -> None:
        self.finished = True


def hand_over(to: str) -> Act:
    """Transfer to whoever is called that."""

    def deed(campaign: Campaign, leadership: Leadership) -> None:
        path, promise = campaign.path, leadership.transfer_future(to, 1e6)
        campaign.busy = True

        def done() -> None:
            campaign.busy = False
            if promise.exception() is None:
                campaign.handed[path] = to
            if not leadership.held:
                campaign.finished = True

        promise.on_done(done)

    return deed


def proclaim(data: bytes) -> Act:
    """Publish a value under one's term."""

    def deed(campaign: Campaign, leadership: Leadership) -> None:
        promise = leadership.proclaim_future(data, 1e6)

        def done() -> None:
            if promise.exception() is None:
                campaign.published.append(data)

        promise.on_done(done)

    return deed


class Watching:
    """An observer as a request that holds nothing until it is closed."""

    what: Any = ()
    token = 0
    granted = busy = looks_on = True

    def __init__(self, session: Session) -> None:
        self.finished = False
        self.complaints: list[str] = []
        self.told: list[Leader | None] = []
        self._terms = [0]
        self._observer: Observer = Election(session, NAME).observe(self._tell)

    def _tell(self, leader: Leader | None) -> None:
        self.told.append(leader)
        if leader is not None:
            if leader.term < self._terms[-1]:
                self.complaints.append("order: an observer was told of an older term")
            self._terms.append(leader.term)

    def settled(self) -> bool:
        return True

    def believed(self) -> bool:
        return False

    def release(self) -> None:
        self.finished = True
        self._observer.close()

    def cancel(self) -> None: ...


class Asking:
    """Somebody asks the leader to resign; it holds nothing."""

    what: Any = ()
    token = 0
    finished = True
    granted = False

    def __init__(self, promise: Promise[Standing]) -> None:
        self._promise = promise

    @property
    def asked(self) -> str:
        """The node of the leader that was asked; empty when none is known to be."""
        if not self._promise.done() or self._promise.exception() is not None:
            return ""
        return f"{FOLDER}/{self._promise.result().node}"

    def settled(self) -> bool:
        return self._promise.done()

    def believed(self) -> bool:
        return False

    def release(self) -> None: ...

    def cancel(self) -> None: ...


class ElectionWorld(ActingWorld):
    """A world that remembers who stood in front when a leader's node went."""

    def __init__(self, scenario: Any) -> None:
        self._heirs: dict[str, str] = {}
        super().__init__(scenario)

    def committed(self, txn: Txn) -> None:
        tree = self.ensemble.trees[0]
        for kind, path, _ in txn.deltas:
            if kind == "deleted" and parent(path) == FOLDER:
                heir = first_in_line(tree)
                self._heirs[path] = said_by(tree, heir)[0] if heir else ""

    def looked(self) -> None:
        for client in self.clients:
            for request in client.requests:
                if isinstance(request, Campaign):
                    self._look_at(request)

    def _look_at(self, campaign: Campaign) -> None:
        for path, to in campaign.handed.items():
            heir = self._heirs.get(path, to)
            if heir != to:
                self.wrong.append(f"order: handed over to {to}, and {heir or 'nobody'} leads")
        campaign.handed.clear()
        node = self.ensemble.head.get(campaign.path) if campaign.granted else None
        if node is not None and campaign.published:
            said = said_by(self.ensemble.head, campaign.path)[1]
            if said < campaign.published[-1]:  # later values are greater
                self.wrong.append(f"leftovers: {campaign.published[-1]!r} is not published")

    def quiet(self) -> str:
        head = self.ensemble.head
        leader = first_in_line(head)
        now = (head[leader].czxid, said_by(head, leader)[1]) if leader else (0, b"")
        alive = {connection(client.session).session for client in self.clients}
        for client in self.clients:
            for request in client.requests:
                if isinstance(request, Asking) and request.asked:
                    node = head.get(request.asked)
                    if node is not None and node.owner in alive:
                        return "liveness: a leader was asked to resign, and leads still"
                if isinstance(request, Watching) and not request.finished:
                    last = request.told[-1] if request.told else None
                    seen = (last.term, last.data) if last is not None else (0, b"")
                    if not request.told or seen != now:
                        return f"liveness: an observer does not know who leads, but {last}"
        return ""


def campaign(
    *deeds: Act, timeout: float | None = None, listens: bool = False, may_cancel: bool = False
) -> Wish:
    """A wish to lead."""

    def begin(session: Session, label: str) -> Request:
        return Campaign(session, label, deeds=deeds, timeout=timeout, listens=listens)

    return Wish(begin, may_cancel)


def watch() -> Wish:
    """A wish to know who leads."""
    return Wish(lambda session, _label: Watching(session))


def ask_to_resign(to: str = "") -> Wish:
    """A wish that the leader resigns, for the benefit of whoever is called that."""

    def begin(session: Session, _label: str) -> Request:
        return Asking(Election(session, NAME).revoke_future("maintenance", to=to, timeout=1e6))

    return Wish(begin)
