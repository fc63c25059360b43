"""Knowing without a listing that nobody stands in front.

ZooKeeper numbers the children of a folder by counting its creates (``cversion`` of the parent, see
``PrepRequestProcessor`` of Apache ZooKeeper), and a transaction's id counts the transactions of
the whole ensemble under one leader. From the reply of a create alone, number *n*, it follows that
nobody is in front in two cases:

1. *n* is 0. Nothing was ever created in this folder before.
2. We held at the head with number *m*, so all up to *m* but we had gone; our node's removal
   succeeded as transaction *d*, and *n* is *m* + 1, as transaction *c* under the same leader. If
   the folder is still the one that we left, nothing was created in between, and all up to *m* are
   gone. If it is not, somebody removed it (an empty container is removed by the server) and made
   it again, and *m* + 1 nodes were created in it before ours: *m* + 2 transactions between *d* and
   *c* at least, since every contender is created by one of its own. So it is the same folder when
   fewer lie between. Those of our own session are none of these, for whatever it creates in that
   folder takes the knowledge away; so they do not count.

Whoever comes after *c* is behind us, and what is gone never comes back in the same folder.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from zkcoord.core.ordering import exhausted

FOLDERS_MAX = 4096
_UNDER_ONE_LEADER = 32  # the bits of a transaction's id that count


class Vacancy:
    """The front of a folder's queue as the last of us leaves it.

    Attributes:
        sequence: the number of the one who holds or held.
        expected: whether nobody was in front when it came, as its number told: so it may well be
            next time.
        removed: when its node was removed; None while that is not known.
    """

    __slots__ = ("expected", "removed", "sequence")

    def __init__(self, sequence: int, *, expected: bool) -> None:
        self.sequence = sequence
        self.expected = expected
        self.removed: Moment | None = None


class Moment(NamedTuple):
    """A transaction of ours: its id, and how many were ours up to it."""

    zxid: int
    own: int


def nobody_in_front(left: Vacancy | None, sequence: int, created: Moment) -> bool:
    """Whether the number of a node that was just created proves that nobody is in front of it.

    Args:
        left: what is known of the folder, given that nothing of ours was created there since.
        sequence: the node's number.
        created: when it was.
    """
    if sequence == 0:
        return True
    if left is None or left.removed is None or sequence != left.sequence + 1:
        return False
    removed = left.removed
    if created.zxid >> _UNDER_ONE_LEADER != removed.zxid >> _UNDER_ONE_LEADER:
        return False
    passed = created.zxid - removed.zxid - 1
    ours = created.own - removed.own - 1
    return passed - ours < left.sequence + 2 and not exhausted(sequence)


class Vacancies:
    """The folders whose front somebody of a session holds or left last, the latest of them.

    `take` from any thread, with the turn of the folders; the rest on the loop, in the order of
    the transactions.
    """

    def __init__(self) -> None:
        self._left: OrderedDict[str, Vacancy] = OrderedDict()  # its methods are whole for threads
        self._held: dict[str, Vacancy] = {}
        self._own = 0

    def __len__(self) -> int:
        return len(self._left) + len(self._held)

    def take(self, folder: str) -> Vacancy | None:
        """What is known of a folder, for whoever is about to create a node in it; once."""
        return self._left.pop(folder, None)

    def created(self, zxid: int) -> Moment:
        """A contender's node of ours was created."""
        self._own += 1
        return Moment(zxid, self._own)

    def held(self, folder: str, node: str, sequence: int, *, expected: bool) -> None:
        """One of us holds with this node, a path, and all in front of it have gone."""
        self._left[folder] = self._held[node] = Vacancy(sequence, expected=expected)
        self._left.move_to_end(folder)
        if len(self._left) > FOLDERS_MAX:
            self._left.popitem(last=False)

    def removed(self, node: str, zxid: int) -> None:
        """A node of ours was removed by us."""
        self._own += 1
        left = self._held.pop(node, None)
        if left is not None:
            left.removed = Moment(zxid, self._own)

    def gone(self, node: str) -> None:
        """A node of ours is not there any more, we do not know since when."""
        self._held.pop(node, None)
