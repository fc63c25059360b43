"""The shipped pool as a client of a model world, and what must hold of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acting_world import ActingWorld
from lock_requests import Ours
from lock_scenario import Request, Wish
from zk_tree import Txn, parent

from zkcoord.core import ordering
from zkcoord.core.slots import read_slots
from zkcoord.recipes import Pool
from zkcoord.zk import Session
from zkcoord.zk.promise import Promise

NAME = "gpus"
FOLDER = f"/pools/{NAME}"
FOLDERS = ("/pools", FOLDER)
TAKEN = f"{FOLDER}/slots"


class SlotHeld(Ours):
    """A request for a slot; it holds the slot's name, and nothing while it waits."""

    def __init__(self, promise: Promise[Any]) -> None:
        super().__init__(promise, "")

    def _done(self) -> None:
        super()._done()
        if self._lease is not None:
            lease: Any = self._lease
            self.what = lease.slot


class Changing:
    """A change of the slots as a request; it holds nothing."""

    what = ""
    token = 0
    finished = True
    granted = False

    def __init__(self, promise: Promise[Any], drained: str) -> None:
        self._promise = promise
        self._drained = drained

    def settled(self) -> bool:
        return self._promise.done()

    def said_free(self) -> str:
        """The slot that is drained and was said to be free; or nothing."""
        done = self._promise.done() and not self._promise.cancelled()
        failed = not done or self._promise.exception() is not None
        return "" if failed or not self._promise.result() else self._drained

    def believed(self) -> bool:
        return False

    def release(self) -> None: ...

    def cancel(self) -> None: ...


class PoolWorld(ActingWorld):
    """A world that knows which slots are given out."""

    def open(self) -> set[str]:
        """The slots that may be given out now."""
        node = self.ensemble.trees[0].get(FOLDER)
        slots = read_slots(node.data) if node is not None else None
        return set(SLOTS) if slots is None else set(slots.slots) - set(slots.drained)

    def committing(self, txn: Txn) -> None:
        tree = self.ensemble.trees[0]
        for kind, path, _ in txn.deltas:
            if kind != "created" or parent(path) != TAKEN:
                continue
            if path.rpartition("/")[2] not in self.open():
                self.wrong.append(f"drained: {path} was given out")
            line = {
                node: tree[f"{FOLDER}/{node}"].czxid
                for node in tree.children(FOLDER)
                if ordering.parse(node) is not None
            }
            own = [node for what, node, _ in txn.deltas if what == "deleted"]
            if any(line[min(line, key=line.__getitem__)] < tree[node].czxid for node in own):
                self.wrong.append(f"order: {path} was taken out of turn")

    def looked(self) -> None:
        for client in self.clients:
            for request in client.requests:
                slot = request.said_free() if isinstance(request, Changing) else ""
                node = self.ensemble.trees[0].get(f"{TAKEN}/{slot}") if slot else None
                if node is not None and slot not in self.open():
                    self.wrong.append(f"drained: {slot} was said to be free and is held")

    def quiet(self) -> str:
        """Nobody waits while a slot is free, unless a timer is to bring that about; or all do,
        until the folder counts anew."""
        folder = self.ensemble.head.get(FOLDER)
        counted = folder is not None and ordering.exhausted(folder.cversion)
        if counted or any(map(self._interesting, self.clients)):
            return ""
        taken = self.ensemble.head.children(TAKEN) if TAKEN in self.ensemble.head else []
        waiting = [
            index
            for client in self.clients
            for index in client.waiting()
            if isinstance(client.requests[index], SlotHeld)
        ]
        free = self.open() - set(taken)
        return f"liveness: {free} are free and {len(waiting)} wait" if free and waiting else ""

    def _overslept(self) -> str:
        return "" if self.forsaken() else self.quiet()


SLOTS = ("gpu-0", "gpu-1")


def one_each(held: Sequence[str]) -> str:
    """Every slot has one holder."""
    twice = [slot for slot in held if slot and held.count(slot) > 1]
    return f"{twice[0]} is held twice" if twice else ""


def slot(
    *, of: Sequence[str] | None = SLOTS, prefer: str = "", timeout: float | None = None,
    may_cancel: bool = False,
) -> Wish:  # fmt: skip
    """A wish for a slot."""

    def begin(session: Session, label: str) -> Request:
        pool = Pool(session, NAME, of, label=label)
        return SlotHeld(pool.acquire_future(timeout, prefer=prefer))

    return Wish(begin, may_cancel)


def drain(name: str) -> Wish:
    """A wish that a slot be given out no more."""

    def begin(session: Session, _label: str) -> Request:
        return Changing(Pool(session, NAME, SLOTS).drain_future(name, 1e6), name)

    return Wish(begin)


def add(*names: str) -> Wish:
    """A wish that these slots be given out too."""

    def begin(session: Session, _label: str) -> Request:
        return Changing(Pool(session, NAME, SLOTS).add_future(*names, timeout=1e6), "")

    return Wish(begin)
