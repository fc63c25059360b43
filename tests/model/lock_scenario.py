"""Who wants what of whom: what a world of locks is told to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from zkcoord.zk import Session


class Request(Protocol):
    """One wish of one client.

    Attributes:
        what: what it holds or will hold, for the rule: a name, a kind, a weight.
        token: of the grant; 0 when there is none.
        finished: whether all was given back.
    """

    what: Any
    token: int
    finished: bool

    @property
    def granted(self) -> bool:
        """Whether it has been granted."""

    def settled(self) -> bool:
        """Whether it was decided: granted or not."""

    def believed(self) -> bool:
        """Whether its client believes now that it holds."""

    def release(self) -> None:
        """Give it back, or a part of it."""

    def cancel(self) -> None:
        """Give it up."""


class Wish(NamedTuple):
    """What a client will ask for; `ask` takes the session, and a label for the node's value."""

    ask: Callable[[Session, str], Request]
    may_cancel: bool = False


Rule = Callable[[Sequence[Any]], str]
"""Looks at what is held at once, and says what is wrong with that."""


@dataclass(slots=True)
class Client:
    """One process with one session.

    Attributes:
        told: everything that reached it. released: whether it ever gave anything back.
        doomed: a session that was ended by itself or from elsewhere, so what it believes to hold
            is no longer known to be its own.
    """

    number: int
    session: Session
    wishes: Sequence[Wish]
    requests: list[Request] = field(default_factory=list)
    told: list[object] = field(default_factory=list)
    released: bool = False
    doomed: int = 0

    def held(self) -> list[int]:
        return [i for i, r in enumerate(self.requests) if r.granted and not r.finished]

    def waiting(self) -> list[int]:
        return [i for i, r in enumerate(self.requests) if not r.settled()]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Who asks for what, and how much may go wrong.

    Attributes:
        wishes: of each client. servers: how many; a client first joins ``number % servers``.
        faults: how many times each fault may happen. counter: sequence of the first node.
        world: makes the world; a plain one when None.
    """

    wishes: tuple[tuple[Wish, ...], ...]
    rule: Rule
    servers: int = 2
    faults: tuple[tuple[str, int], ...] = (("cut", 1),)
    counter: int = 0
    folders: tuple[str, ...] = ("/locks", "/locks/gpu")
    world: Callable[[Scenario], Any] | None = None
