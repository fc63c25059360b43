"""Standing in several queues at once: no deadlock, all or nothing. A pure model of the queues.

Its clients follow the rules of the shipped state machine: they enter by one transaction, write
again when its outcome is unknown, watch the nearest in front in every queue, and look again only
when that one goes.
"""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkcoord.core import ordering
from zkcoord.core.ordering import Contender, Place

QUEUES = 5
START = 2**31 - 3  # the counters wrap on the way


class Client:
    """One request for several queues."""

    def __init__(self, session: int, wanted: tuple[int, ...]) -> None:
        self.session = session
        self.wanted = wanted
        self.mine: dict[int, str] = {}
        self.watched: dict[int, tuple[str, bool]] = {}
        self.clear: set[int] = set()
        self.state = "outside"  # waiting, holding, ended, lost


class World:
    """The queues, and who waits for the end of which node."""

    def __init__(self) -> None:
        self.counters = [START] * QUEUES
        self.nodes: list[list[str]] = [[] for _ in range(QUEUES)]
        self.clients: list[Client] = []
        self.strays: list[tuple[int, str]] = []

    def create(self, client: Client, queue: int) -> None:
        signed = (self.counters[queue] + 2**31) % 2**32 - 2**31
        self.counters[queue] += 1
        self.nodes[queue].append(f"{ordering.prefix('x', client.session, '1')}{signed:010d}")

    def queue(self, number: int) -> list[Contender]:
        return ordering.in_order(random.sample(self.nodes[number], len(self.nodes[number])))

    def enter(self, client: Client, times: int) -> None:
        """All at once; again for each reply that was lost."""
        self.clients.append(client)
        for _ in range(times):
            for queue in client.wanted:
                self.create(client, queue)
        queues = [self.queue(number) for number in client.wanted]
        found, whole = ordering.places(queues, client.session, "1")
        assert whole
        client.state = "waiting"
        for number, place in zip(client.wanted, found, strict=True):
            assert place is not None
            client.mine[number] = place.mine.node
            self.strays += [(number, stray.node) for stray in place.strays]
            self.stand(client, number, place)
        self.settle(client)

    def stand(self, client: Client, number: int, place: Place) -> None:
        blocker = ordering.blocker(place)
        if blocker is None:
            client.clear.add(number)
        else:
            client.watched[number] = (blocker[0].node, blocker[1])

    def settle(self, client: Client) -> None:
        if client.state == "waiting" and len(client.clear) == len(client.wanted):
            client.state = "holding"

    def delete(self, number: int, node: str) -> None:
        if node not in self.nodes[number]:
            return
        self.nodes[number].remove(node)
        for client in self.clients:
            watched, last = client.watched.get(number, ("", False))
            if watched != node or client.state != "waiting":
                continue
            del client.watched[number]
            if last:
                client.clear.add(number)
                self.settle(client)
            else:
                self.look(client, number)

    def look(self, client: Client, number: int) -> None:
        place = ordering.place(self.queue(number), client.session, "1")
        if place is None or place.mine.node != client.mine[number]:
            self.end(client, "lost")
        else:
            self.stand(client, number, place)
            self.settle(client)

    def end(self, client: Client, state: str) -> None:
        client.state = state
        for number, node in client.mine.items():
            self.delete(number, node)

    def check(self) -> None:
        taken: list[int] = []
        for client in self.clients:
            if client.state == "holding":
                taken += client.wanted
        assert len(taken) == len(set(taken)), "two hold the same"

    def holding(self) -> list[Client]:
        return [client for client in self.clients if client.state == "holding"]

    def waiting(self) -> list[Client]:
        return [client for client in self.clients if client.state == "waiting"]


steps = st.lists(
    st.tuples(
        st.sampled_from(["enter", "enter", "release", "give up", "remove", "sweep"]),
        st.sets(st.integers(0, QUEUES - 1), min_size=1, max_size=3),
        st.integers(1, 3),
        st.integers(0, 1000),
    ),
    max_size=40,
)


def run(world: World, script: list[tuple[str, set[int], int, int]]) -> None:
    """Play it; then everybody who holds lets go until nobody is left."""
    for number, (verb, wanted, times, pick) in enumerate(script):
        holding, waiting = world.holding(), world.waiting()
        if verb == "enter":
            world.enter(Client(number + 1, tuple(sorted(wanted))), times)
        elif verb == "release" and holding:
            world.end(holding[pick % len(holding)], "ended")
        elif verb == "give up" and waiting:
            world.end(waiting[pick % len(waiting)], "ended")
        elif verb == "remove" and waiting:
            client = waiting[pick % len(waiting)]
            queue = client.wanted[pick % len(client.wanted)]
            world.delete(queue, client.mine[queue])  # by hand; the client finds out, or goes on
            world.end(client, "lost")
        elif verb == "sweep" and world.strays:
            world.delete(*world.strays.pop())
        world.check()
    for stray in world.strays:
        world.delete(*stray)
    while world.waiting() or world.holding():
        assert world.holding(), "all wait for one another"
        world.end(world.holding()[0], "ended")
        world.check()


@settings(max_examples=300, deadline=None)
@given(steps)
def test_there_is_no_deadlock_and_no_two_hold_one_lock(
    script: list[tuple[str, set[int], int, int]],
) -> None:
    world = World()
    run(world, script)
    assert not any(world.nodes), "nodes are left"


def test_entering_one_queue_after_the_other_would_deadlock() -> None:
    """The model can tell: two clients enter the queues 0 and 1 in steps that cross."""
    world = World()
    one, two = Client(1, (0, 1)), Client(2, (0, 1))
    world.clients += [one, two]
    for client, queue in ((one, 0), (two, 1), (one, 1), (two, 0)):
        world.create(client, queue)
    for client in (one, two):
        client.state = "waiting"
        for number in client.wanted:
            place = ordering.place(world.queue(number), client.session, "1")
            assert place is not None
            client.mine[number] = place.mine.node
            world.stand(client, number, place)
        world.settle(client)
    with pytest.raises(AssertionError, match="all wait for one another"):
        run(world, [])


def places(*nodes: tuple[int, ...]) -> tuple[list[int | None], bool]:
    """Positions of session 7's request in queues with these sequences of its nodes."""
    queues = [
        ordering.in_order(
            [f"{ordering.prefix('x', 7, '1')}{number:010d}" for number in mine]
            + [f"{ordering.prefix('x', 8, '1')}{2:010d}"]
        )
        for mine in nodes
    ]
    found, whole = ordering.places(queues, 7, "1")
    return [None if place is None else place.position for place in found], whole


def test_a_request_is_whole_with_as_many_nodes_in_every_queue() -> None:
    assert places((1,), (3,)) == ([0, 1], True)
    assert places((1, 3), (3, 4)) == ([0, 1], True)


@pytest.mark.parametrize("nodes", [((1,), ()), ((), ()), ((1, 3), (3,))])
def test_a_request_is_not_whole_when_a_node_was_removed(nodes: tuple[tuple[int, ...], ...]) -> None:
    _, whole = places(*nodes)
    assert not whole


def test_the_order_holds_across_the_wrap_in_every_queue() -> None:
    world = World()
    world.counters = [2**31 - 1, 2**32 - 1, 5, 0, 0]
    clients = [Client(number, (0, 1, 2)) for number in range(1, 5)]
    for client in clients:
        world.enter(client, 1)
    order: list[int] = []
    check: Callable[[], list[Client]] = world.holding
    while check():
        world.check()
        order.append(check()[0].session)
        world.end(check()[0], "ended")
    assert order == [1, 2, 3, 4]
