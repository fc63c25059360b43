"""What is queued up for, and who does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from zkcoord.core import ordering
from zkcoord.core.layouts import Layout
from zkcoord.core.ordering import Contender, Place
from zkcoord.errors import CoordinationError, NameRefused
from zkcoord.recipes.strangers import Recipe, stranger
from zkcoord.zk.names import join


def _nothing() -> None:
    """Nothing flies with a listing."""


class Line(NamedTuple):
    """What is queued up for.

    Attributes:
        folder: absolute path of the queue. name: for messages.
        data: value of the node. kind: letter of the node.
        blocks: whether a contender in front must go first.
        layout: how the node is named.
        load: stands before the request's number in the node's name.
        listed: called when a listing was sent: what is read then flies with it, behind it.
        behind: where something flies with a listing: whether the member of the same session's
            queue that wants in right in front knows enough to do without. None: nothing is needed.
        recipe: which kind queues up.
    """

    folder: str
    name: str
    data: bytes
    kind: str = ordering.EXCLUSIVE
    blocks: Callable[[Contender], bool] = lambda _: True
    layout: Layout = Layout.ZKCOORD
    load: str = ""
    listed: Callable[[], object] = _nothing
    behind: Callable[[object], bool] | None = None
    recipe: Recipe = "lock"

    @property
    def silent(self) -> bool:
        """Whether nothing flies with a listing."""
        return self.listed is _nothing

    def stranger(
        self, ahead: Sequence[Contender], names: Collection[str] = ()
    ) -> CoordinationError | None:
        """The error when another kind of recipe uses the folder, see `strangers`."""
        return stranger(self.recipe, self.name, ahead, names)

    def check(self, bound: int) -> None:
        """Refuse a value that a server would not take: it would only drop the link.

        Raises:
            NameRefused: the value has more bytes than `bound`.
        """
        if len(self.data) > bound:
            text = f"{self.name}: a label and data of {len(self.data)} bytes"
            raise NameRefused(f"{text}, the bound is {bound}")

    def path(self, node: str) -> str:
        """A node's absolute path."""
        return join(self.folder, node)


class Asker(Protocol):
    """Who wants to be in the line."""

    def wanted(self) -> bool:
        """Whether it still wants to; when not, the entry leaves by itself."""

    def placed(self, found: Place) -> None:
        """A listing shows where it stands."""

    def identified(self, token: int) -> None:
        """The answer to `identify`."""

    def failed(self, error: CoordinationError) -> None:
        """It cannot get in, or its node was removed."""
