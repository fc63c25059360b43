"""Who wants what of whom: what a world of locks is told to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from zkcoord.zk import Session


class Request(Protocol):
    """One wish of one client for something exclusive."""

    @property
    def granted(self) -> bool:
        """Whether it has been granted."""

    @property
    def token(self) -> int:
        """Of the grant."""

    def settled(self) -> bool:
        """Whether it was decided: granted or not."""

    def believed(self) -> bool:
        """Whether its client believes now that it holds."""

    def release(self) -> None:
        """Give it back."""

    def cancel(self) -> None:
        """Give it up."""


class Wish(NamedTuple):
    """What a client will ask for. `what` tells the rules apart: a name, a kind, a weight."""

    ask: Callable[[Session], Request]
    what: Any = "gpu"
    may_cancel: bool = False


@dataclass(slots=True)
class Client:
    """One process with one session."""

    number: int
    session: Session
    wishes: Sequence[Wish]
    requests: list[Request] = field(default_factory=list)
    released: list[Request] = field(default_factory=list)
    told: list[object] = field(default_factory=list)  # everything that reached it

    def held(self) -> list[Request]:
        return [r for r in self.requests if r.granted and r not in self.released]

    def waiting(self) -> list[tuple[int, Request]]:
        return [(i, r) for i, r in enumerate(self.requests) if not r.settled()]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Who asks for what, and how much may go wrong.

    Attributes:
        wishes: of each client. servers: how many; a client first joins ``number % servers``.
        faults: how many times each fault may happen. counter: sequence of the first node.
        rule: looks at the believed holders, as (what, request), and says what is wrong.
    """

    wishes: tuple[tuple[Wish, ...], ...]
    rule: Callable[[list[tuple[Any, Request]]], str]
    servers: int = 2
    faults: tuple[tuple[str, int], ...] = (("cut", 1),)
    counter: int = 0
    folders: tuple[str, ...] = ("/locks", "/locks/gpu")
    ordered: bool = True
