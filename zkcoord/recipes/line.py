"""What is queued up for, and who does."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from zkcoord.core import ordering
from zkcoord.core.layouts import Layout
from zkcoord.core.ordering import Contender, Place
from zkcoord.errors import CoordinationError
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
    """

    folder: str
    name: str
    data: bytes
    kind: str = ordering.EXCLUSIVE
    blocks: Callable[[Contender], bool] = lambda _: True
    layout: Layout = Layout.ZKCOORD
    load: str = ""
    listed: Callable[[], object] = _nothing

    @property
    def silent(self) -> bool:
        """Whether nothing flies with a listing."""
        return self.listed is _nothing

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
