"""Stories of clients that are cut off: T1, T2, T4, T9, T19."""

from __future__ import annotations

from typing import Literal

from tests.chaos.actors import Actor
from tests.chaos.stage import KAZOO, OURS, Stage

WAYS: tuple[Literal["up", "down"], ...] = ("up", "down")


def t1_cut_off_while_busy(stage: Stage) -> None:
    """A holder that keeps asking things is cut off: it knows that it lost before another holds."""
    holder, waiter = _holder_and_waiter(stage)
    holder.tell("busy")
    holder.line.blackhole()
    waiter.holds()
    holder.learns_that_it_lost(within=stage.timeout)
    stage.heal()
    waiter.adds()
    waiter.lets_go()
    holder.asks()
    holder.holds()


def t2_cut_off_while_idle(stage: Stage) -> None:
    """The same for a holder that asks nothing."""
    holder, waiter = _holder_and_waiter(stage)
    holder.line.blackhole()
    waiter.holds()
    holder.learns_that_it_lost(within=stage.timeout)
    stage.heal()
    waiter.adds()


def t9_half_open(stage: Stage) -> None:
    """What the holder sends arrives, what the server answers does not: lost all the same."""
    holder, waiter = _holder_and_waiter(stage)
    holder.line.blackhole(up=False, down=True)
    holder.learns_that_it_lost(within=3 * stage.timeout)
    holder.line.blackhole()  # the server heard it until now
    waiter.holds()
    stage.heal()
    waiter.adds()


def t1_one_server_goes_silent(stage: Stage) -> None:
    """Only the server of a busy holder goes silent: it moves to another and keeps its lease."""
    holder = stage.contender("holder", aside=True, timeout=9.0)
    holder.asks()
    holder.holds()
    holder.tell("busy")
    home = [s for s in stage.arena.servers if holder.line.to(s).open_connections]
    assert len(home) == 1
    holder.line.to(home[0]).blackhole()
    others = [s for s in stage.arena.servers if s is not home[0]]
    stage.comes_true(
        lambda: any(holder.line.to(s).open_connections for s in others) or not holder.has_it,
        "the holder moves to another server",
        within=12.0,
        rule="kept",
    )
    stage.passes(6.0)  # past the time at which it would have been lost
    holder.keeps_it("another server could be reached all the time")


def t4_cut_at_every_byte(stage: Stage) -> None:
    """The link breaks after the k-th byte of acquire and release, for every k, both ways."""
    client = stage.contender("client", aside=True, timeout=10.0)
    _round_trip(client)
    step = max(1, round(1 / stage.size)) if stage.subject == OURS else 8  # kazoo is slow to return
    for way in WAYS:
        before = client.line.bytes(way)
        _round_trip(client)
        length = client.line.bytes(way) - before
        for count in range(1, length + 1, step):
            client.line.cut_after(count, way)
            client.asks()
            client.holds(within=15)
            client.lets_go()
            client.line.heal()
            stage.comes_true(lambda: not stage.queue(), "no node is left after a cut", 15)


def t19_whatever_the_network_does(stage: Stage) -> None:
    """Delays, cuts and partitions at random: valid_until is never after the server's expiry.

    The next one's grant is the server's word that the first session was over.
    """
    for number in range(stage.often(6)):
        timeout = stage.random.uniform(1.5, 5.0)
        holder = stage.contender(f"holder-{number}", aside=True, timeout=timeout)
        waiter = stage.contender(f"waiter-{number}")
        holder.line.delay(stage.random.uniform(0, timeout / 20))
        holder.asks()
        holder.holds()
        holder.tell("busy")
        waiter.asks()
        stage.waits_in_line(2)
        for _ in range(3):
            stage.passes(stage.random.uniform(0, timeout / 3))
            holder.line.cut()
        way = stage.random.choice(["up", "down", "both"])
        holder.line.blackhole(up=way != "down", down=way != "up")
        if way == "down":
            holder.learns_that_it_lost()
            holder.line.blackhole()
        waiter.holds()
        waiter.lets_go()
        holder.line.heal()
        if stage.subject != KAZOO:
            holder.learns_that_it_lost()


def _holder_and_waiter(stage: Stage) -> tuple[Actor, Actor]:
    holder = stage.contender("holder", aside=True)
    waiter = stage.contender("waiter")
    holder.asks()
    holder.holds()
    holder.adds()
    waiter.asks()
    stage.waits_in_line(2)
    return holder, waiter


def _round_trip(client: Actor) -> None:
    client.asks()
    client.holds()
    client.lets_go()
