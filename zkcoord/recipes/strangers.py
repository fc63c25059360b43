"""Recipes of different kinds on one folder: who comes later is refused.

Each kind counts the nodes of its own kind only, so two of them on one folder would each grant what
the other one has. It shows in what was listed anyway, so it costs no request: in the letter of the
nodes in front (:mod:`zkcoord.core.ordering`), and in what a pool or a lock with a delay leaves in
its folder. Locks of all sorts, elections and the turn of a pool queue in the same way; so do those
of other libraries whose layouts are known.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from zkcoord.core.ordering import EXCLUSIVE, SHARED, Contender
from zkcoord.core.permits import PERMIT
from zkcoord.errors import NodeForeign
from zkcoord.recipes.lasting import MARK, SLOTS

ROUND = "p"
"""The kind of a double barrier's contenders."""

Recipe = Literal["lock", "election", "pool", "semaphore", "double barrier"]

_QUEUES: dict[str, str] = {
    EXCLUSIVE: "lock", SHARED: "lock", PERMIT: "semaphore", ROUND: "double barrier",
}  # fmt: skip
_LIKE_LOCKS = {"lock", "election", "pool"}


def stranger(
    recipe: Recipe, name: str, ahead: Sequence[Contender], names: Collection[str] = ()
) -> NodeForeign | None:
    """The error when another kind of recipe uses the folder; None when nothing shows it.

    Args:
        recipe: which kind asks.
        name: for messages.
        ahead: who stands in front of it.
        names: what is in the folder, where it was listed.
    """
    queue = "lock" if recipe in _LIKE_LOCKS else recipe
    for contender in (*ahead[:1], *ahead[-1:]):
        other = _QUEUES.get(contender.kind, queue)
        if other != queue:
            return _refused(recipe, name, other)
    if recipe != "pool" and SLOTS in names:
        return _refused(recipe, name, "pool")
    if queue != "lock" and MARK in names:
        return _refused(recipe, name, "lock")
    return None


def _refused(recipe: Recipe, name: str, other: str) -> NodeForeign:
    article = "an" if recipe == "election" else "a"
    return NodeForeign(
        f"{name}: {article} {recipe} on a folder that a {other} uses",
        hint="give each its own name, or its own root",
    )
