"""Folders that are made when somebody needs them, without changing who comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING

from zkcoord.errors import CoordinationError

if TYPE_CHECKING:
    from zkcoord.zk.link import Link

Made = Callable[[CoordinationError | None], object]


class Folders:
    """Folders in the making. While one is, who wants to get in waits at its gate.

    Without the gate those who ask after it was made would overtake those who found it missing.

    Attributes:
        turn: held from the look at a gate until the create was handed over, so that those who ask
            in other threads come neither before the gate is shut nor before all who waited at it.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.turn = threading.RLock()
        self._gates: dict[str, list[tuple[int, Made]]] = {}

    def closed(self, path: str) -> bool:
        """Whether the folder is being made. With the turn."""
        return path in self._gates

    def wait(self, path: str, number: int, made: Made, *, container: bool = True) -> None:
        """Make the folder unless it is being made; then `made(error)`, lowest number first.

        On the loop; from any thread, with the turn, while it is closed. A container unless told
        otherwise: the server removes it when it is not used.
        """
        with self.turn:
            gate = self._gates.get(path)
            if gate is not None:
                gate.append((number, made))
                return
            self._gates[path] = [(number, made)]
            self._link.ensure(path, lambda error: self._open(path, error), container=container)

    def _open(self, path: str, error: CoordinationError | None) -> None:
        with self.turn:
            waiting = sorted(self._gates.pop(path), key=itemgetter(0))
            if error is None:
                for _, made in waiting:
                    made(None)
        if error is not None:  # they tell their users, which is not for the turn
            for _, made in waiting:
                made(error)
