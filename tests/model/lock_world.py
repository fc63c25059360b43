"""Clients with locks, an ensemble, one clock, and everything that may happen next.

:meth:`World.choices` lists the possible steps, :meth:`World.take` takes one, and :meth:`World.calm`
ends all trouble and lets everybody finish. What is wrong is collected in ``wrong``.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

from lock_scenario import Client, Request, Scenario
from zk_client import TIMEOUT_S, Clock, connection, new_session, next_timer
from zk_ensemble import Ensemble

from zkcoord.recipes.contenders import read_identity
from zkcoord.recipes.vigil import Vigil
from zkcoord.zk.link import Link

Step = tuple[str, int]
ROUNDS_MAX = 600
FAULTS = ("cut", "expire", "silence", "lag", "elect", "reap", "close", "kick")
LAG_S = TIMEOUT_S / 2
OWN = (Link._watchdog, Vigil._sweep)


class World:
    """One run. Everything is determined by the scenario and the steps taken."""

    def __init__(self, scenario: Scenario) -> None:
        Clock.now = 1000.0
        self.scenario = scenario
        self.ensemble = Ensemble(scenario.servers, scenario.folders, counter=scenario.counter)
        self.left = dict(scenario.faults)
        self.steps: list[Step] = []
        self.wrong: list[str] = []
        self._grants: dict[Request, Any] = {}
        self.clients = [
            Client(number, new_session(f"c{number}"), wishes)
            for number, wishes in enumerate(scenario.wishes)
        ]
        for client in self.clients:
            connection(client.session).connect(self.ensemble, client.number % scenario.servers)
            self._settle(client)

    # --- what may happen next ---

    def choices(self) -> list[Step]:
        ensemble = self.ensemble
        found: list[Step] = []
        for client in self.clients:
            found += self._client_choices(client)
        if ensemble.committed < len(ensemble.log):
            found.append(("commit", 0))
        for server in range(1, len(ensemble.trees)):
            if ensemble.applied[server] < ensemble.committed:
                found.append(("apply", server))
        if self.left.get("elect"):
            outstanding = len(ensemble.log) - ensemble.committed
            found += [("elect", kept) for kept in {0, outstanding}]
        if self.left.get("reap"):
            found += [("reap", i) for i in range(len(ensemble.reapable()))]
        return found

    def _client_choices(self, client: Client) -> list[Step]:
        number, link = client.number, connection(client.session)
        found: list[Step] = []
        wire = link.wire
        if link.ended:
            return []
        if wire is None or wire.closed:
            if wire is not None:
                found.append(("notice", number))
                if wire.down:
                    found.append(("deliver", number))
            else:
                found += [
                    ("connect", number * 10 + server)
                    for server in range(self.scenario.servers)
                    if self.ensemble.may_join(server, link.seen)
                ]
        else:
            if wire.up:
                found.append(("receive", number))
            if wire.down:
                found.append(("deliver", number))
            if self.left.get("cut"):
                found.append(("cut", number))
        asked = len(client.requests)
        if asked < len(client.wishes) and not client.session.link.closed:
            found.append(("ask", number))
        found += [("release", number * 10 + index) for index in client.held()]
        found += [
            ("cancel", number * 10 + index)
            for index in client.waiting()
            if client.wishes[index].may_cancel
        ]
        if self._interesting(client):
            found.append(("timer", number))
        if self._believes(client):
            found += [(kind, number) for kind in ("silence", "lag") if self.left.get(kind)]
        if self._expirable(client):
            found += [(kind, number) for kind in ("expire", "kick") if self.left.get(kind)]
        if self.left.get("close") and not client.session.link.closed:
            found.append(("close", number))
        return found

    def _believes(self, client: Client) -> bool:
        epoch = client.session.link.epoch
        return epoch is not None and not epoch.over()

    def _expirable(self, client: Client) -> bool:
        epoch = client.session.link.epoch
        if epoch is None:
            return False
        tracked = self.ensemble.sessions.get(epoch.id)
        return tracked is not None and not tracked.closing

    def _interesting(self, client: Client) -> bool:
        """Whether a timer waits other than the link's and the vigil's own, or anything is due."""
        loop: Any = client.session.link.loop
        waits = (getattr(timer.call, "__func__", None) for timer in loop.waits())
        return loop.due() <= Clock.now or any(call not in OWN for call in waits)

    # --- taking a step ---

    def take(self, step: Step) -> None:
        self.steps.append(step)
        kind, number = step
        if kind in FAULTS:
            self.left[kind] -= 1
        getattr(self, f"_{kind}")(number)
        self._look()

    def _settle(self, client: Client) -> None:
        connection(client.session).settle(self.ensemble)

    def _receive(self, number: int) -> None:
        wire = connection(self.clients[number].session).wire
        assert wire is not None
        self.ensemble.receive(wire, Clock.now)

    def _deliver(self, number: int) -> None:
        client = self.clients[number]
        link = connection(client.session)
        assert link.wire is not None
        told = link.wire.down[0]
        client.told.append((told.xid, told.code, str(told.result), Clock.now))
        link.deliver(self.ensemble)
        self._settle(client)

    def _cut(self, number: int) -> None:
        client = self.clients[number]
        client.told.append(("cut", Clock.now))
        connection(client.session).drop(self.ensemble)
        self._settle(client)

    _notice = _cut

    def _connect(self, number: int) -> None:
        client, server = self.clients[number // 10], number % 10
        connection(client.session).connect(self.ensemble, server)
        client.told.append(("connect", connection(client.session).session, Clock.now))
        self._settle(client)

    def _commit(self, _number: int) -> None:
        self.ensemble.commit()

    def _apply(self, server: int) -> None:
        self.ensemble.apply(server)

    def _elect(self, kept: int) -> None:
        self.ensemble.elect(kept)
        for tracked in self.ensemble.sessions.values():
            tracked.touched = Clock.now

    def _reap(self, index: int) -> None:
        self.ensemble.reap(self.ensemble.reapable()[index])

    def _ask(self, number: int) -> None:
        client = self.clients[number]
        client.told.append(("ask", Clock.now))
        index = len(client.requests)
        client.requests.append(client.wishes[index].ask(client.session, str(index)))
        self._settle(client)

    def _release(self, number: int) -> None:
        client = self.clients[number // 10]
        request = client.requests[number % 10]
        client.told.append(("release", number, Clock.now))
        client.released = True
        request.release()
        self._settle(client)

    def _cancel(self, number: int) -> None:
        client = self.clients[number // 10]
        client.told.append(("cancel", number, Clock.now))
        client.requests[number % 10].cancel()
        self._settle(client)

    def _timer(self, number: int) -> None:
        client = self.clients[number]
        self._until(next_timer(client.session))
        self._run_timers(client)

    def _run_timers(self, client: Client) -> None:
        client.told.append(("timer", Clock.now))
        loop: Any = client.session.link.loop
        loop.run_due()
        self._settle(client)

    def _expire(self, number: int) -> None:
        """Nothing of this client reaches a server for so long that its session ends there."""
        client = self.clients[number]
        epoch = client.session.link.epoch
        assert epoch is not None
        tracked = self.ensemble.sessions[epoch.id]
        self._until(tracked.touched + TIMEOUT_S, without=client)
        self.ensemble.end(epoch.id)

    def _silence(self, number: int) -> None:
        """The same, but it is the client who notices first."""
        client = self.clients[number]
        self._until(client.session.valid_until, without=client)
        self._run_timers(client)

    def _kick(self, number: int) -> None:
        """Somebody ends the session from elsewhere; its client learns of it when it is told."""
        self.clients[number].doomed = connection(self.clients[number].session).session
        self.ensemble.end(self.clients[number].doomed)

    def _close(self, number: int) -> None:
        """Its own client ends the session."""
        client = self.clients[number]
        client.told.append(("close", Clock.now))
        client.session.link.close()
        client.doomed = connection(client.session).session
        self._settle(client)

    def _lag(self, number: int) -> None:
        """Nothing moves between this client and its server for a while."""
        self._until(Clock.now + LAG_S, without=self.clients[number])

    def _until(self, moment: float, without: Client | None = None) -> None:
        """Time passes; links that stand are kept alive by pings."""
        if moment == math.inf:
            return
        Clock.now = max(Clock.now, moment)
        for client in self.clients:
            link = connection(client.session)
            if client is without or link.wire is None or link.wire.closed:
                continue
            if not self._believes_at_heart(client):
                continue
            tracked = self.ensemble.sessions[link.session]
            if not tracked.closing:
                tracked.touched = Clock.now
                epoch = client.session.link._acking
                if epoch is not None:
                    client.told.append(("ping", Clock.now))
                    belief = epoch.belief
                    belief.acknowledged = Clock.now
                    belief.valid_until = Clock.now + belief.timeout - belief.margin

    def _believes_at_heart(self, client: Client) -> bool:
        epoch = client.session.link._acking
        return epoch is not None and not epoch.belief._ended

    # --- what must hold ---

    def _look(self) -> None:
        held = []
        for client in self.clients:
            for request in client.requests:
                if request.granted and request not in self._grants:
                    self._granted(request)
                    if self._doomed(client) and not client.released:
                        self.wrong.append("exclusion: granted because its own session ended")
                if request.granted and request.believed() and not self._doomed(client):
                    held.append(request.what)
        verdict = self.scenario.rule(held)
        if verdict:
            self.wrong.append(f"exclusion: {verdict}")

    def _doomed(self, client: Client) -> bool:
        return client.doomed > 0 and client.doomed == connection(client.session).session

    def _granted(self, request: Request) -> None:
        """Tokens of those who exclude each other rise in the order of the grants."""
        for earlier, what in self._grants.items():
            if earlier.token > request.token and self.scenario.rule([what, request.what]):
                self.wrong.append("order: a lower token was granted later")
        self._grants[request] = request.what

    def _overslept(self) -> str:
        """All is quiet, some hold, some wait: must the first who waits really wait?"""
        owners = {connection(client.session).session: client for client in self.clients}
        nodes = sorted(
            (node.czxid, node.owner, node.data)
            for node in self.ensemble.head.values()
            if node.owner
        )
        held = [r.what for c in self.clients for r in c.requests if r.granted and r.believed()]
        for _, owner, data in nodes:
            if owner not in owners:
                return ""  # of a session that is gone: it has to expire first
            identity = read_identity(data)
            index = int(identity.name) if identity else 0
            request = owners[owner].requests[index]
            if not request.settled():
                if self.scenario.rule([*held, request.what]):
                    return ""
                return f"liveness: {request.what} waits for nobody while {held} are held"
        return ""

    # --- the end ---

    def calm(self, order: Random | None = None) -> list[str]:
        """Heal everything, let everybody finish, and see what is left. The verdict."""
        self.left = {}
        for client in self.clients:
            client.wishes = client.wishes[: len(client.requests)]
        for _ in range(ROUNDS_MAX):
            if self.wrong:
                return self.wrong
            steps = [s for s in self.choices() if s[0] not in {"timer", "cancel"}]
            steps += [("timer", c.number) for c in self.clients if self._due(c)]
            resting = bool(steps) and all(kind == "release" for kind, _ in steps)
            if resting and (overslept := self._overslept()):
                self.wrong.append(overslept)
                break
            if steps:
                self.take(order.choice(steps) if order else steps[0])
            elif not self._end_forgotten() and not self._let_time_pass():
                break
        else:
            self.wrong.append("liveness: it does not come to rest")
        return self.wrong or self._leftovers()

    def _due(self, client: Client) -> bool:
        return next_timer(client.session) <= Clock.now

    def _end_forgotten(self) -> bool:
        """Sessions that no client uses any more expire."""
        links = [connection(client.session) for client in self.clients]
        used = {link.session for link in links if not link.ended}
        known = self.ensemble.sessions
        forgotten = [s for s, t in known.items() if s not in used | {0} and not t.closing]
        for session in forgotten:
            self._until(known[session].touched + TIMEOUT_S)
            self.ensemble.end(session)
        return bool(forgotten)

    def _let_time_pass(self) -> bool:
        waiting = [client for client in self.clients if self._interesting(client)]
        if waiting:
            self._until(min(next_timer(client.session) for client in waiting))
            for client in waiting:
                if self._due(client):
                    self._run_timers(client)
            self._look()
        return bool(waiting)

    def _leftovers(self) -> list[str]:
        wrong = self.wrong
        for client in self.clients:
            for index in client.waiting():
                wrong.append(f"liveness: request {index} of client {client.number} waits for ever")
        nodes = [path for path, node in self.ensemble.head.items() if node.owner]
        if nodes:
            wrong.append(f"leftovers: {nodes}")
        watches = [key for wire in self.ensemble.wires for key in wire.watches]
        if watches:
            wrong.append(f"leftovers: watches on servers {watches}")
        for client in self.clients:
            link, epoch = client.session.link, client.session.link.epoch
            if len(link.watches):
                wrong.append("leftovers: watches in the client")
            if connection(client.session).ended:
                continue
            if epoch is not None and (
                epoch.ephemeral_bytes
                or epoch.successors
                or epoch._members
                or link._expectants._calls
            ):
                wrong.append("leftovers: the client's session still counts something")
        return wrong

    # --- for the explorer ---

    def state(self) -> object:
        return (
            self.ensemble.state(),
            tuple(tuple(client.told) for client in self.clients),
            tuple(sorted(self.left.items())),
            Clock.now,
        )
