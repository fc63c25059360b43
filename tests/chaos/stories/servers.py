"""Stories of servers that are slow, killed, frozen, cut off from each other: T3, T7, T8, T10,
and T16: servers that have counted to the end."""

from __future__ import annotations

from contextlib import ExitStack

from tests.chaos.stage import OURS, Stage
from tests.faults.frame_relay import Frame, FrameRelay

CREATES = {1, 15}


def t3_create_in_flight(stage: Stage) -> None:
    """A create waits for the leader's slow disk, and one follower is stopped, when the client's
    link breaks. It goes on at the other follower, which does not know of that create yet; its
    requests have other numbers than on the first link."""
    _create_in_flight(stage, warm=2)


def t3_create_in_flight_same_xid(stage: Stage) -> None:
    """The same; for a client whose links all count from one, the second create has the number of
    the first."""
    _create_in_flight(stage, warm=0)


def _create_in_flight(stage: Stage, *, warm: int) -> None:
    arena = stage.arena
    leader = arena.leader()
    stopped, other = arena.followers()
    with ExitStack() as stack:
        relay = stack.enter_context(FrameRelay(other.address))
        client = stage.contender("client", aside=True, timeout=6.0, detours={other: relay.address})
        waiter = stage.contender("waiter", hosts=other.address, timeout=6.0)
        client.line.only(leader)
        for actor in (client, waiter):  # so that the folder is there
            actor.asks()
            actor.holds()
            actor.lets_go()
        client.line.cut()  # from here its requests on this link are counted
        client.tell("warm", warm)
        client.says("warm")
        stopped.pause()
        arena.hold_the_disk(leader)
        client.asks()
        stage.comes_true(lambda: arena.disk_is_waited_for(leader), "the create is with the leader")
        client.line.to(leader).refuse()
        client.line.to(other).heal()
        client.line.to(leader).cut()
        stage.comes_true(lambda: _creates(relay), "it creates again at the other follower")
        stage.passes(0.2)
        arena.let_the_disk_go(leader)
        stopped.resume()
        client.holds(within=15)
        client.adds()
        waiter.asks()
        client.lets_go()
        waiter.holds(within=15)
        waiter.adds()
        waiter.lets_go()
        stage.looks_around()


def _creates(relay: FrameRelay) -> list[Frame]:
    return [frame for frame in relay.requests() if frame.opcode in CREATES]


def t7_leaders_are_killed(stage: Stage) -> None:
    """The leader is killed and started again, round after round, while clients work."""
    crew = [stage.contender(f"client-{number}", timeout=12.0) for number in range(3)]
    sessions = [client.session for client in crew]
    for client in crew:
        client.works()
    for _ in range(stage.often(50 if stage.subject == OURS else 20)):
        leader = stage.arena.leader()
        leader.kill()
        stage.passes(stage.random.uniform(0, 1))
        leader.start()
    stage.heal()
    stage.passes(2.0)
    for client, session in zip(crew, sessions, strict=True):
        if client.session != session:
            stage.claim("kept", f"{client.name} lost its session, although two servers ran always")


def t8_leader_in_the_minority(stage: Stage) -> None:
    """The leader is cut off from the others, and the holder with it. It has lost before the
    majority grants the lock to another."""
    arena = stage.arena
    leader = arena.leader()
    majority = ",".join(server.address for server in arena.followers())
    holder = stage.contender("holder", aside=True, timeout=6.0)
    waiter = stage.contender("waiter", hosts=majority, timeout=15.0)  # outlives the election
    holder.line.only(leader)
    holder.asks()
    holder.holds()
    holder.adds()
    holder.tell("busy")
    waiter.asks()
    stage.waits_in_line(2)
    arena.isolate(leader)
    waiter.holds(within=60)
    holder.learns_that_it_lost(within=5)
    waiter.adds()
    stage.heal()
    waiter.lets_go()
    holder.asks()
    holder.holds()


def t10_frozen_for_a_moment(stage: Stage) -> None:
    """The holder's server stands still for a third of the timeout: nothing happens."""
    _frozen(stage, 1 / 3)


def t10_frozen_for_long(stage: Stage) -> None:
    """The holder's server stands still for longer than the timeout: the holder moves to another
    server in time and keeps its lease."""
    _frozen(stage, 1.5)


def _frozen(stage: Stage, timeouts: float) -> None:
    timeout = 9.0
    holder = stage.contender("holder", aside=True, timeout=timeout)
    home = stage.arena.followers()[0]
    holder.line.only(home)
    holder.asks()
    holder.holds()
    holder.tell("busy")
    holder.line.heal()
    home.pause()
    stage.passes(timeouts * timeout)
    holder.keeps_it("two other servers could be reached all the time")
    home.resume()
    stage.passes(1.0)
    holder.keeps_it("two other servers could be reached all the time")


def t16_the_counter_ends(stage: Stage) -> None:
    """The folder's counter of sequential nodes is near its end, 2^31 - 1. Clients ask one after
    the other across it: one holds at a time, and all get in."""
    stage.ensure_folder()
    stage.arena.set_sequence(stage.folder_path, 2**31 - 4)
    crew = [stage.contender(f"client-{number}", timeout=10.0) for number in range(8)]
    for place, client in enumerate(crew, 1):
        client.asks()
        if place <= 3:
            stage.waits_in_line(place)
        else:
            stage.passes(0.2)
    for _ in range(200):
        holding = [client for client in crew if client.has_it]
        for client in holding:
            client.adds()
            client.lets_go()
        if all(client.has("released") for client in crew):
            break
        stage.passes(0.1)
    if not all(client.has("released") for client in crew):
        stage.claim("C4", "somebody never gets in once the counter has ended")
    for client in crew:
        client.works()
    stage.passes(2.0)
