"""Who wants to be in several lines at once, and how each line's queue sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from zkcoord.core.ordering import Place
from zkcoord.errors import CoordinationError
from zkcoord.recipes.line import Line
from zkcoord.recipes.steps import ROLLED_BACK
from zkcoord.zk.link import Link
from zkcoord.zk.translate import from_code


class MultiAsker(Protocol):
    """Who wants to be in all the lines."""

    def wanted(self) -> bool:
        """Whether it still wants to; when not, the entry leaves by itself."""

    def entered(self, places: Sequence[Place]) -> None:
        """It is in, and this is where it stands in each line."""

    def placed(self, index: int, found: Place) -> None:
        """The answer to `look`."""

    def identified(self, token: int) -> None:
        """The answer to `identify`."""

    def failed(self, error: CoordinationError) -> None:
        """It cannot get in, or one of its nodes was removed."""


class Seated(Protocol):
    """Who has seats in several lines."""

    def found(self, index: int, place: Place | None) -> None:
        """Where the node in this line stands; None when it is not there."""

    def not_listed(self, index: int, error: CoordinationError) -> None:
        """A listing of this line failed."""


class Seat:
    """One of the lines, for the queue that is shared with others of the session."""

    __slots__ = ("_entry", "_index", "key")

    def __init__(self, entry: Seated, index: int, key: tuple[str, str]) -> None:
        self._entry = entry
        self._index = index
        self.key = key

    def listing_sent(self) -> None:
        """Nothing flies with it."""

    def found(self, place: Place | None) -> None:
        """Where the node stands."""
        self._entry.found(self._index, place)

    def not_listed(self, error: CoordinationError) -> None:
        """The listing failed."""
        self._entry.not_listed(self._index, error)


def make_all(
    link: Link,
    lines: Sequence[Line],
    number: int,
    made: Callable[[CoordinationError | None], object],
) -> None:
    """Make the folders of these lines, and call `made` once: with an error when there was one.

    `number` is the request's: who asked first gets in first.
    """
    left, unmade = len(lines), None

    def one(error: CoordinationError | None) -> None:
        nonlocal left, unmade
        left -= 1
        unmade = unmade or error
        if not left:
            made(unmade)

    for line in lines:
        link.folders.wait(line.folder, number, one)


def refusal(
    link: Link, verb: str, lines: Sequence[Line], results: Sequence[Any]
) -> CoordinationError | None:
    """Why a multi with one operation for each line was rolled back; None when it was not."""
    for line, result in zip(lines, results, strict=False):
        if isinstance(result, int) and result not in ROLLED_BACK:
            return from_code(result, f"{verb} {link.relative(line.folder)}")
    return None


def first_stranger(lines: Sequence[Line], places: Sequence[Place]) -> CoordinationError | None:
    """The error when another kind of recipe uses one of the folders."""
    for line, place in zip(lines, places, strict=True):
        error = line.stranger(place.ahead)
        if error is not None:
            return error
    return None
