"""Folders that are made when somebody needs them, without changing who comes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zkcoord.errors import CoordinationError

if TYPE_CHECKING:
    from zkcoord.zk.link import Link

Made = Callable[[CoordinationError | None], object]


class Folders:
    """Folders in the making. While one is, who wants to get in waits at its gate.

    Without the gate those who ask after it was made would overtake those who found it missing.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._gates: dict[str, list[tuple[int, Made]]] = {}

    def closed(self, path: str) -> bool:
        """Whether the folder is being made. From any thread."""
        return path in self._gates

    def wait(self, path: str, number: int, made: Made, *, container: bool = True) -> None:
        """Make the folder unless it is being made; then `made(error)`, lowest number first.

        On the loop. A container unless told otherwise: the server removes it when it is not used.
        """
        gate = self._gates.get(path)
        if gate is not None:
            gate.append((number, made))
            return
        self._gates[path] = [(number, made)]
        self._link.ensure(path, lambda error: self._open(path, error), container=container)

    def _open(self, path: str, error: CoordinationError | None) -> None:
        for _, made in sorted(self._gates[path], key=lambda item: item[0]):
            made(error)
        del self._gates[path]
