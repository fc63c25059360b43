"""A world whose holders do more than let go, and which reads the log of transactions.

A request may have `acts`: how many things it can still do while it holds; `act` does the next one.
It lets go when all is done, and not while it is `busy`; at the end it does in any case, those that
look on as the last.
What a request finds wrong by itself it says in `complaints`.
"""

from __future__ import annotations

from random import Random
from typing import Any

from lock_scenario import Client, Scenario
from lock_world import OWN, Step, World
from zk_client import Clock, connection
from zk_tree import Txn

FAR_S = 1e5


class ActingWorld(World):
    """See the module. Its rule may look at it: a rule with a `world` gets it."""

    def __init__(self, scenario: Scenario) -> None:
        self._calming = False
        super().__init__(scenario)

    # --- what may happen ---

    def choices(self) -> list[Step]:
        found = super().choices()
        if self._calming:  # who looks on does so to the end
            rest = [s for s in found if s[0] != "release" or not self._looks_on(s[1])]
            return rest or found
        return found

    def _looks_on(self, number: int) -> bool:
        return getattr(self.clients[number // 10].requests[number % 10], "looks_on", False)

    def _client_choices(self, client: Client) -> list[Step]:
        found = super()._client_choices(client)
        if not (self._calming or connection(client.session).ended):
            found = [s for s in found if s[0] != "release" or not self._busy(client, s[1] % 10)]
            found += [
                ("act", client.number * 10 + index)
                for index in client.held()
                if getattr(client.requests[index], "acts", 0) > 0
            ]
        return found

    def _interesting(self, client: Client) -> bool:
        """Deadlines that are as good as none are left out."""
        loop: Any = client.session.link.loop
        near = [timer for when, _, timer in loop._timers if when < Clock.now + FAR_S]
        waits = (getattr(timer.call, "__func__", None) for timer in near if timer.call is not None)
        return loop.due() <= Clock.now or any(call not in OWN for call in waits)

    def _busy(self, client: Client, index: int) -> bool:
        request: Any = client.requests[index]
        return getattr(request, "acts", 0) > 0 or getattr(request, "busy", False)

    def _act(self, number: int) -> None:
        client = self.clients[number // 10]
        client.told.append(("act", number, Clock.now))
        request: Any = client.requests[number % 10]
        request.acts -= 1
        request.act()
        self._settle(client)

    def calm(self, order: Random | None = None) -> list[str]:
        self._calming = True
        return super().calm(order)

    def _commit(self, number: int) -> None:
        txn = self.ensemble.log[self.ensemble.committed]
        self.committing(txn)
        super()._commit(number)
        self.committed(txn)

    # --- what must hold ---

    def committing(self, txn: Txn) -> None:
        """A transaction is about to change what the leader has applied."""

    def committed(self, txn: Txn) -> None:
        """It has."""

    def looked(self) -> None:
        """After every step."""

    def quiet(self) -> str:
        """All rests, some hold: what is wrong with that."""
        return ""

    def _look(self) -> None:
        super()._look()
        for client in self.clients:
            for request in client.requests:
                complaints = getattr(request, "complaints", ())
                self.wrong += complaints
                if complaints:
                    complaints.clear()
        self.looked()

    def _overslept(self) -> str:
        if not self.forsaken():
            return self.quiet() or super()._overslept()
        return ""

    def forsaken(self) -> bool:
        """Whether nodes stand of a session that is gone: it has to expire first."""
        links = [connection(client.session) for client in self.clients]
        alive = {link.session for link in links if not link.ended} | {0}
        return any(node.owner not in alive for node in self.ensemble.head.values())
